"""Remove what sparkop has made for a cluster: ranks, guards, transfers, images it pulled or built, its state
folder.

The checkpoint goes only when that is asked for (the command asks for a typed confirmation): it took hours.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from sparkop.errors import BlockedError, SparkopError
from sparkop.hosts.base import Host
from sparkop.reconcile.carry_out import carry_out
from sparkop.reconcile.history import entries_in
from sparkop.reconcile.lease import Held, hold, new_holder
from sparkop.reconcile.observe import Reading, observe
from sparkop.reconcile.plan import Plan
from sparkop.reconcile.stop import plan_stop, removed_by, unanswered
from sparkop.resources.base import Clock, RealClock, Resource
from sparkop.resources.events import Event, Listener, Phase, ignore
from sparkop.resources.made import IMAGE, PULLED, STATE, WEIGHTS, Made
from sparkop.resources.operations import Action, Cause, Cost, Operation
from sparkop.resources.registry import RESOURCES
from sparkop.resources.stamped import short_image
from sparkop.resources.state import HISTORY, history_damaged, owner_of
from sparkop.resources.weights import KIND as WEIGHTS_KIND
from sparkop.resources.weights_files import Checkpoint
from sparkop.spec.models import ClusterSpec

CAUSE = Cause("cluster", "present", "destroyed by you")


@dataclass(frozen=True)
class Destroyed:
    """What was removed, by node, in the plan's words; and the nodes that did not answer, and why."""

    removed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    interrupted: bool = False


def plan_destroy(reading: Reading, *, weights: bool) -> Plan:
    """After ranks and guards are gone: images and weights, then the state folder. Pure. Nothing where the
    Docker engine was not read."""
    operations: list[Operation] = []
    for name, node in reading.desired.nodes.items():
        document = reading.observed.documents[name]
        if document.docker is None:
            continue  # what still runs there needs its key, and its history to be found again
        own: list[Operation] = []
        pulled = [str(e["reference"]) for e in entries_in(document) if e.get("event") == PULLED]
        present = document.docker.images
        own += [
            _image(name, reference, reference)
            for reference in dict.fromkeys(r for r in pulled if present.get(r) is not None)
        ]
        own += [
            _image(name, image.id, short_image(image.id), spare=True) for image in document.docker.unnamed
        ]
        files = _weight_files(reading, name) if weights else []
        if files:
            size = document.weights.bytes if document.weights else 0
            cost = Cost(bytes=size)
            own.append(Operation(Action.REMOVE, name, WEIGHTS, CAUSE, cost, parameters={"files": files}))
        if document.state and owner_of(document) in (None, reading.desired.spec.name):
            before = tuple(operation.key for operation in own)
            own.append(
                Operation(Action.REMOVE, name, STATE, CAUSE, needs=before, parameters={"path": node.state})
            )
        operations += own
    return Plan(tuple(operations), unknown=tuple(reading.observed.unknown.values()))


def _image(node: str, reference: str, shown: str, *, spare: bool = False) -> Operation:
    """``spare``: it stays when somebody has begun to use it."""
    parameters = {"reference": reference, "spare": spare}
    return Operation(Action.REMOVE, node, f"{IMAGE}/{shown}", CAUSE, parameters=parameters)


def _weight_files(reading: Reading, node: str) -> list[str]:
    """The checkpoint's own files in its plain folder; other files there stay. Empty for a hub cache."""
    checkpoint = reading.desired.outside.get(WEIGHTS_KIND)
    if not isinstance(checkpoint, Checkpoint) or reading.desired.spec.weights.path is None:
        return []
    document = reading.observed.documents[node]
    if document.weights is None or not document.weights.exists:
        return []
    absent = set(document.weights.missing)
    folder = document.weights.directory
    return [f"{folder}/{file.path}" for file in checkpoint.files if file.path not in absent]


