"""What ``watch`` writes down, so that ``sparkop events`` can tell it: faults that come and go. Pure.

At rest nothing is written: an entry is due only for what the history does not know yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparkop.reconcile.history import SERVED
from sparkop.reconcile.plan import Plan
from sparkop.resources.liveness import Life, Verdict
from sparkop.resources.observed import History

FAULT = "fault"
MENDED = "mended"
RESET_AFTER = 600.0
"""Seconds of canaries without a break after which earlier restarts count no more."""
TEXT = 500
"""Characters of a text that are kept."""


def faults_of(plan: Plan) -> dict[str, dict[str, str]]:
    """What only a human can mend, or what hides a node: by a name that stays the same while it lasts."""
    found: dict[str, dict[str, str]] = {}
    for blocker in plan.blockers:
        text = f"{blocker.cause.field}: {blocker.cause.observed} -> {blocker.cause.desired}; {blocker.remedy}"
        what = f"{blocker.resource}@{blocker.node}"
        found.setdefault(what, {"node": blocker.node, "text": text[:TEXT]})
    for unknown in plan.unknown:
        what = f"{unknown.resource or 'node'}@{unknown.node}"
        found.setdefault(what, {"node": unknown.node, "text": f"unknown: {unknown.reason}"[:TEXT]})
    return found


def open_faults(entries: Sequence[Mapping[str, Any]]) -> set[str]:
    """Faults that were told and not yet told to be over."""
    known: set[str] = set()
    for entry in entries:
        if entry.get("event") == FAULT:
            known.add(str(entry.get("what")))
        elif entry.get("event") == MENDED:
            known.discard(str(entry.get("what")))
    return known


def entries_due(
    entries: Sequence[Mapping[str, Any]], before: Plan | None, plan: Plan, at: float
) -> list[dict[str, Any]]:
    """Entries for faults that were there at two looks, and for those that were gone at two. ``at``: seconds
    since 1970."""
    if before is None:
        return []
    now, then, known = faults_of(plan), faults_of(before), open_faults(entries)
    due = [
        {"id": f"{FAULT}-{what}-{at:.0f}", "event": FAULT, "what": what, **told, "at": at}
        for what, told in now.items()
        if what in then and what not in known
    ]
    due += [
        {"id": f"{MENDED}-{what}-{at:.0f}", "event": MENDED, "what": what, "at": at}
        for what in sorted(known)
        if what not in now and what not in then
    ]
    return due


def life_due(life: Life, history: History, monotonic: float, at: float) -> list[dict[str, Any]]:
    """A group that serves although nobody saw its start to the end; one that has served for long."""
    due: list[dict[str, Any]] = []
    if life.verdict is not Verdict.SERVING or life.served_since is None or life.epoch != history.epoch:
        return due
    numbers = {"epoch": life.epoch, "generation": history.generation, "at": at}
    if history.ready_epoch < life.epoch:
        due.append({"id": f"ready-{life.epoch}", "event": "ready", **numbers})
    if history.restarts and monotonic - life.served_since >= RESET_AFTER:
        due.append({"id": f"{SERVED}-{life.epoch}", "event": SERVED, **numbers})
    return due
