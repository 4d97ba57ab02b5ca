"""What the nodes remember for us: a human's stop, the guard's trips, the last starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkop.hosts.document import Document
from sparkop.resources.intent import intent_in
from sparkop.resources.observed import History, Intent, Trip
from sparkop.resources.trip import trip_in

FILE = "history.json"


def history_of(head: str, documents: Mapping[str, Document], agreed: frozenset[str] = frozenset()) -> History:
    """Read it from the state folders. What can't be read is not remembered, and proves nothing."""
    intents = [intent for intent in map(intent_in, documents.values()) if intent.stopped]
    trips: dict[str, Trip] = {}
    for name, document in documents.items():
        trip = trip_in(name, document)
        if trip is not None:
            trips[name] = trip
    entries = entries_in(documents[head]) if head in documents else []
    starts = [e for e in entries if e.get("event") == "start"]
    ready = [e for e in entries if e.get("event") == "ready"]
    return History(
        intent=max(intents, key=lambda i: i.at, default=Intent()),
        trips=trips,
        epoch=max((_number(e.get("epoch")) for e in starts), default=0),
        generation=max((_number(e.get("generation")) for e in starts), default=0),
        ready_epoch=max((_number(e.get("epoch")) for e in ready), default=0),
        start_seconds=float(_number(ready[-1].get("seconds"))) if ready else 0.0,
        agreed=agreed,
    )


def entries_in(document: Document) -> list[dict[str, Any]]:
    """The entries of a node's history, oldest first; those that are no mapping are left out."""
    history = (document.state or {}).get(FILE)
    entries = history.get("entries") if isinstance(history, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0
