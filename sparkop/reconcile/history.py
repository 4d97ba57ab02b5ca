"""What the nodes remember for us: a human's stop, the guard's trips, the last starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from sparkop.hosts.document import Document
from sparkop.resources.intent import intent_in
from sparkop.resources.labels import ROLE_GUARD, ROLE_RANK, ours
from sparkop.resources.observed import GaveUp, History, Intent, Restart, Trip
from sparkop.resources.state import OWNER, entries_in, history_damaged, owner_of
from sparkop.resources.trip import trip_in
from sparkop.spec.models import ClusterSpec

SERVED = "served"
"""The group has served canaries for so long that its restarts before count no more."""
FAULT, MENDED, FAILED = "fault", "mended", "failed"
"""What ``watch`` has seen come and go, and what it could not do."""
BOOTED = "booted"
"""A node has another boot id than when ``watch`` last found all well."""
REFUSED = "spec-refused"
"""The spec file was edited so that it is refused while ``watch`` ran."""
ACCEPTED = "spec-accepted"
"""The spec is read again after an edit that was refused."""
HEALED = "healed"
"""What ``watch`` has mended beside the group: a dead guard, a file that was gone."""
GROUP = "rank/all@"
"""The fault that no restart helped begins with it."""
GAVE_UP = "gave up"
"""How its text begins."""
DAMAGED = "damaged"
"""What was remembered before this entry was in a file that is damaged."""
CLEARED = "cleared"
"""A human's ``apply`` found nothing to do: what was counted against the group before counts no more."""
UNAPPLIED = "destroyed, or never applied"
"""How the reason begins why a cluster is left alone."""
WATCH = "watch"
"""Who started a group, in its entry; anything else is a human's command."""


def history_of(
    spec: ClusterSpec, documents: Mapping[str, Document], agreed: frozenset[str] = frozenset()
) -> History:
    """Read it from the state folders. What can't be read is not remembered, and proves nothing."""
    head = spec.head.name
    intents = [intent for intent in map(intent_in, documents.values()) if intent.stopped]
    trips: dict[str, Trip] = {}
    for name, document in documents.items():
        trip = trip_in(name, document)
        if trip is not None:
            trips[name] = trip
    entries = entries_in(documents[head]) if head in documents else []
    damaged = head in documents and history_damaged(documents[head])
    starts = [e for e in entries if e.get("event") == "start"]
    ready = [e for e in entries if e.get("event") == "ready"]
    served = [e for e in entries if e.get("event") in ("ready", SERVED)]
    count = _counted(entries)
    return History(
        intent=max(intents, key=lambda i: i.at, default=Intent()),
        trips=trips,
        epoch=max((_number(e.get("epoch")) for e in starts), default=0),
        generation=max((_number(e.get("generation")) for e in starts), default=0),
        spec=str(starts[-1].get("spec") or "") if starts else "",
        ready_epoch=max((_number(e.get("epoch")) for e in served), default=0),
        start_seconds=_measured(ready),
        restarts=tuple(count.restarts),
        booted=count.booted,
        unfinished=_unfinished(entries),
        gave_up=_gave_up(entries),
        forgotten=damaged or _forgotten(entries),
        unapplied=_unapplied(spec.name, documents),
        agreed=agreed,
    )


def _measured(ready: list[dict[str, Any]]) -> float | None:
    """How long the last start took that was measured. No figure, or 0: the container's age was not known."""
    figures = (entry.get("seconds") for entry in reversed(ready))
    return next((float(each) for each in figures if isinstance(each, int | float) and 0 < each < inf), None)


def _unapplied(cluster: str, documents: Mapping[str, Document]) -> str:
    """Why the nodes don't show that it was applied; empty when every one that can tell does. A node that was
    off during a ``destroy`` shows it, and so does the rest when another one was set up anew: both have to be
    told by a human."""
    told = {name: applied_on(cluster, document) for name, document in documents.items()}
    bare = [name for name, applied in told.items() if applied is False]
    if bare:
        where = "" if len(bare) == len(told) else f" on {', '.join(bare)}"
        return f"{UNAPPLIED}{where}"
    return "" if True in told.values() else "no node tells whether it was applied"


