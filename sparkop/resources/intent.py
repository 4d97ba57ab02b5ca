# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""What a human last asked for: ``stop`` leaves a mark on every node, which holds ``watch`` back.

``apply`` is a human's wish to serve again, so for it the mark is a difference like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkop.hosts.base import Json
from sparkop.hosts.document import Document
from sparkop.resources.base import Context, Difference
from sparkop.resources.desired import Desired
from sparkop.resources.observed import History, Intent, Observed
from sparkop.resources.operations import Action, Cause, Operation
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

KIND = "intent"
FILE = "intent.json"


class HumanIntent:
    """Takes the mark of a stop away; ``stop`` plans the operation that leaves it."""

    kind = KIND

    def prepare(self, spec: ClusterSpec) -> Any:
        return None

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Json]:
        return {}

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        marks = ((name, intent_in(observed.documents[name])) for name in desired.nodes)
        return Difference(
            tuple(
                Operation(Action.REMOVE, name, KIND, Cause("intent", f"stopped by {mark.by}", "serving"))
                for name, mark in marks
                if mark.stopped
            )
        )

    def perform(self, operation: Operation, context: Context) -> None:
        mark = None
        if operation.action is Action.RECORD:
            mark = Intent(True, str(operation.parameters["by"]), float(operation.parameters["at"]))
        document = None if mark is None else {"stopped": mark.stopped, "by": mark.by, "at": mark.at}
        context.host(operation.node).act(
            "intent.write", {"document": document}, context.fence(operation.node)
        )


def intent_in(document: Document) -> Intent:
    """The mark on one node; none when there is no readable one."""
    mark = (document.state or {}).get(FILE)
    if not isinstance(mark, dict) or not mark.get("stopped"):
        return Intent()
    at = mark.get("at")
    return Intent(True, str(mark.get("by") or "someone"), float(at) if isinstance(at, int | float) else 0.0)
