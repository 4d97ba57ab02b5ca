"""Stop serving, and remember that a human wanted it so."""

from __future__ import annotations

import threading
from collections.abc import Container, Mapping, Sequence
from dataclasses import field, replace

from sparkop.errors import SparkopError
from sparkop.hosts import silent_docker
from sparkop.hosts.base import Host
from sparkop.hosts.document import Document
from sparkop.reconcile.carry_out import carry_out
from sparkop.reconcile.history import applied_on
from sparkop.reconcile.lease import hold, new_holder, who_of
from sparkop.reconcile.observe import Reading, observe
from sparkop.reconcile.plan import Plan
from sparkop.records import dataclass
from sparkop.resources.base import Clock, RealClock, Resource
from sparkop.resources.events import Listener, ignore
from sparkop.resources.group import Group, found_ranks
from sparkop.resources.intent import intent_in
from sparkop.resources.labels import ROLE_GUARD, ours
from sparkop.resources.memguard import removal_of
from sparkop.resources.operations import Action, Cause, Operation, with_remedy
from sparkop.resources.rank import removals_of, waiting_for
from sparkop.resources.registry import GROUP_RESOURCES, RESOURCES
from sparkop.resources.state import LEASE
from sparkop.spec.models import ClusterSpec
from sparkop.threads import AnyOf

CAUSE = Cause("intent", "serving", "stopped by you")


@dataclass(frozen=True)
class Refusal:
    """A node that answers, and on which nothing could be done: what still runs there, and what to do."""

    reason: str
    runs: tuple[str, ...]
    remedy: str


@dataclass(frozen=True)
class Stopped:
    """What was removed, by node, and how much memory each node has now (bytes; MemAvailable)."""

    removed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    available: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Nodes that did not answer, and why: their containers may still run."""
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    """Nodes whose state folder can't be written: no lease, so nothing was touched there."""
    interrupted: bool = False
    already: bool = False
    """Nothing ran, and the human's wish was written down before."""
    absent: bool = False
    """Destroyed, or never applied: nothing ran, and nothing was written."""


def plan_stop(
    reading: Reading, by: str, at: float, without: Container[str] = (), *, destroys: bool = False
) -> Plan:
    """First the mark of the human's wish, then ranks (head first) and guards, then the look that all is gone.

    Pure. Only for nodes whose Docker engine was read and that have something of the cluster; not for those
    of ``without``. ``destroys``: a destroy goes on from there, which the marks tell of until it has ended.
    """
    desired, observed = reading.desired, reading.observed
    nodes = [
        name for name, found in _there(reading).items() if found.docker is not None and name not in without
    ]
    mark = {"by": by, "at": at, **({"destroys": True} if destroys else {})}
    marks = [
        Operation(Action.RECORD, name, "intent", CAUSE, parameters=mark)
        for name in nodes
        if not _marked(observed.documents[name], destroys)
    ]
    marked = tuple(operation.key for operation in marks)
    group = Group(tuple(f for f in found_ranks(desired, observed) if f.node in nodes))
    removals = removals_of(desired, group, CAUSE, marked)
    ranks_gone = [operation.key for operation in removals]
    guards = [
        replace(
            removal_of("", name, guard, CAUSE),
            needs=(*marked, *(o.key for o in removals if o.node == name)),
        )
        for name in nodes
        for guard, _ in ours(observed.documents[name], desired.spec.name, ROLE_GUARD)
    ]
    waits = [waiting_for(nodes, ranks_gone, nodes[0])] if removals else []
    return Plan((*marks, *removals, *guards, *waits), unknown=tuple(observed.unknown.values()))


def _there(reading: Reading) -> dict[str, Document]:
    """Nodes that were read, but none where the cluster was destroyed, or never applied: a mark, or a lease,
    would make its state folder again."""
    documents = ((name, reading.observed.documents[name]) for name in reading.desired.nodes)
    cluster = reading.desired.spec.name
    return {
        name: document
        for name, document in documents
        if applied_on(cluster, document) is not False or _is_held(document)
    }


def _is_held(document: Document) -> bool:
    """Somebody works there, who may be about to apply; or a damaged lease does not tell."""
    lease = (document.state or {}).get(LEASE, {"released": True})
    return not isinstance(lease, dict) or not lease.get("released")


def _marked(document: Document, destroys: bool) -> bool:
    mark = intent_in(document)
    return mark.stopped and not mark.damaged and (mark.destroys or not destroys)


