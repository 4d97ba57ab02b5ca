"""Self-healing: look, reconcile, restrain, execute; again and again.

Every trigger leads to the same tick. A tick that finds nothing to do writes nothing. The lease is held only
while something is done, so an ``apply`` has to wait for one step at the most.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from sparkop.errors import (
    BlockedError,
    LeaseHeldError,
    RebootedError,
    SparkopError,
    SpecError,
    WaitInterruptedError,
)
from sparkop.hosts.base import Host
from sparkop.reconcile.carry_out import carry_out_in, context_of
from sparkop.reconcile.converge import lease_nodes, remains
from sparkop.reconcile.execute import Outcome
from sparkop.reconcile.history import BOOTED, GAVE_UP, WATCH
from sparkop.reconcile.lease import Held, hold, tell_watching
from sparkop.reconcile.lease_seen import SIGN_EVERY, dead_watches, lease_in
from sparkop.reconcile.observe import Reading, observe
from sparkop.reconcile.patience import patiently
from sparkop.reconcile.plan import Plan
from sparkop.reconcile.reconcile import reconcile
from sparkop.reconcile.refuse import all_known, refuse
from sparkop.reconcile.restrain import Asked, By, restrain
from sparkop.reconcile.watch.backoff import Backoff, entries_wanted, wanted_of
from sparkop.reconcile.watch.beside import Beside
from sparkop.reconcile.watch.eye import Begin, Eye, Rhythm
from sparkop.reconcile.watch.known import Known
from sparkop.reconcile.watch.say import Say, Teller, cause_node, why_of
from sparkop.reconcile.watch.story import (
    Fault,
    boots_due,
    boots_in,
    edits_due,
    ended_by_boot,
    entries_due,
    faults_of,
    given_up,
    gone_since,
    healed,
    life_due,
    open_faults,
    rails_lost,
    ranks_down,
    since,
    unread_of,
)
from sparkop.reconcile.watch.triggers import Triggers
from sparkop.records import dataclass
from sparkop.resources.acts import record, write_file
from sparkop.resources.base import Clock, Context, RealClock, Resource
from sparkop.resources.events import ignore
from sparkop.resources.incident import folder
from sparkop.resources.masking import mask
from sparkop.resources.operations import Action
from sparkop.resources.registry import RESOURCES
from sparkop.resources.state import entries_in
from sparkop.spec.models import ClusterSpec
from sparkop.threads import AnyOf, Later

OTHER_STILL = 10.0
"""Seconds for which another writer's lease must stand still before it is contended for."""
YIELDS_FOR = 10.0
"""Seconds for which a watch that was asked for the lease leaves it alone: who asked looks once a second, over
the network."""
JITTER = 0.1
SETTLE = 0.5
"""Seconds between a wake and the look: events of one fault come together. They double, up to a period, while
events lead to nothing."""
LEAVING = 1.0
"""Seconds that the head gets for the word that nobody watches any more; else the last sign grows old."""


@dataclass(frozen=True)
class Tick:
    """What one look led to. ``acted``: something was executed. ``trouble``: why it did not succeed.
    ``further``: some of it was done, and none failed, so that more may be due."""

    reading: Reading
    plan: Plan
    acted: bool = False
    further: bool = False
    trouble: SparkopError | None = None


