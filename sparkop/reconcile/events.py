"""The story of a cluster, from what its nodes remember. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkop.reconcile.history import (
    CLEARED,
    DAMAGED,
    FAILED,
    FAULT,
    GROUP,
    HEALED,
    MENDED,
    SERVED,
    WATCH,
    failure_in,
    gave_up,
)
from sparkop.reconcile.observe import Reading
from sparkop.records import dataclass
from sparkop.resources import intent, trip
from sparkop.resources.compare import human_seconds
from sparkop.resources.pulled import PULLED, is_foreseen
from sparkop.resources.state import entries_in


@dataclass(frozen=True)
class Happened:
    """One line of the story. ``at``: seconds since 1970."""

    at: float
    event: str
    text: str
    node: str = ""
    epoch: int = 0


def happened(reading: Reading) -> tuple[Happened, ...]:
    """Everything that is remembered, oldest first: the history, and what files tell that still count."""
    history, entries = reading.history, entries_in(reading.observed.documents[reading.desired.head])
    lasting = [trip.entry_of(each) for each in history.trips.values()]
    if history.intent.stopped:
        lasting.append({**intent.entry_of(history.intent), "lasts": True})
    known = {each["id"] for each in lasting}
    past = [entry for entry in entries if entry.get("id") not in known]
    return tuple(sorted(map(_of_entry, [*past, *lasting]), key=lambda each: each.at))


def _of_entry(entry: Mapping[str, Any]) -> Happened:
    event = str(entry.get("event") or "")
    at, epoch = entry.get("at"), entry.get("epoch")
    return Happened(
        at=float(at) if isinstance(at, int | float) else 0.0,
        event=_kind(event, entry),
        text=_text(event, entry),
        node="" if gave_up(entry) else str(entry.get("node") or ""),
        epoch=epoch if isinstance(epoch, int) else 0,
    )


def _kind(event: str, entry: Mapping[str, Any]) -> str:
    if event == "start" and entry.get("by") == WATCH:
        return "restart"
    if event == PULLED and is_foreseen(entry):
        return "pull-begun"
    return "gave-up" if gave_up(entry) else event


def _text(event: str, entry: Mapping[str, Any]) -> str:
    epoch = entry.get("epoch")
    if event == "start":
        by = (
            "watch began to replace the ranks"
            if entry.get("by") == WATCH
            else "a command began to start the ranks"
        )
        if entry.get("by") == WATCH and entry.get("resumes"):
            by = f"watch went on with group {entry['resumes']}, which was broken off, and started the ranks"
        at = f"{entry['node']}, " if entry.get("node") else ""
        kept = f"; {entry['kept']} on the head tells of the one before" if entry.get("kept") else ""
        return f"{by} (group {epoch}): {at}{_because(str(entry.get('why') or ''))}{kept}"
    if event == "ready":
        seconds = entry.get("seconds")
        took = f" after {human_seconds(float(seconds))}" if isinstance(seconds, int | float) else ""
        return f"group {epoch} served its first token{took}"
    if event == SERVED:
        return f"group {epoch} has served for ten minutes: earlier restarts count no more"
    if event == CLEARED:
        return "sparkop apply found nothing to do: earlier restarts count no more"
    if gave_up(entry):
        return f"watch {entry['text']}"
    if event == FAULT:
        return f"{_place(entry)}: {entry.get('text') or 'not as it should be'}"
    if event == MENDED:
        over = f": {entry['text']}" if entry.get("text") else ""
        return f"{_place(entry)}: that is over{over}"
    if event == HEALED:
        return f"{_place(entry)}: {_because(str(entry.get('why') or ''))}; watch {entry.get('did')} it"
    if event == FAILED:
        return f"watch could not mend it: {failure_in(entry) or 'no reason known'}"
    if event == intent.STOP:
        now = "; watch leaves it alone" if entry.get("lasts") else ""
        return f"stopped by {entry.get('by') or 'someone'}{now}"
    if event == DAMAGED:
        kept = f"; it is kept as {entry['kept']}" if entry.get("kept") else ""
        return f"the history before this was damaged{kept}"
    if event == PULLED:
        return f"{entry.get('node')}: reference {entry.get('reference')}"
    known = str(entry.get("text") or "")
    others = (f"{key} {value}" for key, value in entry.items() if key not in ("id", "event", "at", "node"))
    at = f"{entry['node']}: " if entry.get("node") else ""
    return known or at + ", ".join(others)


def _because(why: str) -> str:
    """``rank/1 state is exited (137), not running`` of ``rank/1 state: exited (137) -> running``."""
    field, _, change = why.partition(": ")
    observed, _, desired = change.rpartition(" -> ")
    return f"{field} is {observed}, not {desired}" if observed else why or "no cause known"


def _place(entry: Mapping[str, Any]) -> str:
    """``spark-2, fabric`` of ``fabric@spark-2``."""
    what, _, node = str(entry.get("what")).partition("@")
    if f"{what}@" == GROUP:
        return "the group"
    return f"{node}, {what}" if what != "node" else node
