# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""The memory guard of every node: its container, running, with the asked floor (row A12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkop.hosts.base import Json
from sparkop.hosts.document import Container, Document
from sparkop.resources import memory_gate
from sparkop.resources.acts import ensure_directory
from sparkop.resources.base import Context, Difference
from sparkop.resources.compare import human_seconds, unread
from sparkop.resources.desired import Desired, DesiredNode
from sparkop.resources.group import age
from sparkop.resources.guard import guard_name
from sparkop.resources.labels import ROLE_GUARD, Stamp, ours
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Action, Blocker, Cause, Operation, Origin, Unknown
from sparkop.resources.stamped import changed_field, same
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

KIND = "memguard"
GRACE = 3.0
"""Seconds that the guard gets to end by itself."""
HEARTBEAT = "memguard.json"
SILENT = 60.0
"""Seconds without a reading after which a guard that runs is taken for hung; it writes one each ten."""


class MemoryGuard:
    """Replaced as remove and start, without touching the ranks."""

    kind = KIND

    def prepare(self, spec: ClusterSpec) -> Any:
        return None

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Json]:
        return {"labels": [f"sparkop.cluster={spec.name}"], "containers": [guard_name(spec.name)]}

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        operations: list[Operation] = []
        unknown: list[Unknown] = []
        blockers: list[Blocker] = []
        warnings: list[str] = []
        for node in desired.nodes.values():
            document = observed.documents[node.name]
            if document.docker is None:
                unknown.append(unread(document, "docker", node.name, KIND))
            else:
                operations += _node(desired.spec.name, node, document)
                refused = memory_gate.closed(desired, node.name, document)
                blockers += [refused] if refused else []
                blocks = heartbeat(document).get("large_blocks")
                warning = memory_gate.fragmented(desired, node.name, document, blocks)
                warnings += [warning] if warning else []
        return Difference(tuple(operations), tuple(blockers), tuple(unknown), tuple(warnings))

    def perform(self, operation: Operation, context: Context) -> None:
        containers, fence = context.host(operation.node).containers, context.fence(operation.node)
        if operation.action is Action.REMOVE:
            containers.remove(str(operation.parameters["name"]), fence, grace=GRACE)
            return
        guard = context.desired.nodes[operation.node].guard
        assert guard is not None  # planned only where one is wanted
        ensure_directory(context, operation.node, context.desired.nodes[operation.node].weights)
        containers.run(guard, fence)


def _node(cluster: str, node: DesiredNode, document: Document) -> list[Operation]:
    found = ours(document, cluster, ROLE_GUARD)
    good = [c for c, stamp in found if _wrong(node, c, stamp, document) is None]
    operations = []
    for container, stamp in found:
        if container in good[:1]:
            continue
        cause = _wrong(node, container, stamp, document) or Cause("guards", str(len(good)), "1")
        resource = KIND if container.name == guard_name(cluster) else f"{KIND}/{container.name}"
        operations.append(
            Operation(
                Action.REMOVE,
                node.name,
                resource,
                cause,
                origin=_origin(node, stamp),
                parameters={"name": container.name},
            )
        )
    if node.guard is not None and not good:
        cause = operations[-1].cause if operations else Cause("guard", "missing", "running")
        needs = tuple(o.key for o in operations)
        origin = operations[-1].origin if operations else None
        operations.append(Operation(Action.START, node.name, KIND, cause, needs=needs, origin=origin))
    return operations


def _origin(node: DesiredNode, stamp: Stamp) -> Origin:
    """A guard of another spec that is as this spec wants it has only died."""
    if node.guard is None or (
        not same(node.guard, stamp.hash) and stamp.spec != node.guard.labels["sparkop.spec"]
    ):
        return Origin.SPEC
    return Origin.DRIFT


def _wrong(node: DesiredNode, container: Container, stamp: Stamp, document: Document) -> Cause | None:
    """Why this guard has to go; None when it is as desired."""
    if node.guard is None:
        return Cause("guard", "running", "none: memory.guard.enabled is false")
    if not same(node.guard, stamp.hash):
        changed = changed_field(stamp.desired, node.guard.labels["sparkop.desired"])
        return (
            Cause(f"guard {changed[0]}", changed[1], changed[2])
            if changed
            else Cause("hash", "other", "ours")
        )
    if not container.running:
        return Cause("guard", container.state, "running")
    silent = silence(container, document)
    if silent > SILENT:
        return Cause("guard", f"silent for {human_seconds(silent)}", "a reading each second")
    return None


def heartbeat(document: Document) -> Mapping[str, Any]:
    """What the guard last wrote about itself; empty when there is none."""
    beat = (document.state or {}).get(HEARTBEAT)
    return beat if isinstance(beat, dict) else {}


def silence(container: Container, document: Document) -> float:
    """Seconds since the guard last read memory, or since its start; 0 when it has no heartbeat yet."""
    at = heartbeat(document).get("at")
    since = age(container, document)
    if not isinstance(at, int | float) or document.machine is None or since is None:
        return 0.0
    return min(document.machine.time_s - at, since)
