# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""The state folder of the cluster on every node: who owns it, and the programs in it."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from sparkop.engines.paths import cache_directory, key_path, weights_directory
from sparkop.hosts.base import Json
from sparkop.hosts.document import Document, Ground
from sparkop.resources import intent, trip
from sparkop.resources.acts import mend_history, write_file
from sparkop.resources.base import Context, Difference, Resource
from sparkop.resources.compare import unread
from sparkop.resources.desired import Desired, DesiredNode
from sparkop.resources.guard import program, program_file
from sparkop.resources.labels import CLUSTER, ROLE
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Action, Blocker, Cause, Operation, Unknown
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

KIND = "state"
PROGRAM = "memguard.py"
"""How plans call the guard's program; its file has the hash of its content in its name."""
OWNER = "cluster.json"
"""Says whose folder it is: two clusters must not share one."""


HISTORY = "history.json"
LEASE = "lease.json"
MARKS = (OWNER, trip.FILE, intent.FILE, HISTORY)
"""Files that may forbid something: where one of them can't be read, nothing is known."""


class StateFiles(Resource):
    """The owner's mark makes the folder; then the guard's program."""

    kind = KIND

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Json]:
        ground: Json = {"apart": weights_directory(spec, node), "ours": named_within(spec, node)}
        return {"files": [program_file()], "ground": ground}

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        operations: list[Operation] = []
        blockers: list[Blocker] = []
        unknown: list[Unknown] = []
        warnings: list[str] = []
        for node in desired.nodes.values():
            document = observed.documents[node.name]
            if LEASE in (document.state or {}) and not isinstance((document.state or {})[LEASE], dict):
                warnings.append(
                    f"{node.name}: {LEASE} is damaged: nothing can be changed: sparkop lease break"
                )
            missing = next((s for s in ("state", "files", "ground") if getattr(document, s) is None), None)
            if missing is not None:
                unknown.append(unread(document, missing, node.name, KIND))
                continue
            problems = [Unknown(node.name, why, KIND) for why in _unreadable(document)]
            unseen = document.error("files", program_file())
            problems += [Unknown(node.name, f"{program_file()}: {unseen}", KIND)] if unseen else []
            if problems:
                unknown += problems
                continue
            owner = owner_of(document)
            if owner not in (None, desired.spec.name):
                blockers.append(_taken(node, str(owner), desired.spec.name))
            elif owner is None and OWNER in (document.state or {}):
                blockers.append(_unowned(node, desired.spec.name))
            elif document.ground and document.ground.apart:
                blockers.append(_holds_weights(node, document.ground.apart))
            elif document.ground and document.ground.foreign and not document.ground.owned:
                blockers.append(_not_ours(node, document.ground))
            else:
                operations += _operations(node, document, desired.spec.name)
        return Difference(tuple(operations), tuple(blockers), tuple(unknown), tuple(warnings))

    def perform(self, operation: Operation, context: Context) -> None:
        name = operation.resource.partition("/")[2]
        folder = context.desired.nodes[operation.node].state
        if name == PROGRAM:
            write_file(context, operation.node, f"{folder}/{program_file()}", program())
        elif name == HISTORY:
            mend_history(context, operation.node)
        else:
            mark = owner_mark(context.desired.spec.name)
            write_file(context, operation.node, f"{folder}/{name}", mark, aside=True)


def named_within(spec: ClusterSpec, node: NodeSpec) -> list[Json]:
    """Paths that the spec names and sparkop writes; they may lie in the state folder."""
    return [cache_directory(spec, node), *([key_path(spec)] if node == spec.head else [])]


def owner_mark(cluster: str) -> bytes:
    """Content of ``cluster.json``."""
    return json.dumps({"version": 1, "cluster": cluster}, sort_keys=True).encode() + b"\n"


