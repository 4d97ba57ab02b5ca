"""What ``watch`` may do of a plan. Pure: the last stage before the executor, and the only one that knows
who asks. A human's plan passes as it is."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from enum import StrEnum

from sparkop.reconcile.history import GAVE_UP, WATCH, told_boots
from sparkop.reconcile.plan import GROUP, Plan
from sparkop.records import dataclass
from sparkop.resources.compare import counted, human_seconds
from sparkop.resources.group import KEY, KEY_REMEDY
from sparkop.resources.observed import History, Restart
from sparkop.resources.operations import Action, Blocker, Cause, Operation, kind_of


class By(StrEnum):
    """Who wants the plan carried out."""

    HUMAN = "human"
    WATCH = WATCH


@dataclass(frozen=True)
class Asked:
    """Who asks, and how patient the budget is."""

    by: By = By.HUMAN
    pauses: tuple[float, ...] = (120.0, 300.0, 900.0)
    """Seconds before the second, third and fourth restart; after the last there is none any more."""
    told_at: float = 0.0
    """When the nodes were read, seconds since 1970."""
    booted: tuple[str, ...] = ()
    """Nodes that have booted since all was well, and of which the history does not know it yet."""


BOOTS = 3
"""Restarts after a boot that cost nothing of the budget: a power cut is no fault of the numbers. Those after
them do: memory that runs out can freeze a node until it boots, again and again."""
FRESH = 60.0
"""Seconds after which a reading is too old to act on (principle 6)."""


def restrain(plan: Plan, history: History, asked: Asked, now: float) -> Plan:
    """The part of the plan that may be carried out now; what is left out is told by ``held`` and blockers.

    For ``watch``: nothing while a human wants it stopped, or has destroyed it; no restart before its pause
    is over, and none after the last; no waiting for a group that has served already (``watch`` looks again
    anyway); nothing on old readings. ``now``: seconds since 1970.
    """
    if asked.by is By.HUMAN or not plan.operations:
        return plan
    if history.intent.stopped:
        return _held(plan, f"stopped by {history.intent.by}: left alone until sparkop apply")
    if history.unapplied:
        return _held(plan, f"{history.unapplied}: left alone until sparkop apply")
    if asked.told_at and now - asked.told_at > FRESH:
        return _held(plan, "the readings are too old to act on")
    starts = any(starts_group(operation) for operation in plan.operations)
    if not starts:
        return _without_idle_wait(plan, history)
    return _budgeted(plan, history, asked, now)


def _budgeted(plan: Plan, history: History, asked: Asked, now: float) -> Plan:
    if any(o.action is Action.RECORD and o.cause.field == KEY for o in plan.operations):
        wanted = "the one in the key file"
        return _not_again(plan, Cause(KEY, "the ranks run with another", wanted), KEY_REMEDY)
    if history.forgotten:
        cause = Cause("restarts", "not known: history.json was damaged", "a count")
        return _not_again(
            plan, cause, "see why the group is down (sparkop logs), and start it: sparkop apply"
        )
    free, tried = _counted(plan, history)
    booted = _booted(plan, history, asked)
    count = len(tried)
    if booted and len(free) < BOOTS and history.gave_up is None:
        return _allowed(plan)
    if count > len(asked.pauses):
        return _given_up(plan, tried, booted)
    if tried:
        passed = now - tried[-1].at
        left = asked.pauses[count - 1] - passed
        if passed >= 0 and left > 0:  # a clock that was set back holds nothing up
            of = f"restart {count + 1} of {1 + len(asked.pauses)}"
            why = told_boots(booted) if booted else "the one before did not last"
            return _prepared(plan, f"{of} in {human_seconds(left)}: {why}")
    return _allowed(plan)


def _counted(plan: Plan, history: History) -> tuple[tuple[Restart, ...], tuple[Restart, ...]]:
    """Restarts of the numbers that the plan would launch: the first few after a boot, which cost nothing, and
    those that count. A changed spec begins anew, and what was broken off is none."""
    generation = next((o.parameters.get("generation") for o in plan.operations if starts_group(o)), None)
    resumes = _resumed(plan)
    own = [each for each in history.restarts if each.generation == generation and each.epoch != resumes]
    free = tuple(each for each in own if each.booted)[:BOOTS]
    return free, tuple(each for each in own if each not in free)


def _booted(plan: Plan, history: History, asked: Asked) -> tuple[str, ...]:
    """Nodes whose boot has ended the group: known or just seen, also before the start that was broken off."""
    resumes = _resumed(plan)
    before = [node for each in history.restarts if each.epoch == resumes for node in each.booted]
    return tuple(dict.fromkeys((*before, *history.booted, *asked.booted)))


def _resumed(plan: Plan) -> int | None:
    """Number of the group whose start was broken off, and is gone on with."""
    return next((o.parameters.get("resumes") for o in plan.operations if o.action is Action.RECORD), None)


def _allowed(plan: Plan) -> Plan:
    return replace(plan, operations=tuple(_marked(operation) for operation in plan.operations))


def _given_up(plan: Plan, tried: tuple[Restart, ...], booted: tuple[str, ...]) -> Plan:
    """``booted``: nodes that have since the last start."""
    begin = next(o for o in plan.operations if o.action is Action.RECORD)
    ends = [(each.node, each.why) for each in tried[1:]]
    last = (begin.parameters.get("cause_node", ""), begin.cause.told)
    ends.append(("", told_boots(booted)) if booted else last)
    times = Counter(" ".join(part for part in (node, _shortly(why)) if part) for node, why in ends)
    told = ", ".join(end if count == 1 else f"{end}, {count} times" for end, count in times.items())
    cause = Cause(GAVE_UP, f"{counted(len(tried), 'restart')} did not last ({told})", "a group that serves")
    remedy = "sparkop events and sparkop logs tell why; when it is mended: sparkop apply"
    return _not_again(plan, cause, remedy)


def _shortly(why: str) -> str:
    """``rank/1 exited (137)`` of ``rank/1 state: exited (137) -> running``, a verdict without its details."""
    field, _, change = why.partition(": ")
    observed = change.rpartition(" -> ")[0].partition(": ")[0]
    return f"{field.removesuffix(' state')} {observed}".strip()


def _not_again(plan: Plan, cause: Cause, remedy: str) -> Plan:
    node = next(o.node for o in plan.operations if o.action is Action.RECORD)
    kept = _prepared(plan, "")
    return replace(kept, blockers=(*kept.blockers, Blocker(node, "rank/all", cause, remedy)))


def _prepared(plan: Plan, text: str) -> Plan:
    """All but the group: its guard and its files are mended meanwhile."""
    return replace(plan.preparation, held=(text,) if text else ())


def _held(plan: Plan, text: str) -> Plan:
    return replace(plan, operations=(), held=(text,))


def _without_idle_wait(plan: Plan, history: History) -> Plan:
    """A start that was interrupted is waited for; a group that has served is only looked at again."""
    if history.ready_epoch < history.epoch:
        return plan
    kept = tuple(o for o in plan.operations if not (o.resource == "endpoint" and o.action is Action.WAIT))
    return replace(plan, operations=kept)


def starts_group(operation: Operation) -> bool:
    """It is one of those that the budget of restarts is about."""
    return operation.action is Action.START and kind_of(operation.resource) in GROUP


def _marked(operation: Operation) -> Operation:
    """The history says who started the group: only restarts by ``watch`` count."""
    if operation.action is not Action.RECORD or kind_of(operation.resource) not in GROUP:
        return operation
    return replace(operation, parameters={**operation.parameters, "by": WATCH})