def stop_serving(
    spec: ClusterSpec,
    hosts: Mapping[str, Host],
    *,
    emit: Listener = ignore,
    stop: threading.Event | None = None,
    holder: str | None = None,
    clock: Clock | None = None,
    resources: Sequence[Resource] = RESOURCES,
) -> Stopped:
    """Remove ranks and guards on every node that answers, check that they are gone and memory is back.

    Raises LeaseHeldError; BlockedError when a container stays, memory does not come back, or no node at all
    can be written. Nodes that do not answer, or whose state folder can't be written, are in the result (the
    command's exit code is 4 or 6 then): a group without one rank serves nobody, so the others are stopped.
    """
    clock, stop = clock or RealClock(), stop or threading.Event()
    holder = holder or new_holder()
    reading = _look(spec, hosts, clock, emit, stop)
    plan = plan_stop(reading, who_of(holder), clock.time())
    interrupted = False
    refused: Mapping[str, SparkopError] = {}
    for again in (True, False) if plan.operations else ():
        documents = _there(reading)
        with hold(
            spec,
            hosts,
            documents,
            command="stop",
            holder=holder,
            clock=clock,
            emit=emit,
            stop=stop,
            spare=True,
        ) as held:
            refused = held.refused
            reading = _look(spec, hosts, clock, emit, AnyOf(stop, held.lost))
            if again and _there(reading).keys() - documents.keys():
                continue  # a node has come back: it takes the lease with the others
            plan = plan_stop(reading, holder.partition("/")[0], clock.time(), refused)
            outcome = carry_out(plan, reading, held, resources, emit=emit, stop=stop, clock=clock)
            if outcome.error is not None:
                raise outcome.error
            interrupted = bool(outcome.skipped)
            if not interrupted:
                reading = _look(spec, hosts, clock, emit, stop)
            break
    return _stopped(reading, plan, interrupted, refused)


def _look(
    spec: ClusterSpec,
    hosts: Mapping[str, Host],
    clock: Clock,
    emit: Listener,
    stop: threading.Event | None = None,
) -> Reading:
    """What runs is found by its labels: whatever else is away or refused, serving can be stopped."""
    return observe(
        spec,
        hosts,
        canary=False,
        render=False,
        clock=clock,
        resources=GROUP_RESOURCES,
        emit=emit,
        stop=stop,
    )


def _stopped(reading: Reading, plan: Plan, interrupted: bool, refused: Mapping[str, SparkopError]) -> Stopped:
    removed = removed_by(plan)
    documents = reading.observed.documents
    unknown = unanswered(reading)
    nothing = not plan.operations and not unknown and not refused
    absent = nothing and not _there(reading)
    return Stopped(
        removed={name: tuple(names) for name, names in removed.items()},
        available={n: d.memory.available for n, d in documents.items() if d.memory is not None},
        unknown=unknown,
        refused={name: _refusal(reading, name, refused[name]) for name in documents if name in refused},
        interrupted=interrupted,
        already=nothing and not absent,
        absent=absent,
    )


def _refusal(reading: Reading, node: str, error: SparkopError) -> Refusal:
    ranks = found_ranks(reading.desired, reading.observed)
    runs = tuple(each.container.name for each in ranks if each.node == node and each.container.running)
    remedy = error.remedy or f"make {reading.desired.nodes[node].state} writable there"
    by_hand = f"; or by hand, there: docker rm -f {' '.join(runs)}" if runs else ""
    return Refusal(error.message, runs, f"{remedy}; then sparkop stop again{by_hand}")


def removed_by(plan: Plan) -> dict[str, list[str]]:
    """Names of what a plan of ``plan_stop`` removes, by node."""
    removed: dict[str, list[str]] = {}
    for operation in plan.operations:
        if operation.action is Action.REMOVE:
            removed.setdefault(operation.node, []).append(str(operation.parameters["name"]))
    return removed


def unanswered(reading: Reading) -> dict[str, str]:
    """Nodes, or Docker engines, that could not be read, and why."""
    found = {name: each.told for name, each in reading.observed.unknown.items()}
    for name, document in reading.observed.documents.items():
        if document.docker is None:
            found[name] = with_remedy(silent_docker.why(document), silent_docker.remedy(document))
        elif document.units is None:
            found[name] = document.error("units") or "its units could not be read"
    return found
