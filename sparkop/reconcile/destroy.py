"""Remove what sparkop has made for a cluster: ranks, guards, transfers, images it pulled, its state folder.

The checkpoint goes only when that is asked for (the command asks for a typed confirmation): it took hours.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from sparkop.errors import BlockedError, LeaseHeldError, SparkopError
from sparkop.hosts.base import Host
from sparkop.reconcile.execute import execute
from sparkop.reconcile.history import entries_in
from sparkop.reconcile.lease import Held, hold, new_holder
from sparkop.reconcile.observe import Reading, observe
from sparkop.reconcile.plan import Plan
from sparkop.reconcile.stop import Stopped, plan_stop, stop_serving, unanswered
from sparkop.resources.base import Clock, Context, RealClock, Resource
from sparkop.resources.events import Event, Listener, Phase, ignore
from sparkop.resources.made import IMAGE, PULLED, STATE, WEIGHTS, Made
from sparkop.resources.operations import Action, Cause, Cost, Operation
from sparkop.resources.registry import RESOURCES
from sparkop.resources.state import HISTORY, history_damaged, owner_of
from sparkop.resources.threads import AnyOf
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
    """After ranks and guards are gone: images and weights, then the state folder. Pure."""
    operations: list[Operation] = []
    for name, node in reading.desired.nodes.items():
        document = reading.observed.documents[name]
        own: list[Operation] = []
        pulled = [str(e["reference"]) for e in entries_in(document) if e.get("event") == PULLED]
        present = document.docker.images if document.docker else {}
        for reference in dict.fromkeys(r for r in pulled if present.get(r) is not None):
            own.append(
                Operation(
                    Action.REMOVE,
                    name,
                    f"{IMAGE}/{reference}",
                    CAUSE,
                    parameters={"reference": reference},
                )
            )
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
    clock, holder = clock or RealClock(), holder or new_holder()
    look = partial(
        observe,
        spec,
        hosts,
        canary=False,
        render=False,
        clock=clock,
        resources=resources,
        emit=emit,
        stop=stop,
    )
    reading = look()
    _tell_damage(reading, emit)
    stopped = Stopped(unknown=unanswered(reading))
    if any(operation.action is Action.REMOVE for operation in plan_stop(reading, holder, 0.0).operations):
        stopped = stop_serving(
            spec, hosts, emit=emit, stop=stop, holder=holder, clock=clock, resources=resources
        )
        reading = look()
    removed = {name: list(names) for name, names in stopped.removed.items()}
    if stopped.interrupted:
        return Destroyed(_frozen(removed), stopped.unknown, interrupted=True)
    plan = plan_destroy(reading, weights=weights)
    interrupted = False
    if plan.operations:
        documents = {
            name: document
            for name, document in reading.observed.documents.items()
            if any(operation.node == name for operation in plan.operations)
        }
        with hold(
            spec, hosts, documents, command="destroy", holder=holder, clock=clock, emit=emit, stop=stop
        ) as held:
            interrupted = _remove(reading, plan, held, hosts, emit, stop or threading.Event(), clock)
    for operation in plan.operations:
        removed.setdefault(operation.node, []).append(operation.resource)
    return Destroyed(_frozen(removed), stopped.unknown, interrupted)


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
    hosts: Mapping[str, Host],
    emit: Listener,
    stop: threading.Event,
    clock: Clock,
) -> bool:
    """Everything but the state folders, then those: the lease lies in them, so it has to come last."""
    either = AnyOf(stop, held.lost)
    context = Context(reading.desired, reading.observed, hosts, held.fences, emit, stop=either, clock=clock)
    folders = tuple(operation for operation in plan.operations if operation.resource == STATE)
    others = tuple(operation for operation in plan.operations if operation.resource != STATE)
    outcome = execute(Plan(others), context, [Made()])
    if held.lost.is_set():
        raise LeaseHeldError("another sparkop has taken the lease", remedy="sparkop lease show")
    if outcome.error is None and not outcome.skipped:
        held.end_beats()
        outcome = execute(Plan(folders), context, [Made()])
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