def entries_in(document: Document) -> list[dict[str, Any]]:
    """The entries of a node's history, oldest first; those that are no mapping are left out."""
    history = (document.state or {}).get(HISTORY)
    entries = history.get("entries") if isinstance(history, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def history_damaged(document: Document) -> bool:
    """There is a history, and it can't be understood."""
    found = (document.state or {}).get(HISTORY, {"entries": []})
    return not (isinstance(found, dict) and isinstance(found.get("entries"), list))


def _unreadable(document: Document) -> list[str]:
    """Which marks can't be read. No mark is an answer, and so is a damaged one; silence is none."""
    problems = ((name, document.error("state", name)) for name in MARKS)
    return [f"{name}: {problem}" for name, problem in problems if problem is not None]


def owner_of(document: Document) -> str | None:
    """The cluster whose state folder this is; None when nothing tells."""
    return _owner(document) or _witness(document)


def _owner(document: Document) -> str | None:
    mark = (document.state or {}).get(OWNER)
    return str(mark["cluster"]) if isinstance(mark, dict) and "cluster" in mark else None


def _witness(document: Document) -> str | None:
    """Whose a folder with a damaged mark is: the lease beside it says so, else the containers of the node do
    when they are of one cluster. None when neither does, or the mark is not damaged."""
    state = document.state or {}
    if OWNER not in state:
        return None
    lease = state.get(LEASE)
    if isinstance(lease, dict) and isinstance(lease.get("cluster"), str):
        return str(lease["cluster"])
    found = document.docker.containers if document.docker else ()
    clusters = {c.labels[CLUSTER] for c in found if c.labels.get(CLUSTER) and c.labels.get(ROLE)}
    return clusters.pop() if len(clusters) == 1 else None


def _taken(node: DesiredNode, owner: str, cluster: str) -> Blocker:
    return Blocker(
        node.name,
        KIND,
        Cause("stateDirectory", f"belongs to {owner}", f"belongs to {cluster}"),
        f"{node.state} is the state folder of another cluster: give this one another stateDirectory",
    )


def _unowned(node: DesiredNode, cluster: str) -> Blocker:
    path = shlex.quote(f"{node.state}/{OWNER}")
    return Blocker(
        node.name,
        KIND,
        Cause(OWNER, "damaged, and nothing else tells whose folder it is", f"belongs to {cluster}"),
        f"if the folder is {cluster}'s, there: mv {path} {path}.damaged, then sparkop apply",
    )


def _holds_weights(node: DesiredNode, weights: str) -> Blocker:
    return Blocker(
        node.name,
        KIND,
        Cause("stateDirectory", f"{weights} lies within it", "the checkpoint lies elsewhere"),
        f"name a place outside {node.state} for the weights, and move what is there: "
        "destroy removes that folder",
    )


def _not_ours(node: DesiredNode, ground: Ground) -> Blocker:
    return Blocker(
        node.name,
        KIND,
        Cause(
            "stateDirectory",
            f"has files that are not sparkop's ({first_of(ground.foreign)})",
            "a folder of its own",
        ),
        f"name a folder of its own in stateDirectory, or move what is not sparkop's out of {node.state}",
    )


def first_of(names: Sequence[str]) -> str:
    """In words: the first three, and how many more."""
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")


def _operations(node: DesiredNode, document: Document, cluster: str) -> list[Operation]:
    operations = []
    state = document.state or {}
    if OWNER not in state:
        mark = Operation(Action.CREATE, node.name, f"{KIND}/{OWNER}", Cause(node.state, "absent", "present"))
        operations.append(mark)
    elif _owner(document) is None:
        cause = Cause(
            OWNER, "damaged", f"{cluster}, as its lease or containers say; the damaged file is kept"
        )
        operations.append(Operation(Action.UPDATE, node.name, f"{KIND}/{OWNER}", cause))
    if history_damaged(document):
        cause = Cause(HISTORY, "damaged", "begun anew; the damaged file is kept")
        operations.append(Operation(Action.UPDATE, node.name, f"{KIND}/{HISTORY}", cause))
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
