# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""What the memory guard has left when it killed ranks: the same numbers are not launched again unasked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkop.hosts.base import Json
from sparkop.hosts.document import Document
from sparkop.resources.acts import remove_file
from sparkop.resources.base import Context, Difference
from sparkop.resources.compare import human_bytes
from sparkop.resources.desired import Desired
from sparkop.resources.observed import AGREED_TRIP, History, Observed, Trip
from sparkop.resources.operations import Action, Blocker, Cause, Operation
from sparkop.resources.stamped import same
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

KIND = "trip"
FILE = "trip.json"
ADVICE = "lower memory.kvCache or memory.gpuFraction before you raise the guard's floor"


class GuardTrip:
    """Blocks until the numbers change or a human confirms them; then the record is taken away."""

    kind = KIND

    def prepare(self, spec: ClusterSpec) -> Any:
        return None

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Json]:
        return {}

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        operations: list[Operation] = []
        blockers: list[Blocker] = []
        for name, trip in sorted(history.trips.items()):
            if name not in desired.nodes or not desired.ranks:
                continue
            told = f"killed the ranks at {human_bytes(trip.available)} available"
            unchanged = any(same(rank.container, trip.hash) for rank in desired.ranks)
            if unchanged and AGREED_TRIP not in history.agreed:
                cause = Cause("guard", told, f"never under {human_bytes(trip.floor)}")
                remedy = f"{ADVICE}; to launch the same numbers again: sparkop apply --after-trip"
                blockers.append(Blocker(name, KIND, cause, remedy))
            else:
                wanted = "confirmed by you" if unchanged else "other numbers"
                operations.append(Operation(Action.REMOVE, name, KIND, Cause("guard", told, wanted)))
        return Difference(tuple(operations), tuple(blockers))

    def perform(self, operation: Operation, context: Context) -> None:
        folder = context.desired.nodes[operation.node].state
        remove_file(context, operation.node, f"{folder}/{FILE}")


def trip_in(node: str, document: Document) -> Trip | None:
    """The guard's record on a node; None when there is none that can be read."""
    record = (document.state or {}).get(FILE)
    if not isinstance(record, dict):
        return None
    try:
        hashes = record.get("hashes") or []
        return Trip(
            node=node,
            hash=str(hashes[0]) if hashes else "",
            at=float(record["at"]),
            available=int(record["available"]),
            floor=int(record["floor"]),
        )
    except (KeyError, TypeError, ValueError):
        return None
