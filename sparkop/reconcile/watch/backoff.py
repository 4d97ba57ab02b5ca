"""What did not help is done again only after pauses that grow, each operation by itself. Pure.

Looks are not held back: what a human has mended leaves the plan or changes its cause, and is acted upon at
the next look. An operation waits alone, with what needs it: a registry that is away keeps no guard down.
The group as a whole has a budget of restarts beside this (``restrain``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from sparkop.errors import NO_FAILURES, LeaseHeldError, UnreachableError
from sparkop.reconcile.execute import Outcome
from sparkop.reconcile.plan import GROUP, Plan
from sparkop.reconcile.restrain import starts_group
from sparkop.records import dataclass
from sparkop.resources.compare import human_seconds
from sparkop.resources.observed import Observed
from sparkop.resources.operations import Operation, kind_of

LONGEST = 300.0
"""Seconds of the longest pause, and for how long after its pause an operation must not be needed again to
count as one that has lasted."""
CAUSES = 4
"""Causes for which one operation may be done within a pause: words that change at every look don't get
round it."""
NO_HELP = "did not help"
HISTORY = "history"
"""What is written down, as a thing that can fail."""

Wanted = Mapping[str, str]
"""Things to be done, and why: key -> cause."""


@dataclass(frozen=True)
class Tried:
    """One thing that was done, or failed, so many ``times`` without lasting. ``until``: monotonic seconds."""

    times: int
    until: float
    causes: frozenset[str]
    told: str
    """What became of it, in words that stand after its name."""


@dataclass(frozen=True)
class Backoff:
    """``first``: seconds of the first pause; every further one is twice as long."""

    first: float
    tried: Mapping[str, Tried] = field(default_factory=dict)

    def waits(self, wanted: Wanted, now: float) -> dict[str, float]:
        """Those that are not to be done yet, and for how many seconds."""
        found = {}
        for key, cause in wanted.items():
            known = self.tried.get(key)
            if known is None or now >= known.until:
                continue
            if cause in known.causes or len(known.causes) >= CAUSES:
                found[key] = known.until - now
        return found

    def spare(self, plan: Plan, observed: Observed, now: float) -> Plan:
        """The plan without what has to wait, and without what needs that; ``held`` tells it."""
        waits = self.waits(wanted_of(plan.operations, observed), now)
        if not waits:
            return plan
        kept = _without(plan.operations, set(waits))
        held = []
        for told in dict.fromkeys(self.tried[key].told for key in waits):
            those = [o for o in plan.operations if o.key in waits and self.tried[o.key].told == told]
            names = ", ".join(f"{o.action} {o.resource} on {o.node}" for o in those)
            left = min(waits[operation.key] for operation in those)
            held.append(f"{names}: {told}; again in {human_seconds(left)}")
        return replace(plan, operations=kept, held=(*plan.held, *held))

    def after(self, plan: Plan, observed: Observed, outcome: Outcome, now: float) -> Backoff:
        """What was tried counts; a group that was started counts in the budget of restarts alone."""
        wanted = wanted_of(plan.operations, observed)
        backoff = self
        for key, error in outcome.failed.items():
            backoff = backoff.failed({key: wanted[key]}, error, now)
        if any(starts_group(operation) for operation in plan.operations):
            return backoff
        for key in outcome.done:
            backoff = backoff._done(key, wanted[key], now)
        return backoff

    def failed(self, wanted: Wanted, error: BaseException, now: float) -> Backoff:
        """They could not be done. What every look sees, nodes that don't answer and other writers, is not
        waited for at growing pauses; a wait that ``apply`` or a reboot has ended did not fail."""
        if isinstance(error, NO_FAILURES):
            return self
        more, told = True, NO_HELP
        if isinstance(error, UnreachableError | LeaseHeldError):
            other = isinstance(error, LeaseHeldError)
            more, told = False, "left to another sparkop" if other else "a node did not answer"
        backoff = self
        for key, cause in wanted.items():
            times = backoff._times(key, now)
            pause = backoff._pause(times if more else 0)
            backoff = backoff._tried(key, cause, now, times + more, pause, told)
        return backoff

    def _done(self, key: str, cause: str, now: float) -> Backoff:
        """It may come back at once, but not again and again."""
        times = self._times(key, now)
        return self._tried(key, cause, now, times + 1, self._pause(times - 1) if times else 0.0)

    def _tried(
        self, key: str, cause: str, now: float, times: int, pause: float, told: str = NO_HELP
    ) -> Backoff:
        known = self.tried.get(key)
        causes = known.causes if known is not None and now < known.until else frozenset()
        tried = Tried(times, now + pause, causes | {cause}, told)
        return replace(self, tried={**self.tried, key: tried})

    def _pause(self, times: int) -> float:
        return min(LONGEST, self.first * 2.0 ** min(times, 30))

    def _times(self, key: str, now: float) -> int:
        """How often it was tried in a row until now."""
        known = self.tried.get(key)
        return known.times if known is not None and now < known.until + LONGEST else 0


def wanted_of(operations: Sequence[Operation], observed: Observed) -> dict[str, str]:
    """A node that was booted since is another one: what failed on it may work now."""
    found = {}
    for operation in operations:
        document = observed.documents.get(operation.node)
        boot = document.machine.boot_id if document is not None and document.machine is not None else ""
        found[operation.key] = f"{boot} {operation.cause.told}"
    return found


def entries_wanted(entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The same for entries of the history."""
    words = sorted(f"{entry['event']} {entry.get('what', '')}" for entry in entries)
    return {HISTORY: ", ".join(words)} if words else {}


def _without(operations: Sequence[Operation], dropped: set[str]) -> tuple[Operation, ...]:
    """The rest of a plan, in its order, which is that of ``needs``. The group stays whole, or goes."""
    group = {operation.key for operation in operations if kind_of(operation.resource) in GROUP}
    dropped = dropped | group if dropped & group else dropped
    kept = []
    for operation in operations:
        if operation.key in dropped or any(need in dropped for need in operation.needs):
            dropped = dropped | {operation.key}
        else:
            kept.append(operation)
    return tuple(kept)
