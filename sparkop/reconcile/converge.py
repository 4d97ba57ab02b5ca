"""Observe, reconcile, execute, until nothing is left, or something blocks."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from sparkop.errors import (
    BlockedError,
    DeclinedError,
    InTheWayError,
    SparkopError,
    UnreachableError,
    WaitInterruptedError,
)
from sparkop.hosts.base import Host
from sparkop.hosts.document import Document
from sparkop.reconcile.carry_out import carry_out, context_of
from sparkop.reconcile.execute import Outcome
from sparkop.reconcile.history import CLEARED, counts_against
from sparkop.reconcile.lease import Held, hold, new_holder
from sparkop.reconcile.observe import Reading, observe
from sparkop.reconcile.plan import GROUP, Plan
from sparkop.reconcile.reconcile import reconcile
from sparkop.reconcile.refuse import refuse
from sparkop.records import dataclass
from sparkop.resources import trip
from sparkop.resources.acts import record
from sparkop.resources.base import Clock, RealClock, Resource
from sparkop.resources.compare import counted
from sparkop.resources.endpoint import KIND as ENDPOINT
from sparkop.resources.events import Event, Listener, Phase, ignore
from sparkop.resources.group import unrecorded
from sparkop.resources.labels import Stamp
from sparkop.resources.observed import AGREED_ADOPT, AGREED_TRIP
from sparkop.resources.operations import Blocker, Operation, Unknown, kind_of, with_remedy
from sparkop.resources.ready import record_ready
from sparkop.resources.registry import RESOURCES
from sparkop.serving.canary import EndpointState
from sparkop.spec.models import ClusterSpec
from sparkop.threads import AnyOf

Approve = Callable[[Plan], bool]
"""Asked once, with the first plan that stops serving or removes what is not ours; False: it is not done."""

LONG = ("image", "weights", *GROUP)
"""Kinds whose operations can take minutes or hours."""
OF_THE_NODES = ("prerequisites", "fabric", "disk", "foreign", "state")
"""Kinds whose blockers are of the nodes, whatever a spec asks of them."""
MOST_TIMES = 2
"""How often one operation may be done for the same cause in one run before sparkop gives up."""
MOST_CAUSES = 5
"""The same whatever the cause: a build context with a log in it is another one at every look."""


@dataclass(frozen=True)
class Converged:
    """The end of an apply. ``operations`` counts what was done (0: it was converged already).

    ``interrupted``: the user asked to stop; ``left`` is what was not done then.
    """

    reading: Reading
    operations: int
    interrupted: bool = False
    left: tuple[Operation, ...] = ()


def converge(
    spec: ClusterSpec,
    hosts: Mapping[str, Host],
    *,
    emit: Listener = ignore,
    stop: threading.Event | None = None,
    approve: Approve | None = None,
    holder: str | None = None,
    command: str = "apply",
    confirm_trip: bool = False,
    adopt: bool = False,
    clock: Clock | None = None,
    resources: Sequence[Resource] = RESOURCES,
) -> Converged:
    """What ``apply`` does. The lease is taken only when there is something to do or to write down, and given
    back always.

    ``confirm_trip``: launch again the numbers that the memory guard has stopped. ``adopt``: replace
    containers that have the ranks' names but are not sparkop's.

    Raises UnreachableError (a node is unknown; everything else that could be done was done), LeaseHeldError,
    BlockedError (with remedy; a rank died; the user said no) and TimedOutError. After ``stop`` was set it
    returns once running work has ended; WaitInterruptedError when nodes were only being read then.
    """
    agreed = frozenset(word for word, given in ((AGREED_TRIP, confirm_trip), (AGREED_ADOPT, adopt)) if given)
    clock, stop = clock or RealClock(), stop or threading.Event()
    run = _Run(spec, hosts, emit, stop, agreed, clock, resources, approve, command)
    reading, plan = run.look()
    if not plan.operations:
        remains(plan, command)
        if not run.owes(reading):
            return Converged(reading, 0)
    run.ask(plan)
    holder = holder or new_holder()
    while True:
        with hold(
            spec,
            hosts,
            lease_nodes(reading, plan),
            command=command,
            holder=holder,
            clock=run.clock,
            emit=emit,
            stop=run.stop,
        ) as held:
            converged = run.until_done(held)
        if converged is not None:
            return converged
        reading, plan = run.look()


class _Run:
    def __init__(
        self,
        spec: ClusterSpec,
        hosts: Mapping[str, Host],
        emit: Listener,
        stop: threading.Event,
        agreed: frozenset[str],
        clock: Clock,
        resources: Sequence[Resource],
        approve: Approve | None,
        command: str,
    ) -> None:
        self.spec = spec
        self.hosts = hosts
        self.emit = emit
        self.stop = stop
        self.agreed = agreed
        self.clock = clock
        self.resources = resources
        self.approve = approve
        self.command = command
        self.believed: EndpointState | None = None
        self.done = 0
        self.came_back: set[str] = set()
        self.summary: Event | None = None
        self.noted: set[tuple[str, str | None]] = set()
        self.times: Counter[tuple[str, str]] = Counter()

    def look(self, lost: threading.Event | None = None) -> tuple[Reading, Plan]:
        """One observation and its plan, told to the listener. Ends when the lease is ``lost``."""
        reading = observe(
            self.spec,
            self.hosts,
            agreed=self.agreed,
            clock=self.clock,
            resources=self.resources,
            emit=self.emit,
            stop=self.stop if lost is None else AnyOf(self.stop, lost),
            believed=self.believed,
        )
        self.believed = reading.observed.endpoint
        refuse(self.spec, reading.desired, self.hosts[self.spec.head.name])
        plan = reconcile(
            reading.desired, reading.observed, reading.history, self.clock.time(), self.resources
        )
        read = f"read {len(reading.observed.documents)} of {len(self.spec.nodes)} nodes"
        summary = Event(Phase.PLANNED, text=f"{read}: {_summary(plan)}")
        if summary != self.summary:
            self.summary = summary
            self.emit(summary)
        for warning in plan.warnings:
            self.note(f"warning: {warning}")
        goes_on = any(kind_of(operation.resource) in LONG for operation in plan.operations)
        for blocker in plan.blockers if goes_on else ():  # else it is told at once, as what ends the run
            self.note(f"blocked: {with_remedy(_told(blocker), blocker.remedy)}", blocker.node)
        return reading, plan

    def note(self, text: str, node: str | None = None) -> None:
        """Tell it once: every look finds it again."""
        if (text, node) not in self.noted:
            self.noted.add((text, node))
            self.emit(Event(Phase.NOTE, node=node, text=text))

    def ask(self, plan: Plan) -> None:
        """The human's leave for the first plan that needs it. Raises DeclinedError when it is not given."""
        if self.approve is None or not (plan.stops_serving or _takes_foreign(plan)):
            return
        if not self.approve(plan):
            raise DeclinedError(
                "left as it is: you said no",
                remedy=f"sparkop {self.command} --yes goes ahead without asking",
            )
        self.approve = None

    def until_done(self, held: Held) -> Converged | None:
        """Pass after pass. Ranks are planned on readings that are newer than all preparation.

        None when a node has come back that has to take the lease with the others.
        """
        while True:
            reading, plan = self.look(held.lost)
            held.check()
            if not plan.operations:
                remains(plan, self.command)
                self.settle(reading, held)
                return Converged(reading, self.done)
            back = lease_nodes(reading, plan).keys() - held.fences.keys()
            if back - self.came_back:
                self.came_back |= back  # once each: one that comes and goes would begin it anew for ever
                return None
            part = plan.preparation if plan.preparation.operations else plan
            self.once_too_often(part)
            self.ask(part)
            outcome = carry_out(
                part, reading, held, self.resources, emit=self.emit, stop=self.stop, clock=self.clock
            )
            self.done += len(outcome.done)
            asked = outcome.error is None or isinstance(outcome.error, WaitInterruptedError)
            if self.stop.is_set() and asked:
                return Converged(reading, self.done, interrupted=True, left=_left(plan, outcome))
            if outcome.error is not None:
                if part is plan:
                    self.after_a_trip(held)
                raise _first_failure(outcome)

    def clears(self, reading: Reading) -> bool:
        """A human's apply begins the budget of restarts anew, also when nothing is to be done."""
        return self.command == "apply" and counts_against(reading.history)

    def owes(self, reading: Reading) -> bool:
        """Whether the history lacks something although nothing is to be done."""
        return self.clears(reading) or self.serves_unrecorded(reading) is not None

    def serves_unrecorded(self, reading: Reading) -> Stamp | None:
        """Of the group whose first token this run is the first to see that writes."""
        if not any(resource.kind == ENDPOINT for resource in self.resources):
            return None
        return unrecorded(reading.desired, reading.observed, reading.history)

    def settle(self, reading: Reading, held: Held) -> None:
        """Write down what the history lacks, where ``watch`` counts."""
        if self.spec.head.name not in held.fences:
            return
        context = context_of(reading, held, emit=self.emit, stop=self.stop, clock=self.clock)
        if serving := self.serves_unrecorded(reading):
            record_ready(context, serving, None)
        if self.clears(reading):
            at = self.clock.time()
            record(context, self.spec.head.name, {"id": f"{CLEARED}-{at:.0f}", "event": CLEARED, "at": at})
            self.note("earlier restarts by watch count no more")

    def after_a_trip(self, held: Held) -> None:
        """Where a memory guard has killed ranks that were started: take the others down, and raise what it
        has done as a BlockedError. What the human has confirmed was the trip before. Another failure is told
        as it is."""
        self.agreed -= {AGREED_TRIP}
        try:
            reading, plan = self.look(held.lost)
        except SparkopError:
            return
        own = tuple(b for b in plan.blockers if b.resource == trip.KIND)
        if not own:
            return
        down = tuple(o for o in plan.operations if kind_of(o.resource) == trip.KIND)
        part = Plan(operations=down)
        carry_out(part, reading, held, self.resources, emit=self.emit, stop=self.stop, clock=self.clock)
        remains(Plan(blockers=own))

    def once_too_often(self, plan: Plan) -> None:
        """Raise BlockedError when something had to be done again and again: it does not converge."""
        for operation in plan.operations:
            cause = operation.cause
            for identity, most in (
                ((operation.key, repr(cause)), MOST_TIMES),
                ((operation.key, ""), MOST_CAUSES),
            ):
                self.times[identity] += 1
                if self.times[identity] <= most:
                    continue
                raise BlockedError(
                    f"{operation.action} {operation.resource} was done {most} times and does not hold",
                    node=operation.node,
                    cause=f"{cause.field} is {cause.observed} again, not {cause.desired}",
                    remedy="something else changes it: another program that manages this node, or one that "
                    "writes into the build context",
                )


