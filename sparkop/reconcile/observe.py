"""Read every node, in parallel, and make what is desired of what was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparkop.hosts.base import ReadableHost
from sparkop.resources.base import Clock, RealClock
from sparkop.resources.desired import Desired
from sparkop.resources.observed import History, Observed
from sparkop.spec.models import ClusterSpec


@dataclass(frozen=True)
class Reading:
    """One observation, with what is desired for it."""

    desired: Desired
    observed: Observed
    history: History


def observe(
    spec: ClusterSpec,
    hosts: Mapping[str, ReadableHost],
    *,
    canary: bool = True,
    timeout: float = 30.0,
    clock: Clock | None = None,
) -> Reading:
    """One probe a node, all at once; with ``canary`` also a tiny generation when ranks run on the head.

    Never raises for a node: what does not answer, or answers something that can't be believed, is in
    ``observed.unknown``. Can't write: hosts are taken as ReadableHost.
    """
    raise NotImplementedError
