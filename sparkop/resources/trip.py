"""What the memory guard has left when it killed ranks: the same numbers are not launched again unasked."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from sparkop.errors import BlockedError
from sparkop.hosts.base import Json
from sparkop.hosts.document import Document, parse_document
from sparkop.records import dataclass
from sparkop.resources.acts import keep_in_story, remove_file
from sparkop.resources.base import Context, Difference, Resource
from sparkop.resources.compare import human_bytes, whole
from sparkop.resources.desired import Desired
from sparkop.resources.group import not_running
from sparkop.resources.labels import ROLE_RANK, ours
from sparkop.resources.observed import AGREED_TRIP, History, Observed, Trip
from sparkop.resources.operations import Action, Blocker, Cause, Cost, Operation
from sparkop.spec.models import ClusterSpec
from sparkop.threads import side_by_side

KIND = "trip"
FILE = "trip.json"
DRAFT = "trip.draft"
"""The record before the guard has published it, which may take seconds after the kill. An empty draft is no
JSON, and is not read."""
AFTER = "sparkop apply --after-trip"
"""How a human confirms what has tripped."""
WORTH = 256 << 20
"""Bytes: of a smaller fall it is not asked who took it, a node's small processes move by so much."""
NO_TIME = 1e11
"""Seconds since 1970 that no clock shows: a record with such a time is damaged."""


@dataclass(frozen=True)
class Story:
    """What the guard has written down before it killed. Bytes; seconds since 1970 by the node's clock."""

    at: float
    available: int
    floor: int
    phase: str = ""
    """``loading`` or ``serving``."""
    containers: tuple[str, ...] = ()
    largest: tuple[str, ...] = ()
    """The largest processes shortly before, as ``name (pid) size``."""
    after: tuple[str, ...] = ()
    """The same, three seconds after the kill: who has the memory now."""
    available_after: int | None = None
    """MemAvailable then."""
    samples: tuple[int, ...] = ()
    """The lowest MemAvailable of each step, oldest first."""
    step: float = 2.0
    """Seconds."""
    missing: int = 0
    """By how much memory had fallen in the time of the samples."""
    outside: int | None = None
    """How much of that processes took that are no rank's, when it was the greater part."""
    taker: str = ""
    """Who of them took most."""


class GuardTrip(Resource):
    """Blocks until the numbers change or a human confirms them; then the record is taken away."""

    kind = KIND

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        operations: list[Operation] = []
        blockers: list[Blocker] = []
        for name in desired.nodes:
            if damaged(observed.documents[name]):
                found = _damaged(desired, name, history)
                operations += [found] if isinstance(found, Operation) else []
                blockers += [found] if isinstance(found, Blocker) else []
        for name, trip in sorted(history.trips.items()):
            if name not in desired.nodes or not desired.ranks:
                continue
            told = f"killed the ranks at {human_bytes(trip.available)} available"
            unchanged = _unchanged(desired, observed, trip)
            if unchanged and AGREED_TRIP not in history.agreed:
                cause = Cause("guard", told, f"never under {human_bytes(trip.floor)}")
                remedy = remedy_of(desired.spec, observed.documents[name])
                blockers.append(Blocker(name, KIND, cause, remedy))
                down = {o.key: o for o in (*operations, *_survivors(desired, observed))}
                operations = list(down.values())
            else:
                wanted = "confirmed by you" if unchanged else "other numbers"
                operations.append(Operation(Action.REMOVE, name, KIND, Cause("guard", told, wanted)))
        return Difference(tuple(operations), tuple(blockers))

    def perform(self, operation: Operation, context: Context) -> None:
        survivor = operation.parameters.get("kill")
        if survivor is not None:
            context.host(operation.node).containers.kill(str(survivor), context.fence(operation.node))
            return
        trip = trip_in(operation.node, context.observed.documents[operation.node])
        if trip is not None:
            keep_in_story(context, entry_of(trip))
        folder = context.desired.nodes[operation.node].state
        aside = bool(operation.parameters.get("damaged"))
        drafted = DRAFT in (context.observed.documents[operation.node].state or {})
        for name in (DRAFT, FILE) if drafted else (FILE,):  # the draft first: it may become the other
            remove_file(context, operation.node, f"{folder}/{name}", aside=aside)