def applied_on(cluster: str, document: Document) -> bool | None:
    """This node has what only ``apply`` writes; None when it can't tell. What a watch, a guard or a download
    leaves there is no sign of it: a watch has made clusters again that were destroyed. A folder without the
    mark is told even while Docker is silent: nothing could be started there anyway."""
    if any(ours(document, cluster, role) for role in (ROLE_RANK, ROLE_GUARD)):
        return True
    if document.state is None or document.error("state", OWNER) is not None:
        return None
    return OWNER in document.state and owner_of(document) in (None, cluster)


class _Count:
    """Starts by ``watch`` since the last one by a human, and since a group has served for long."""

    def __init__(self) -> None:
        self.restarts: list[Restart] = []
        self.booted: tuple[str, ...] = ()
        """Nodes that have booted since the last start."""

    def take(self, entry: Mapping[str, Any]) -> None:
        """One more entry."""
        event = entry.get("event")
        if event == BOOTED:
            self._boot(str(entry.get("node") or "a node"))
        elif event == "start" and entry.get("by") == WATCH:
            if self.restarts and self.restarts[-1].epoch == entry.get("resumes"):
                self._boot(*self.restarts.pop().booted)
            self.restarts.append(_restart(entry, self.booted))
            self.booted = ()
        elif event in ("start", SERVED, CLEARED):
            self.restarts.clear()
            self.booted = ()

    def _boot(self, *nodes: str) -> None:
        self.booted = tuple(dict.fromkeys((*self.booted, *nodes)))


def told_boots(nodes: Sequence[str]) -> str:
    """Why ranks ended that a boot has ended, whatever their exit codes."""
    return f"{' and '.join(nodes)} booted anew"


def _restart(entry: Mapping[str, Any], booted: tuple[str, ...]) -> Restart:
    return Restart(
        epoch=_number(entry.get("epoch")),
        at=_moment(entry),
        why=told_boots(booted) if booted else str(entry.get("why") or ""),
        generation=_number(entry.get("generation")),
        node="" if booted else str(entry.get("node") or ""),
        booted=booted,
    )


def _counted(entries: list[dict[str, Any]]) -> _Count:
    count = _Count()
    for entry in entries:
        count.take(entry)
    return count


def _unfinished(entries: list[dict[str, Any]]) -> int:
    for entry in reversed(entries):
        if entry.get("event") in ("ready", SERVED, FAILED):
            return 0
        if entry.get("event") == "start":
            own = entry.get("by") == WATCH and not entry.get("resumes")
            return _number(entry.get("epoch")) if own else 0
    return 0


def _gave_up(entries: list[dict[str, Any]]) -> GaveUp | None:
    found: GaveUp | None = None
    failure, count = "", _Count()
    for entry in entries:
        count.take(entry)
        event, group = entry.get("event"), str(entry.get("what") or "").startswith(GROUP)
        if event == FAILED:
            failure = failure_in(entry)
        elif event == FAULT and group:
            found = GaveUp(_moment(entry), _why(entry), tuple(count.restarts), failure)
        elif of_human(entry) or (event == MENDED and group):
            found, failure = None, ""
    return found


def of_human(entry: Mapping[str, Any]) -> bool:
    """A human's ``apply``: watch begins anew."""
    event = entry.get("event")
    return event == CLEARED or (event == "start" and entry.get("by") != WATCH)


def gave_up(entry: Mapping[str, Any]) -> bool:
    """This fault is that no restart helped."""
    return entry.get("event") == FAULT and str(entry.get("text") or "").startswith(GAVE_UP)


def counts_against(history: History) -> bool:
    """What ``apply`` clears: restarts that count, a watch that gave up, a count that is not known."""
    return bool(history.restarts or history.gave_up or history.forgotten)


def _why(entry: Mapping[str, Any]) -> str:
    return str(entry.get("text") or "").removeprefix(f"{GAVE_UP}: ")


def failure_in(entry: Mapping[str, Any]) -> str:
    """What ``watch`` could not do, with the node."""
    return ": ".join(str(entry[key]) for key in ("node", "text") if entry.get(key))


def _moment(entry: Mapping[str, Any]) -> float:
    at = entry.get("at")
    return float(at) if isinstance(at, int | float) else 0.0


def _forgotten(entries: list[dict[str, Any]]) -> bool:
    """A history that was damaged says nothing of restarts, until a count begins anew."""
    for entry in reversed(entries):
        if entry.get("event") == DAMAGED:
            return True
        if entry.get("event") == SERVED or of_human(entry):
            return False
    return False


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0
