# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""Room on the disks of a node, beside what the weights need (``weights`` asks for that itself)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkop.engines.paths import cache_directory, state_directory
from sparkop.hosts.base import Json
from sparkop.resources.base import Context, Difference
from sparkop.resources.compare import MIB, human_bytes, unread
from sparkop.resources.desired import Desired
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Blocker, Cause, Operation, Unknown
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

KIND = "disk"
DOCKER_ROOT = "/var/lib/docker"
"""Asked for before the engine's own answer is known; the usual place."""
LEAST = 64 * MIB
"""What the state folder needs for logs, plans and records."""
LEAST_INODES = 256


class Disk:
    """Nothing is planned: sparkop deletes nothing to make room."""

    kind = KIND

    def prepare(self, spec: ClusterSpec) -> Any:
        return None

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Json]:
        return {"disk": [state_directory(spec, node), cache_directory(spec, node), DOCKER_ROOT]}

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        blockers: list[Blocker] = []
        unknown: list[Unknown] = []
        for node in desired.spec.nodes:
            document = observed.documents.get(node.name)
            if document is None:
                continue
            if document.disk is None:
                unknown.append(unread(document, "disk", node.name, KIND))
                continue
            for path in dict.fromkeys(
                (state_directory(desired.spec, node), cache_directory(desired.spec, node))
            ):
                found = document.disk.get(path)
                if found is None:
                    reason = document.error("disk", path) or "not in the node's answer"
                    unknown.append(Unknown(node.name, f"{path}: {reason}", KIND))
                elif found.free < LEAST or 0 < found.inodes_free < LEAST_INODES:
                    blockers.append(_full(node.name, path, found.free, found.inodes_free))
                    break
        return Difference(blockers=tuple(blockers), unknown=tuple(unknown))

    def perform(self, operation: Operation, context: Context) -> None:
        raise AssertionError(f"{KIND} plans nothing: {operation.key}")


def _full(node: str, path: str, free: int, inodes: int) -> Blocker:
    inodes_short = free >= LEAST
    return Blocker(
        node,
        KIND,
        Cause(
            f"{path}.{'inodes' if inodes_short else 'free'}",
            str(inodes) if inodes_short else human_bytes(free),
            f"at least {LEAST_INODES if inodes_short else human_bytes(LEAST)}",
        ),
        f"make room on {node}: du -xh --max-depth=2 ~ | sort -h | tail; docker system df",
    )
