"""The report of ``status``: nodes, resources, ranks, guard, memory, API. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sparkop.reconcile.observe import Reading
from sparkop.reconcile.plan import Plan

State = Literal["ok", "differs", "unknown"]


@dataclass(frozen=True)
class ResourceStatus:
    """One kind on one node. ``detail``: what differs, in words."""

    resource: str
    state: State
    detail: str = ""


@dataclass(frozen=True)
class RankStatus:
    """One rank container that was found or should be there. ``seconds``: how long it has run."""

    rank: int
    node: str
    container: str
    state: str
    """running, exited (N), missing, unknown, stale (of another configuration)."""
    epoch: str = ""
    seconds: float | None = None
    oom_killed: bool = False


@dataclass(frozen=True)
class GuardStatus:
    """The memory guard of a node. ``floor`` and ``trip_available`` in bytes."""

    state: str
    floor: int | None = None
    tripped_at: float | None = None
    trip_available: int | None = None
    advice: str = ""


@dataclass(frozen=True)
class NodeStatus:
    """One node. ``reason`` is set when it is unknown; memory in bytes."""

    node: str
    state: State
    reason: str = ""
    resources: tuple[ResourceStatus, ...] = ()
    guard: GuardStatus | None = None
    memory_total: int | None = None
    memory_available: int | None = None


@dataclass(frozen=True)
class Status:
    """The whole cluster."""

    cluster: str
    state: State
    nodes: tuple[NodeStatus, ...]
    ranks: tuple[RankStatus, ...]
    endpoint: str
    """What the API did (``resources.observed.Serving``)."""
    endpoint_detail: str
    url: str
    models: tuple[str, ...]
    key_path: str | None
    stopped_by_human: bool = False
    warnings: tuple[str, ...] = ()


def status_of(reading: Reading, plan: Plan) -> Status:
    """Say per node and resource what is as desired, what differs, and what is unknown. Pure."""
    raise NotImplementedError
