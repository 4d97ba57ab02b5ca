"""All checks, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Mapping

from sparkop.hosts.document import Document
from sparkop.resources.base import Difference
from sparkop.resources.checks import addresses, cluster, containers, links, machine, memory, storage, ways
from sparkop.resources.checks.model import Check, refusals
from sparkop.resources.desired import Desired

CHECKS: tuple[Check, ...] = (
    *machine.CHECKS,
    *containers.CHECKS,
    *memory.CHECKS,
    *storage.CHECKS,
    *links.CHECKS,
    *addresses.CHECKS,
    *ways.CHECKS,
    *cluster.CHECKS,
)


def refused(kind: str, desired: Desired, documents: Mapping[str, Document]) -> Difference:
    """What the checks that hold a kind of resource up say of the nodes that were read."""
    return refusals(kind, CHECKS, desired, documents)
