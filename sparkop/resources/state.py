# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""The state folder of the cluster on every node: who owns it, and the programs in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from sparkop.hosts.base import Json
from sparkop.hosts.document import Document
from sparkop.resources import intent, trip
from sparkop.resources.acts import write_file
from sparkop.resources.base import Context, Difference
from sparkop.resources.compare import unread
from sparkop.resources.desired import Desired, DesiredNode
from sparkop.resources.guard import program, program_file
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Action, Blocker, Cause, Operation, Unknown
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

KIND = "state"
PROGRAM = "memguard.py"
"""How plans call the guard's program; its file has the hash of its content in its name."""
OWNER = "cluster.json"
"""Says whose folder it is: two clusters must not share one."""


MARKS: Mapping[str, Callable[[Document], bool]] = {
    OWNER: lambda document: _owner(document) is not None,
    trip.FILE: lambda document: trip.trip_in("", document) is not None,
    intent.FILE: lambda document: isinstance((document.state or {}).get(intent.FILE), dict),
}
"""Files that forbid something, and whether what was read is whole."""


class StateFiles:
    """The owner's mark makes the folder; then the guard's program."""

    kind = KIND

    def prepare(self, spec: ClusterSpec) -> Any:
        return None

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Json]:
        return {"files": [program_file()]}

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        operations: list[Operation] = []
        blockers: list[Blocker] = []
        unknown: list[Unknown] = []
        for node in desired.nodes.values():
            document = observed.documents[node.name]
            missing = next((s for s in ("state", "files") if getattr(document, s) is None), None)
            if missing is not None:
                unknown.append(unread(document, missing, node.name, KIND))
                continue
            problems = [Unknown(node.name, why, KIND) for why in _unreadable(document)]
            unseen = document.error("files", program_file())
            problems += [Unknown(node.name, f"{program_file()}: {unseen}", KIND)] if unseen else []
            if problems:
                unknown += problems
                continue
            owner = _owner(document)
            if owner not in (None, desired.spec.name):
                blockers.append(_taken(node, str(owner), desired.spec.name))
                continue
            operations += _operations(node, document, owner)
        return Difference(tuple(operations), tuple(blockers), tuple(unknown))

    def perform(self, operation: Operation, context: Context) -> None:
        name = operation.resource.partition("/")[2]
        folder = context.desired.nodes[operation.node].state
        if name == PROGRAM:
            write_file(context, operation.node, f"{folder}/{program_file()}", program())
        else:
            write_file(context, operation.node, f"{folder}/{name}", owner_mark(context.desired.spec.name))


def owner_mark(cluster: str) -> bytes:
    """Content of ``cluster.json``."""
    return json.dumps({"version": 1, "cluster": cluster}, sort_keys=True).encode() + b"\n"


def _unreadable(document: Document) -> list[str]:
    """Which marks can't be read. No mark is an answer; a damaged one is none: it may say "do not start"."""
    told = []
    for name, whole in MARKS.items():
        problem = document.error("state", name)
        if problem is None and name in (document.state or {}) and not whole(document):
            problem = "it is damaged"
        if problem is not None:
            told.append(f"{name}: {problem}: read it, and remove it when it says nothing that matters")
    return told


def _owner(document: Document) -> str | None:
    mark = (document.state or {}).get(OWNER)
    return str(mark["cluster"]) if isinstance(mark, dict) and "cluster" in mark else None


def _taken(node: DesiredNode, owner: str, cluster: str) -> Blocker:
    return Blocker(
        node.name,
        KIND,
        Cause("stateDirectory", f"belongs to {owner}", f"belongs to {cluster}"),
        f"{node.state} is the state folder of another cluster: give this one another stateDirectory",
    )


def _operations(node: DesiredNode, document: Document, owner: str | None) -> list[Operation]:
    operations = []
    if owner is None:
        mark = Operation(Action.CREATE, node.name, f"{KIND}/{OWNER}", Cause(node.state, "absent", "present"))
        operations.append(mark)
    if node.guard is not None:
        found = (document.files or {}).get(program_file())
        wanted = hashlib.sha256(program()).hexdigest()
        if found is None or found.sha256 != wanted:
            operations.append(
                Operation(
                    Action.CREATE if found is None else Action.UPDATE,
                    node.name,
                    f"{KIND}/{PROGRAM}",
                    Cause("program", "absent" if found is None else "another", "as this sparkop has it"),
                    needs=tuple(o.key for o in operations),
                )
            )
    return operations