class Watch:
    """One cluster, watched. ``tick`` is all there is; ``run`` repeats it."""

    def __init__(
        self,
        spec: ClusterSpec,
        hosts: Mapping[str, Host],
        say: Say,
        *,
        stop: threading.Event | None = None,
        rhythm: Rhythm | None = None,
        asked: Asked | None = None,
        dry_run: bool = False,
        steps_aside: bool = True,
        clock: Clock | None = None,
        resources: Sequence[Resource] = RESOURCES,
        begin: Begin = Later,
        instead: bool = False,
        edits: list[dict[str, Any]] | None = None,
        known: Known | None = None,
    ) -> None:
        """``instead``: of a spec before, which is still there when this one is refused. ``edits``: entries of
        edits of the spec; what is written down is taken out. ``known``: by the watch before."""
        self.spec = spec
        self._instead = instead
        self._fits = False
        """The facts of all nodes have allowed the spec once."""
        self._edits = edits if edits is not None else []
        self.hosts = hosts
        self.say = say
        self.stop = stop or threading.Event()
        self.rhythm = rhythm or Rhythm()
        self.asked = asked or Asked(By.WATCH)
        self.dry_run = dry_run
        self.steps_aside = steps_aside
        self.clock = clock or RealClock()
        self.eye = Eye(spec, hosts, self.clock, resources, self.rhythm, begin)
        self.resources = self.eye.resources
        self.known = known or Known()
        self.holder = self.known.holder
        self.teller = Teller(say)
        self._others: dict[str, tuple[dict[str, Any], float]] = {}
        """Node -> the lease that is held there, and since when it was seen not to move."""
        self.backoff = Backoff(first=(1 - JITTER) * self.rhythm.period)
        self.wake = threading.Event()
        self._yields_until = 0.0
        self._settle = SETTLE
        self._changed: Callable[[], bool] = lambda: False

    # Forever

    def run(self, changed: Callable[[], bool] = lambda: False) -> bool:
        """Tick until ``stop`` (returns False) or until the spec has ``changed`` (True). Raises SpecError for
        a spec that no engine takes, and for one that the nodes' facts refuse from the start."""
        self._changed = changed
        with suppress(WaitInterruptedError), Triggers(self.spec, self.hosts, self.wake):
            while not self.stop.is_set():
                tick = self.tick()
                self.sign(tick.reading)
                if tick.acted:
                    self._settle = SETTLE
                if self._wait(self.pause(tick)):
                    return True
        return False

    def sign(self, reading: Reading) -> None:
        """Leave a sign of life on the head twice a minute: status tells that somebody watches."""
        now, head = self.clock.monotonic(), self.spec.head.name
        due = self.known.signed_at is None or now - self.known.signed_at >= SIGN_EVERY
        if reading.history.unapplied:
            self.known.signed_at = None  # what was destroyed gets no sign that the watch ends, either
        elif due and not self.dry_run and head in reading.observed.documents:
            self.known.signed_at = now
            dead = dead_watches(reading.observed.documents[head])
            tell_watching(self.spec, self.hosts[head], self.holder, pauses=self.asked.pauses, dead=dead)

    def leave(self) -> None:
        """Nobody watches any more. A head that hangs holds nobody up."""
        if self.known.signed_at is not None:
            head = self.hosts[self.spec.head.name]
            Later(partial(tell_watching, self.spec, head, self.holder, over=True), "leave").ended(LEAVING)

    def pause(self, tick: Tick) -> float:
        """Seconds until the next tick: none while one step leads to the next."""
        return 0.0 if tick.further else self.rhythm.period * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311

    def _wait(self, seconds: float) -> bool:
        """Until the time is over or something has happened; True when the spec has changed."""
        until, woken = self.clock.monotonic() + seconds, False
        while not self.stop.is_set():
            if self._changed():
                return True
            now = self.clock.monotonic()
            if now >= until:
                break
            if woken:
                self.stop.wait(min(1.0, until - now))
            elif self.wake.wait(min(1.0, until - now)):
                woken = True
                until = min(until, self.clock.monotonic() + self._settle)
        self._settle = min(2 * self._settle, self.rhythm.period) if woken else SETTLE
        self.wake.clear()
        return False

    # Once

    def tick(self) -> Tick:
        """Look; do what may be done. Raises SpecError as ``run`` does, and WaitInterruptedError when ``stop``
        is set while it looks; nothing else that a cluster can cause."""
        reading = self.look()
        self.judge(reading)
        unseen = ended_by_boot(reading.desired, reading.observed)
        self.known.boots = {**dict.fromkeys(unseen, ""), **self.known.boots}
        plan = self.plan_of(reading)
        faults = self.faults_of(reading, plan, self.known.before or {})
        due = self.entries(reading, faults)
        wanted = bool(plan.operations or due)
        self._note_leases(reading)
        aside = wanted and ((self.steps_aside and self.other_writes(reading)) or self.yields)
        beside = aside or self.yields or (self.steps_aside and self._other_lives)
        self.teller.tell(reading, plan, self.eye.life, faults, undecided=self.eye.undecided, aside=beside)
        if self.dry_run:
            return Tick(reading, plan)
        before, self.known.before = self.known.before, faults
        boots = boots_in(reading.observed)
        self.known.boots = {**self.known.boots, **boots} if plan.converged else {**boots, **self.known.boots}
        if aside or not (wanted or self._can_write(reading)):
            self.known.before = {**faults, **(before or {})}  # what is yet to be written down
            return Tick(reading, replace(plan, operations=()))
        if not wanted:
            return Tick(reading, plan)
        known = self.known.boots
        try:
            booted = boots_due(self.known.boots, boots, self.clock.time())
            self.known.boots = known | boots
            return self.act(reading, plan, [*booted, *due])
        except WaitInterruptedError:
            raise
        except SparkopError as error:
            self.known.before, self.known.boots = {**faults, **(before or {})}, known
            if self._instead and not self._fits and isinstance(error, SpecError):
                raise
            tried = {**wanted_of(plan.operations, reading.observed), **entries_wanted(due)}
            self.backoff = self.backoff.failed(tried, error, self.clock.monotonic())
            if isinstance(error, LeaseHeldError):
                self.teller.state("lease", error.reason, event="standing-aside", why=error.reason)
            else:
                self.failed(error)
            return Tick(reading, plan, trouble=error)

    def look(self, lost: threading.Event | None = None) -> Reading:
        """One look, left behind when ``stop`` is set, or the lease is ``lost``: a node that hangs holds it up
        for half a minute."""
        stop = self.stop if lost is None else AnyOf(self.stop, lost)
        return patiently(self.eye.look, lambda: "the nodes have not all answered", ignore, stop)

    def judge(self, reading: Reading) -> None:
        """The first look at all nodes raises SpecError for a spec that their facts refuse: nothing can be
        healed by it. Later it has served, and what refuses it then is told at every try."""
        if not self._fits and all_known(reading.desired):
            refuse(self.spec, reading.desired, self.hosts[self.spec.head.name])
            self._fits = True

    def plan_of(self, reading: Reading, due: Sequence[Mapping[str, Any]] = ()) -> Plan:
        """Pure: what has to be done, and what of it may be done now. ``due``: what the history that was read
        does not have yet."""
        now = self.clock.time()
        plan = reconcile(reading.desired, reading.observed, reading.history, now, self.resources)
        boots = boots_in(reading.observed).items()
        seen = [node for node, boot in boots if self.known.boots.get(node, boot) != boot]
        told = [entry["node"] for entry in due if entry["event"] == BOOTED]
        asked = replace(self.asked, told_at=reading.observed.at, booted=(*told, *seen))
        plan = restrain(plan, reading.history, asked, now)
        return self.backoff.spare(plan, reading.observed, self.clock.monotonic())

    def act(self, reading: Reading, plan: Plan, due: list[dict[str, Any]]) -> Tick:
        """Take the lease, look again, write down what is due, and execute: first what prepares."""
        with hold(
            self.spec,
            self.hosts,
            lease_nodes(reading, plan),
            command=WATCH,
            holder=self.holder,
            clock=self.clock,
            emit=self.teller.listen,
            stop=self.stop,
            still=self._still(),
        ) as held:
            try:
                return self._act(held, reading, plan, due)
            finally:
                if held.wanted.is_set():
                    self.say("yielding", to=held.wanted_by)
                    self._yields_until = self.clock.monotonic() + YIELDS_FOR

    def _act(self, held: Held, reading: Reading, plan: Plan, due: list[dict[str, Any]]) -> Tick:
        if plan.operations:
            reading = self.look(held.lost)
            plan = self.plan_of(reading, due)
        if reading.history.unapplied:
            return Tick(reading, plan)  # destroyed since the look before
        stop = AnyOf(self.stop, held.wanted, asked=self._changed)
        context = context_of(reading, held, emit=self.teller.listen, stop=stop, clock=self.clock)
        self.write(context, due)
        if not plan.operations:
            return Tick(reading, plan)
        refuse(self.spec, reading.desired, self.hosts[self.spec.head.name])
        part = plan.preparation if plan.preparation.operations else plan
        self.say("acting", operations=len(part.operations), node=cause_node(part), why=why_of(part))
        self.keep_plan(context, part)
        with Beside(self.faults_now, self.teller, self.rhythm.period) as beside:
            outcome = carry_out_in(context, part, held, self.resources)
        self.known.before = {**beside.seen, **(self.known.before or {})}
        self.known.gone = {what: at for what, at in self.known.gone.items() if what not in beside.seen}
        self.backoff = self.backoff.after(part, reading.observed, outcome, self.clock.monotonic())
        return self.outcome(context, Tick(reading, plan, acted=True), outcome)

    def faults_of(self, reading: Reading, plan: Plan, then: Mapping[str, Fault]) -> dict[str, Fault]:
        """What is wrong. ``then``: at the look before."""
        lost = rails_lost(reading.desired, reading.observed)
        now = lost | faults_of(plan, reading.observed) | self.eye.findings
        if not (reading.history.intent.stopped or reading.history.unapplied):
            known = open_faults(self._entries(reading))
            now |= ranks_down(plan, reading.desired, reading.observed, {*then, *known})
            now |= given_up(plan, known, then)
        return since(now, then, self.clock.time(), unread_of(reading.observed))

    def faults_now(self, then: Mapping[str, Fault]) -> dict[str, Fault]:
        """Of one look that asks the API nothing: it may be loading. What only a watch finds is as before.
        A start is waited for longer than a sign of life lasts."""
        reading = observe(self.spec, self.hosts, canary=False, clock=self.clock, resources=self.resources)
        self.sign(reading)
        now = self.clock.time()
        plan = reconcile(reading.desired, reading.observed, reading.history, now, self.resources)
        return self.faults_of(reading, plan, then)

    def keep_plan(self, context: Context, plan: Plan) -> None:
        """Beside the evidence of the group that is replaced: what was planned, and how it did before."""
        begin = next(
            (o for o in plan.operations if o.action is Action.RECORD and "before" in o.parameters), None
        )
        if begin is None or not begin.parameters["before"]:
            return
        life, now = self.eye.life, self.clock.monotonic()
        told = {
            "plan": [
                f"{o.action} {o.resource} {o.node}: {o.cause.told_of(o.resource)}" for o in plan.operations
            ],
            "gpus": self.eye.gpus.readings,
            "group": {
                "verdict": life.verdict,
                "detail": life.detail,
                "for_seconds": round(now - life.since, 1),
                "counters": asdict(life.counters) if life.counters else None,
                "counters_moved_seconds_ago": round(now - life.moved_at, 1),
            },
        }
        place = f"{context.desired.nodes[begin.node].state}/{folder(int(begin.parameters['before']))}"
        text = mask(json.dumps(told, indent=1)).encode() + b"\n"
        write_file(context, begin.node, f"{place}/plan.json", text, mode=0o600)
        self.say("evidence", node=begin.node, folder=place)

    def outcome(self, context: Context, tick: Tick, outcome: Outcome) -> Tick:
        """What the execution came to; a failure is written down."""
        waited = any(key.startswith(f"{Action.WAIT}:endpoint@") for key in outcome.done)
        if waited:
            epoch = self._epoch_after(tick)
            self.eye.served(epoch, self.clock.monotonic())
            self.say("serving", epoch=epoch)
        if not context.lost.is_set():
            done = [operation for operation in tick.plan.operations if operation.key in outcome.done]
            self.write(context, healed(self._entries(tick.reading), done, self.clock.time()))
        error = outcome.error
        if isinstance(error, RebootedError):
            self.remember_boots(context)
            return replace(tick, further=True)
        if error is None or isinstance(error, WaitInterruptedError):
            return replace(tick, further=bool(outcome.done))
        if not isinstance(error, SparkopError):
            raise error
        self.failed(error)
        at = self.clock.time()
        text = ": ".join(part for part in (error.message.rstrip("."), error.cause) if part)[:500]
        entry = {"id": f"failed-{at:.0f}", "event": "failed", "node": error.node, "text": text, "at": at}
        self.write(context, [entry])
        return replace(tick, trouble=error)

    def failed(self, error: SparkopError) -> None:
        """Say what went wrong, and what to do."""
        self.say("failed", node=error.node, error=error.message, cause=error.cause, remedy=error.remedy)

    @staticmethod
    def _epoch_after(tick: Tick) -> int:
        planned = [
            o.parameters["epoch"]
            for o in tick.plan.operations
            if o.action is Action.START and ("epoch" in o.parameters)
        ]
        return int(planned[0]) if planned else tick.reading.history.epoch

    # What is written

    def entries(self, reading: Reading, faults: Mapping[str, Fault]) -> list[dict[str, Any]]:
        """What the history does not know yet."""
        if reading.history.unapplied:
            return []
        at = self.clock.time()
        now = self.clock.monotonic()
        known = self._entries(reading)
        written = open_faults(known) if self._can_write(reading) else self.known.gone
        self.known.gone = gone_since({*written, *(self.known.before or {})}, faults, self.known.gone, at)
        if not self._can_write(reading):
            return []
        due = entries_due(known, self.known.before, faults, at, unread_of(reading.observed), self.known.gone)
        due += life_due(self.eye.life, reading.observed.endpoint.serving, reading.history, now, at)
        self._edits[:] = edits_due(known, self._edits)
        due += self._edits
        return [] if self.backoff.waits(entries_wanted(due), now) else due

    def unwritten(self, reading: Reading) -> bool:
        """The last look has seen a fault that the history doesn't know yet."""
        known = open_faults(self._entries(reading))
        return self._can_write(reading) and any(what not in known for what in self.known.before or {})

    def _can_write(self, reading: Reading) -> bool:
        """The head, which keeps the history, answers."""
        return self.spec.head.name in reading.observed.documents

    def _entries(self, reading: Reading) -> list[dict[str, Any]]:
        """The history, as far as it could be read."""
        head = reading.observed.documents.get(self.spec.head.name)
        return entries_in(head) if head is not None else []

    def remember_boots(self, context: Context) -> None:
        """Why the group that was waited for is down, at once: its next start may have to wait."""
        boots = boots_in(self.look().observed)
        self.write(context, boots_due(self.known.boots, boots, self.clock.time()))
        self.known.boots |= boots

    def write(self, context: Context, entries: list[dict[str, Any]]) -> None:
        """Append to the history on the head; a head that can't take it does not stop the healing."""
        if self.spec.head.name not in context.fences:
            return
        for entry in entries:
            try:
                record(context, self.spec.head.name, entry)
                self.say("remembered", kind=entry["event"], what=entry.get("what"), node=entry.get("node"))
            except LeaseHeldError:
                raise
            except SparkopError as error:
                self.say("history-not-written", error=error.message)

    # Others

    @property
    def yields(self) -> bool:
        """Somebody has asked for the lease, and gets the time to take it."""
        return self.clock.monotonic() < self._yields_until

    def other_writes(self, reading: Reading) -> bool:
        """Another writer holds the lease and lives, as far as is known: stand aside for this tick."""
        if not self._others:
            self.teller.state("lease", "")
            return False
        first = next(filter(None, (lease_in(n, reading.observed.documents[n]) for n in self._others)))
        self.teller.state("lease", first.told, event="standing-aside", holder=first.told)
        return self._other_lives

    @property
    def _other_lives(self) -> bool:
        return bool(self._others) and min(self._still().values()) < OTHER_STILL

    def _note_leases(self, reading: Reading) -> None:
        """Of every look: a node that was not read could not be written to either, and is counted anew."""
        now = self.clock.monotonic()
        leases = [lease_in(name, document) for name, document in reading.observed.documents.items()]
        held = {each.node: each.expected for each in leases if each is not None and not each.released}
        then = self._others
        self._others = {
            n: then[n] if n in then and then[n][0] == each else (each, now) for n, each in held.items()
        }

    def _still(self) -> dict[str, float]:
        """Node -> seconds for which the lease there has not moved."""
        now = self.clock.monotonic()
        return {node: now - since for node, (_, since) in self._others.items()}