def _damaged(desired: Desired, node: str, history: History) -> Operation | Blocker:
    """Which numbers the guard has stopped is not known: a human says that these may be launched."""
    told = f"stopped the ranks; {FILE} is damaged"
    if AGREED_TRIP in history.agreed:
        cause = Cause("guard", told, "confirmed by you")
        return Operation(Action.REMOVE, node, KIND, cause, parameters={"damaged": True})
    return Blocker(node, KIND, Cause("guard", told, "numbers that fit"), damaged_remedy(desired, node))


def damaged_remedy(desired: Desired, node: str) -> str:
    """What to do about a record that can't be understood."""
    log = shlex.quote(f"{desired.nodes[node].state}/memguard.log")
    return f"there: tail {log} tells more; to launch these numbers: {AFTER} (the file is kept)"


def damaged(document: Document) -> bool:
    """There is a record, and it can't be understood."""
    state = document.state or {}
    return (DRAFT in state or FILE in state) and trip_in("", document) is None


def look_again(context: Context, nodes: Iterable[str]) -> None:
    """Raise BlockedError where a guard has killed ranks since the plan was made; asked right before a start.

    A record that the plan knew is taken away before: what is there now is new.
    """

    def one(node: str) -> Document:
        request = {"sections": ["state"], "state": context.desired.nodes[node].state}
        return parse_document(context.host(node).probe(request), node=node)

    nodes = list(nodes)
    for node, document in zip(nodes, side_by_side(one, nodes, "trip"), strict=True):
        found = trip_in(node, document)
        if found is None and not damaged(document):
            continue
        raise BlockedError(
            entry_text(found) if found else f"the memory guard stopped the ranks; {FILE} is damaged",
            node=node,
            cause="it did so while the group was started",
            remedy=remedy_of(context.desired.spec, document),
        )


def _unchanged(desired: Desired, observed: Observed, trip: Trip) -> bool:
    """Whether the ranks would take as much memory as those that were killed."""
    if trip.numbers:
        return any(rank.numbers == trip.numbers for rank in desired.ranks)
    if any(rank.made(trip.hash) for rank in desired.ranks):
        return True
    return _of_this_spec(desired, observed, trip)


def remedy_of(spec: ClusterSpec, document: Document) -> str:
    """What to do about the trip of a node, and how to go on."""
    return f"{advice_of(spec, document)}; to launch the same numbers again: {AFTER}"


def advice_of(spec: ClusterSpec, document: Document) -> str:
    """Against what took the memory: lower numbers are no help against a process that is no rank's."""
    story = story_in(document)
    if story is None or story.outside is None:
        unsettled = story is not None and story.available_after is None and story.missing >= WORTH
        return advice_on_either(spec) if unsettled else advice_for(spec)
    taker = f"{story.taker} if it still runs" if story.taker else "what took it"
    return f"end {taker}, or let it take less: the group did not take this memory"


def advice_on_either(spec: ClusterSpec) -> str:
    """Where it is not known what took the memory, as until the guard has looked again after the kill."""
    return f"end what else runs there (sparkop memory), or {advice_for(spec)}"


def advice_for(spec: ClusterSpec) -> str:
    """What to lower first, with the figure that the spec has now."""
    memory = spec.memory
    if memory.kv_cache is not None:
        first = f"memory.kvCache (now {human_bytes(int(memory.kv_cache))})"
    elif memory.gpu_fraction is not None:
        first = f"memory.gpuFraction (now {memory.gpu_fraction:g})"
    else:
        first = "memory.kvCache or memory.gpuFraction"
    return f"lower {first} before you raise the guard's floor"


def _of_this_spec(desired: Desired, observed: Observed, trip: Trip) -> bool:
    """The rank that was killed is there, and this spec made it: a rail that was lost since then changes the
    containers, but not their numbers."""
    return any(
        stamp.hash == trip.hash and stamp.spec == desired.spec_hash
        for document in observed.documents.values()
        for _, stamp in ours(document, desired.spec.name, ROLE_RANK)
    )