def remains(plan: Plan, command: str = "apply") -> None:
    """Raise what a plan without operations still has against being converged."""
    if plan.blockers:
        first = plan.blockers[0]
        more = f" (and {len(plan.blockers) - 1} more)" if len(plan.blockers) > 1 else ""
        raise (InTheWayError if all(map(_of_any_spec, plan.blockers)) else BlockedError)(
            f"{_told(first)}{more}",
            node=first.node,
            remedy=first.remedy,
            detail="\n".join(
                [*map(_blocked, plan.blockers[1:]), *dict.fromkeys(map(_not_read, plan.unknown))]
            )
            or None,
        )
    if plan.unknown:
        raise _unread(plan.unknown, command)


def _of_any_spec(blocker: Blocker) -> bool:
    """No other spec mends it."""
    return kind_of(blocker.resource) in OF_THE_NODES or blocker.cause.field == "disk"


def _blocked(blocker: Blocker) -> str:
    return f"{blocker.node} {_told(blocker)}; {blocker.remedy}"


def _not_read(unknown: Unknown) -> str:
    return f"{unknown.node} unknown: {unknown.told}"


def _unread(unknown: Sequence[Unknown], command: str) -> UnreachableError:
    """One node is named before the words, several after them."""
    nodes = list(dict.fromkeys(each.node for each in unknown))
    alone = len(nodes) == 1
    what = list(dict.fromkeys(each.resource for each in unknown if each.resource)) if alone else nodes
    told = f"could not be read: {', '.join(what)}" if what else "could not be read"
    again = f"sparkop {command} again when it answers"
    return UnreachableError(
        f"{told}; nothing that depends on it was touched",
        node=nodes[0] if alone else None,
        cause=unknown[0].reason,
        remedy=f"{unknown[0].remedy}\n  then {again}" if unknown[0].remedy else again,
    )


