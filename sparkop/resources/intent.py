# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""What a human last asked for: ``stop`` leaves a mark on every node, which holds ``watch`` back.

``apply`` is a human's wish to serve again, so for it the mark is a difference like any other. A damaged mark
counts as a stop: nothing else ever leaves one.
"""

from __future__ import annotations

from sparkop.hosts.base import Json
from sparkop.hosts.document import Document
from sparkop.resources.acts import keep_in_story, remove_file
from sparkop.resources.base import Context, Difference, Resource
from sparkop.resources.desired import Desired
from sparkop.resources.observed import History, Intent, Observed
from sparkop.resources.operations import Action, Cause, Operation

KIND = "intent"
FILE = "intent.json"
STOP = "stop"
"""The event in the history."""


class HumanIntent(Resource):
    """Takes the mark of a stop away; ``stop`` plans the operation that leaves it."""

    kind = KIND

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        marks = ((name, intent_in(observed.documents[name])) for name in desired.nodes)
        return Difference(
            tuple(
                Operation(
                    Action.REMOVE,
                    name,
                    KIND,
                    Cause("intent", f"stopped by {mark.by}", "serving"),
                    parameters={"damaged": mark.damaged},
                )
                for name, mark in marks
                if mark.stopped
            )
        )

    def perform(self, operation: Operation, context: Context) -> None:
        if operation.parameters.get("damaged"):
            folder = context.desired.nodes[operation.node].state
            remove_file(context, operation.node, f"{folder}/{FILE}", aside=True)
            return
        mark = None
        if operation.action is Action.RECORD:
            asked = operation.parameters
            destroys = bool(asked.get("destroys"))
            mark = Intent(True, str(asked["by"]), float(asked["at"]), destroys=destroys)
        else:
            keep_in_story(context, entry_of(intent_in(context.observed.documents[operation.node])))
        document = None if mark is None else _document(mark)
        context.host(operation.node).act(
            "intent.write", {"document": document}, context.fence(operation.node)
        )


def _document(mark: Intent) -> dict[str, Json]:
    destroys: dict[str, Json] = {"destroys": True} if mark.destroys else {}
    return {"stopped": mark.stopped, "by": mark.by, "at": mark.at, **destroys}


def entry_of(mark: Intent) -> dict[str, Json]:
    """A stop as the history keeps it: the same on every node that has its mark."""
    return {"id": f"{STOP}-{mark.at:.0f}", "event": STOP, "by": mark.by, "at": mark.at}


def intent_in(document: Document) -> Intent:
    """The mark on one node; none when there is none."""
    state = document.state or {}
    if FILE not in state:
        return Intent()
    mark = state[FILE]
    if not isinstance(mark, dict) or not isinstance(mark.get("stopped"), bool):
        return Intent(True, f"someone ({FILE} is damaged)", damaged=True)
    if not mark["stopped"]:
        return Intent()
    at, by = mark.get("at"), str(mark.get("by") or "someone")
    told = float(at) if isinstance(at, int | float) else 0.0
    return Intent(True, by, told, destroys=mark.get("destroys") is True)