def _survivors(desired: Desired, observed: Observed) -> list[Operation]:
    """Ranks that still run although one was killed: they serve nothing, and hold memory and connections."""
    serving = not not_running(desired, observed)
    return [
        Operation(
            Action.REMOVE,
            node,
            f"{KIND}/{container.name}",
            Cause(f"rank/{stamp.rank}", "running without the others", "down with the group"),
            Cost(stops_serving=serving),
            parameters={"kill": container.name},
        )
        for node in desired.nodes
        for container, stamp in ours(observed.documents[node], desired.spec.name, ROLE_RANK)
        if container.running
    ]


def entry_of(trip: Trip) -> dict[str, Json]:
    """A trip as the history keeps it."""
    return {
        "id": f"{KIND}-{trip.node}-{trip.at:.0f}",
        "event": KIND,
        "node": trip.node,
        "text": entry_text(trip),
        "at": trip.at,
    }


def entry_text(trip: Trip) -> str:
    """In words."""
    return f"the memory guard stopped the ranks at {human_bytes(trip.available)} available"


def _record(document: Document) -> Any:
    """What the guard wrote last, published or not; None: nothing."""
    state = document.state or {}
    return state[DRAFT] if DRAFT in state else state.get(FILE)


def trip_in(node: str, document: Document) -> Trip | None:
    """The guard's record on a node; None when there is none that can be read."""
    record = _record(document)
    if not isinstance(record, dict):
        return None
    try:
        hashes, numbers = (record.get(key) or [] for key in ("hashes", "numbers"))
        at = float(record["at"])
        if not 0 <= at < NO_TIME:
            return None
        return Trip(
            node=node,
            hash=str(hashes[0]) if hashes else "",
            at=at,
            available=int(record["available"]),
            floor=int(record["floor"]),
            numbers=str(numbers[0]) if numbers else "",
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def story_in(document: Document) -> Story | None:
    """The same record, with everything worth telling; parts that can't be read are left out."""
    record = _record(document)
    trip = trip_in("", document)
    if trip is None or not isinstance(record, dict):
        return None
    found, step = record.get("samples"), record.get("step")
    samples = tuple(int(s) << 20 for s in found if isinstance(s, int)) if isinstance(found, list) else ()
    missing = max(samples, default=0) - trip.available
    outside, taker = _outside(record, missing)
    return Story(
        at=trip.at,
        available=trip.available,
        floor=trip.floor,
        phase=str(record.get("phase") or ""),
        containers=_texts(record.get("containers")),
        largest=_processes(record.get("largest")),
        after=_processes(record.get("after")),
        available_after=whole(record.get("available_after")),
        samples=samples,
        step=float(step) if isinstance(step, int | float) and 0 < step < NO_TIME else 2.0,
        missing=max(0, missing),
        outside=outside,
        taker=taker,
    )


def _outside(record: Mapping[str, Any], missing: int) -> tuple[int | None, str]:
    """How much was taken outside of the group and who took most; None unless that is most of what is missing.

    By what they have in their own memory: what ranks have on the GPU is in no figure of a process, so the
    group's share is what is left. The look after the kill sees also who took it all in the last seconds.
    """
    looks = [look for key in ("outside", "outside_after") if isinstance(look := record.get(key), dict)]
    grown = [(whole(look.get("grew")) or 0, look.get("most")) for look in looks]
    grew, most = max(grown, key=lambda each: each[0], default=(0, None))
    if missing < WORTH or grew * 2 <= missing:
        return None, ""
    return min(grew, missing), _process(most) if isinstance(most, dict) else ""


def _texts(found: Any) -> tuple[str, ...]:
    return tuple(str(each) for each in found) if isinstance(found, list) else ()


def _processes(found: Any) -> tuple[str, ...]:
    return tuple(_process(p) for p in found if isinstance(p, dict)) if isinstance(found, list) else ()


def _process(found: Mapping[str, Any]) -> str:
    size = found.get("rss")
    return f"{found.get('name')} ({found.get('pid')}) {human_bytes(size if isinstance(size, int) else 0)}"