def lease_nodes(reading: Reading, plan: Plan) -> dict[str, Document]:
    """The nodes that were read, but none whose state folder is another cluster's or full."""
    barred = {b.node for b in plan.blockers if kind_of(b.resource) in ("state", "disk")}
    return {name: document for name, document in reading.observed.documents.items() if name not in barred}


def _takes_foreign(plan: Plan) -> bool:
    return any(operation.resource.startswith("foreign/") for operation in plan.operations)


def _left(plan: Plan, outcome: Outcome) -> tuple[Operation, ...]:
    return tuple(o for o in plan.operations if o.key not in outcome.done)


def _first_failure(outcome: Outcome) -> BaseException:
    """A failure that tells the user something before one that does not."""
    told = [error for error in outcome.failed.values() if isinstance(error, SparkopError)]
    error = told[0] if told else outcome.error
    assert error is not None
    return error


def _told(blocker: Blocker) -> str:
    return f"{blocker.resource}: {blocker.cause.told_of(blocker.resource)}"


def _summary(plan: Plan) -> str:
    parts = [counted(len(plan.operations), "operation")] if plan.operations else []
    parts += [f"{len(plan.blockers)} blocked"] if plan.blockers else []
    parts += [f"{len(plan.unknown)} unknown"] if plan.unknown else []
    return ", ".join(parts) or "nothing to do"