def once(watch: Watch, most: int = 8, patience: float = 600.0) -> Tick:
    """For cron: tick until nothing is left to do, and what the group does is known.

    Raises what ``apply`` would raise for what remains, WaitInterruptedError when it is to stop. ``patience``:
    seconds for the canary's answers.
    """
    acted, again, until = 0, False, watch.clock.monotonic() + patience
    while acted < most:
        tick = watch.tick()
        if tick.trouble is not None:
            raise tick.trouble
        if watch.yields:
            raise LeaseHeldError(
                "another sparkop has asked for the lease, and goes first",
                remedy="run it again after that one",
            )
        acted += tick.acted
        undecided = watch.eye.undecided and watch.clock.monotonic() < until
        if tick.acted or undecided:
            if watch.stop.is_set():
                raise WaitInterruptedError(
                    "stopped before it was known what the group does", remedy="run the same command again"
                )
            if undecided:
                watch.clock.sleep(1.0)
            continue
        if watch.unwritten(tick.reading) and not again:
            again = True  # a fault is written down when two looks have seen it
            continue
        if any(blocker.cause.field == GAVE_UP for blocker in tick.plan.blockers):
            raise BlockedError(  # the event of it has told the rest
                f"watch {GAVE_UP}",
                remedy=next(b.remedy for b in tick.plan.blockers if b.cause.field == GAVE_UP),
            )
        remains(tick.plan)
        if tick.plan.held and not tick.reading.history.intent.stopped:
            does = "starts it" if tick.reading.history.unapplied else "does not wait"
            raise BlockedError(tick.plan.held[0], remedy=f"sparkop apply {does}")
        return tick
    raise BlockedError(
        f"{most} steps in a row did not converge", remedy="sparkop events and sparkop diff tell what changes"
    )