def destroy(
    spec: ClusterSpec,
    hosts: Mapping[str, Host],
    *,
    weights: bool = False,
    emit: Listener = ignore,
    stop: threading.Event | None = None,
    holder: str | None = None,
    clock: Clock | None = None,
    resources: Sequence[Resource] = RESOURCES,
) -> Destroyed:
    """Stop serving, then remove. Nodes that do not answer are in the result; run it again for them.

    Raises LeaseHeldError; BlockedError when something can't be removed.
    """
    clock, holder, stop = clock or RealClock(), holder or new_holder(), stop or threading.Event()
    look = partial(
        observe,
        spec,
        hosts,
        canary=False,
        render=False,
        clock=clock,
        resources=(*resources, Made()),
        emit=emit,
        stop=stop,
    )
    reading = look()
    _tell_damage(reading, emit)
    nodes = {operation.node for operation in _everything(reading, holder, weights)}
    if not nodes:
        return Destroyed(unknown=unanswered(reading))
    documents = {name: each for name, each in reading.observed.documents.items() if name in nodes}
    with hold(
        spec, hosts, documents, command="destroy", holder=holder, clock=clock, emit=emit, stop=stop
    ) as held:
        reading = look()
        plan = _on(nodes, plan_stop(reading, holder.partition("/")[0], clock.time()))
        outcome = carry_out(plan, reading, held, resources, emit=emit, stop=stop, clock=clock)
        if outcome.error is not None:
            raise outcome.error
        removed = removed_by(plan)
        interrupted = bool(outcome.skipped)
        if not interrupted:
            reading = look()
            plan = _on(nodes, plan_destroy(reading, weights=weights))
            interrupted = _remove(reading, plan, held, emit, stop, clock)
            for operation in plan.operations:
                removed.setdefault(operation.node, []).append(operation.resource)
    return Destroyed(_frozen(removed), unanswered(reading), interrupted)


def _everything(reading: Reading, holder: str, weights: bool) -> list[Operation]:
    """What shows that there is something of ours on a node; a mark that a stop would leave does not."""
    stopping = plan_stop(reading, holder, 0.0).operations
    removals = [operation for operation in stopping if operation.action is Action.REMOVE]
    return [*removals, *plan_destroy(reading, weights=weights).operations]


def _on(nodes: set[str], plan: Plan) -> Plan:
    """The part for nodes whose lease we hold; to look whether something is gone needs none."""
    kept = (o for o in plan.operations if o.node in nodes or o.action is Action.WAIT)
    return replace(plan, operations=tuple(kept))


def _tell_damage(reading: Reading, emit: Listener) -> None:
    for name, document in reading.observed.documents.items():
        if history_damaged(document):
            text = (
                f"{HISTORY} is damaged: which images were pulled for the cluster is not known, so they stay"
            )
            emit(Event(Phase.NOTE, node=name, text=text))
        owner = owner_of(document)
        if owner not in (None, reading.desired.spec.name):
            emit(Event(Phase.NOTE, node=name, text=f"the state folder is that of {owner}: it stays"))


def _remove(
    reading: Reading,
    plan: Plan,
    held: Held,
    emit: Listener,
    stop: threading.Event,
    clock: Clock,
) -> bool:
    """Everything but the state folders, then those: the lease lies in them, so it has to come last."""
    folders = tuple(operation for operation in plan.operations if operation.resource == STATE)
    others = tuple(operation for operation in plan.operations if operation.resource != STATE)
    outcome = carry_out(Plan(others), reading, held, [Made()], emit=emit, stop=stop, clock=clock)
    if outcome.error is None and not outcome.skipped:
        held.end_beats()
        outcome = carry_out(Plan(folders), reading, held, [Made()], emit=emit, stop=stop, clock=clock)
        held.forget(outcome.done_nodes(folders))
    if outcome.error is not None:
        raise _told(outcome.error)
    return bool(outcome.skipped)


def _told(error: BaseException) -> BaseException:
    if isinstance(error, SparkopError) and "ermission" in f"{error.message} {error.cause}":
        return BlockedError(
            error.message,
            node=error.node,
            cause=error.cause or "containers wrote there as root",
            remedy="remove it as root on the node, then run sparkop destroy again",
        )
    return error


def _frozen(removed: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(names) for name, names in removed.items()}
