"""Memory of every node as it is now: the probe's figures beside the guard's heartbeat."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from sparkop.engines.paths import state_directory
from sparkop.errors import SparkopError
from sparkop.hosts.base import ReadableHost
from sparkop.hosts.document import Document, parse_document
from sparkop.node.memguard.guard import Floors
from sparkop.records import dataclass
from sparkop.resources.compare import human_seconds, whole
from sparkop.resources.labels import CLUSTER, ROLE_GUARD, ours
from sparkop.resources.memguard import SILENT, floors_of, heartbeat, silence, under
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec
from sparkop.threads import Later, side_by_side


@dataclass(frozen=True)
class ContainerMemory:
    """Resident bytes of a container's processes; what the GPU holds for them is not among it."""

    name: str
    resident: int


@dataclass(frozen=True)
class NodeMemory:
    """One node. Bytes; None: not known. The floors are those of the guard that runs, else the spec's."""

    node: str
    soft_floor: int
    action_floor: int
    hard_floor: int
    reason: str = ""
    """Why the node could not be read."""
    total: int | None = None
    available: int | None = None
    free: int | None = None
    cached: int | None = None
    guard: str = "unknown"
    """``guarding``, ``off``, ``missing``, ``silent``, or the state of its container."""
    phase: str = ""
    """``gate`` (no rank runs), ``loading``, ``serving``; by the guard."""
    lowest: int | None = None
    """The least that the guard has seen since its start."""
    large_blocks: int | None = None
    """Free in blocks of 2 MiB and more: little beside ``free`` means that memory is fragmented."""
    containers: tuple[ContainerMemory, ...] = ()
    samples: tuple[int, ...] = ()
    """The lowest MemAvailable of each step, oldest first."""
    step: float = 2.0

    @property
    def under(self) -> str:
        """The lowest floor that available memory is under: ``hard``, ``action``, ``soft`` or empty."""
        return under(self.available, self.total, Floors(self.action_floor, self.hard_floor, self.soft_floor))


TIMEOUT = 10.0
"""Seconds for one look at a node."""
LATE = 3.0
"""Seconds without an answer after which a node's last figures are not shown any more."""


def read_memory(spec: ClusterSpec, hosts: Mapping[str, ReadableHost]) -> list[NodeMemory]:
    """All nodes, in parallel, with a small probe. A node that does not answer is unknown."""
    return side_by_side(lambda node: _read(spec, node, hosts, TIMEOUT), spec.nodes, "memory")


class MemoryFeed:
    """Reads all nodes again and again. A node that does not answer holds up no other."""

    def __init__(
        self,
        spec: ClusterSpec,
        hosts: Mapping[str, ReadableHost],
        clock: Callable[[], float] = time.monotonic,
        timeout: float = 10.0,
    ) -> None:
        self._spec, self._hosts, self._clock, self._timeout = spec, hosts, clock, timeout
        self._under_way: dict[str, tuple[Later[NodeMemory], float]] = {}
        self._last: dict[str, NodeMemory] = {}

    def look(self, wait: float) -> list[NodeMemory]:
        """All nodes, after ``wait`` seconds at most; of those that did not answer, what is known."""
        end = self._clock() + wait
        for node in self._spec.nodes:
            if node.name not in self._under_way:
                call = partial(_read, self._spec, node, self._hosts, self._timeout)
                self._under_way[node.name] = Later(call, f"memory-{node.name}"), self._clock()
        return [self._now(node.name, end) for node in self._spec.nodes]

    def _now(self, node: str, end: float) -> NodeMemory:
        call, began = self._under_way[node]
        if call.ended(max(0.0, end - self._clock())):
            del self._under_way[node]
            self._last[node] = call.result()
        elif not (node in self._last and self._last[node].reason):  # why it failed stays until it answers
            waited = self._clock() - began
            if node not in self._last or waited >= LATE:
                return _blank(self._spec, node, f"no answer for {human_seconds(waited)}")
        return self._last[node]


def _read(spec: ClusterSpec, node: NodeSpec, hosts: Mapping[str, ReadableHost], timeout: float) -> NodeMemory:
    request = {
        "cluster": spec.name,
        "state": state_directory(spec, node),
        "labels": [f"{CLUSTER}={spec.name}"],
        "units": True,
    }
    try:
        return memory_of(spec, node.name, parse_document(hosts[node.name].probe(request, timeout=timeout)))
    except SparkopError as error:
        why = error.message.rstrip(".") + (f": {error.cause}" if error.cause else "")
        return _blank(spec, node.name, why)


def memory_of(spec: ClusterSpec, node: str, document: Document) -> NodeMemory:
    """Pure."""
    blank = _blank(spec, node, document.error("memory") or "")
    memory = document.memory
    state = _guard(spec, document)
    live = heartbeat(document) if state == "guarding" else {}
    samples = live.get("samples")
    floors = floors_of(spec, document)
    return replace(
        blank,
        soft_floor=floors.soft,
        action_floor=floors.action,
        hard_floor=floors.hard,
        total=memory.total if memory else None,
        available=memory.available if memory else None,
        free=memory.free if memory else None,
        cached=memory.cached if memory else None,
        guard=state,
        phase=str(live.get("phase") or ""),
        lowest=whole(live.get("lowest")),
        large_blocks=whole(live.get("large_blocks")),
        containers=_containers(live.get("containers")),
        samples=tuple(each << 20 for each in samples if isinstance(each, int))
        if isinstance(samples, list)
        else (),
    )


def _blank(spec: ClusterSpec, node: str, reason: str) -> NodeMemory:
    guard = spec.memory.guard
    return NodeMemory(node, int(guard.soft_floor), int(guard.action_floor), int(guard.hard_floor), reason)


def _guard(spec: ClusterSpec, document: Document) -> str:
    if document.docker is None and not document.units:
        return "unknown"
    found = [guard for guard, _ in ours(document, spec.name, ROLE_GUARD)]
    if not found:
        return "missing" if spec.memory.guard.enabled else "off"
    running = next((guard for guard in found if guard.running), None)
    if running is None:
        return found[0].state
    return "silent" if silence(running, document) > SILENT else "guarding"


def _containers(found: Any) -> tuple[ContainerMemory, ...]:
    named = [c for c in found if isinstance(c, dict)] if isinstance(found, list) else []
    return tuple(ContainerMemory(str(c.get("name")), whole(c.get("rss")) or 0) for c in named)
