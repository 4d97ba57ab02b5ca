"""What ``watch`` writes down, so that ``sparkop events`` can tell it: faults that come and go. Pure.

At rest nothing is written: an entry is due only for what the history does not know yet.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparkop.hosts import silent_docker
from sparkop.hosts.document import Document
from sparkop.plain import one_line
from sparkop.reconcile.history import (
    ACCEPTED,
    BOOTED,
    FAULT,
    GAVE_UP,
    HEALED,
    MENDED,
    REFUSED,
    SERVED,
    gave_up,
    of_human,
)
from sparkop.reconcile.history import GROUP as ALL_RANKS
from sparkop.reconcile.plan import GROUP, Plan
from sparkop.records import dataclass
from sparkop.resources.checks import links
from sparkop.resources.checks.model import Look, Nodes, findings
from sparkop.resources.compare import human_bytes
from sparkop.resources.desired import Desired
from sparkop.resources.failure import REBOOTED
from sparkop.resources.group import age, down, missing
from sparkop.resources.labels import ROLE_RANK, ours
from sparkop.resources.liveness import Life, Verdict
from sparkop.resources.masking import mask
from sparkop.resources.memguard import heartbeat
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Action, Operation, kind_of
from sparkop.resources.rank_logs import KIND as LOGS
from sparkop.resources.trip import KIND as TRIP
from sparkop.resources.trip import advice_on_either
from sparkop.serving.canary import Serving

RESET_AFTER = 600.0
"""Seconds of canaries without a break after which earlier restarts count no more."""
OFTEN, QUIET = 3, 600.0
"""How often within so many seconds a fault is written down that was over at the next look: what comes and
goes all the time would push the rest out of the history."""
TEXT = 600
"""Characters of a text that are kept."""
NEAR = 1.5
"""How many times the guard's floor is little memory."""
CLEARLY = 1.25
"""How much over that it must be for the warning to be over."""


_DID = {
    Action.CREATE: "created",
    Action.UPDATE: "replaced",
    Action.REMOVE: "removed",
    Action.START: "started",
    Action.DOWNLOAD: "downloaded",
    Action.COPY: "copied",
    Action.PULL: "pulled",
    Action.BUILD: "built",
}
_TOLD_OTHERWISE = (*GROUP, TRIP, LOGS)
"""Kinds that come and go with the group."""
RAILS = next(check for check in links.CHECKS if check.id == "rdma.active")
DOCKER = "docker"
"""What a silent engine's fault is called."""
OF_WATCH = ("speed", "gpu", "clocks", "memory")
"""Faults that one look can't see: kinds of what only a watch finds."""


@dataclass(frozen=True)
class Fault:
    """What only a human can mend, what hides a node, or what is not as it should be."""

    node: str
    what: str
    remedy: str = ""
    at: float = 0.0
    """When it was first seen; seconds since 1970."""
    then: str = ""
    """Its text at that moment, if it has changed since: a node that boots is told anew at each look."""
    fields: tuple[str, ...] = ()
    """What is not as it should be, where that is known: two rails of one node are two."""

    @property
    def text(self) -> str:
        """Both, however long: the remedy is never cut off."""
        told = self.what[: TEXT - len(self.remedy)] if len(self.remedy) < TEXT else ""
        return "; ".join(part for part in (told, self.remedy) if part)

    def beside(self, other: Fault) -> Fault:
        """Both in one, of one kind on one node: each is told, and the remedies as far as there is room."""
        what = "; ".join(dict.fromkeys((self.what, other.what)))
        remedy = "; ".join(dict.fromkeys(part for part in (self.remedy, other.remedy) if part))
        if len(remedy) > TEXT // 2 and self.remedy:
            remedy = f"{self.remedy}; the rest: sparkop diff"
        return replace(self, what=what, remedy=remedy, fields=(*self.fields, *other.fields))


def faults_of(plan: Plan, observed: Observed) -> dict[str, Fault]:
    """By a name that stays the same while it lasts. What a silent Docker hides is one fault of its node."""
    found = {
        f"{DOCKER}@{node}": Fault(node, silent_docker.why(document), silent_docker.remedy(document))
        for node, document in observed.documents.items()
        if document.docker is None
    }
    for blocker in plan.blockers:
        cause, what = blocker.cause, f"{blocker.resource}@{blocker.node}"
        ended = f"{GAVE_UP}: {cause.observed}" if cause.field == GAVE_UP else ""
        told = ended or cause.told_of(blocker.resource)
        fault = Fault(blocker.node, told, blocker.remedy, fields=(cause.field,))
        found[what] = found[what].beside(fault) if what in found else fault
    for unknown in plan.unknown:
        docker = found.get(f"{DOCKER}@{unknown.node}")
        if docker is not None and unknown.reason == docker.what:
            continue
        what = f"{unknown.resource or 'node'}@{unknown.node}"
        found.setdefault(what, Fault(unknown.node, unknown.reason, unknown.remedy or ""))
    return found


def rails_lost(desired: Desired, observed: Observed) -> dict[str, Fault]:
    """Rails that the ranks go without: a group that is started anew has other addresses for that."""
    found: dict[str, Fault] = {}
    nodes = Nodes(observed.documents)
    for node in (each for each in desired.spec.nodes if each.name in observed.documents):
        for each in findings(RAILS, Look(desired, node, nodes)):
            if each.lessens:
                fault = Fault(node.name, each.text, each.remedy, fields=(each.field,))
                what = f"{RAILS.kind}@{node.name}"
                found[what] = found[what].beside(fault) if what in found else fault
    return found


def ranks_down(plan: Plan, desired: Desired, observed: Observed, before: Container[str]) -> dict[str, Fault]:
    """Ranks that are down while a fault or a pause is in the way of their start, until they run again. What
    was found ``before`` is not over while its restart is only planned, nor when its container is removed:
    another's apply does that minutes before the rank runs."""
    waits = _waits(plan)
    start = "it is started when the other faults are mended" if waits else "it waits for its restart"
    return {
        f"{rank}@{node}": Fault(node, f"{rank} is down: {state}; {start}")
        for node, document in observed.documents.items()
        for rank, state in _not_up(desired, node, document).items()
        if waits or plan.held or f"{rank}@{node}" in before
    }


def _waits(plan: Plan) -> bool:
    """Whether something else is in the way of the group."""
    faults = [each.resource for each in plan.blockers] + [each.resource or "node" for each in plan.unknown]
    return any(kind_of(resource) not in (*GROUP, TRIP) for resource in faults)


def given_up(
    plan: Plan, known: Mapping[str, Mapping[str, Any]], then: Mapping[str, Fault]
) -> dict[str, Fault]:
    """Why the group is left down, as it was told (``known``: of `open_faults`), while something else is in
    the way: nothing of the group is planned then, so that no look can find that it is over."""
    told = {what: entry for what, entry in known.items() if what.startswith(ALL_RANKS)}
    kept = {w: Fault(str(e.get("node") or ""), str(e.get("text") or "")) for w, e in told.items()}
    return {what: then.get(what, fault) for what, fault in kept.items()} if _waits(plan) else {}


def _not_up(desired: Desired, node: str, document: Document) -> dict[str, str]:
    return {**down(desired, document), **dict.fromkeys(missing(desired, node, document), "missing")}


def low_memory(desired: Desired, observed: Observed, before: Container[str] = ()) -> dict[str, Fault]:
    """Nodes that serve with little more memory than the guard's floor: told before it acts.

    Not the soft floor alone: a model that fills its Spark serves under it for good. What was found ``before``
    is over only when there is clearly more again.
    """
    guard = desired.spec.memory.guard
    limit = min(int(guard.soft_floor), int(guard.action_floor) * NEAR)
    found: dict[str, Fault] = {}
    for node, document in observed.documents.items():
        memory = document.memory
        serving = heartbeat(document).get("phase") == "serving"
        least = limit * (CLEARLY if f"memory@{node}" in before else 1)
        if guard.enabled and serving and memory and memory.available < least:
            told = f"{human_bytes(memory.available)} available while serving; the guard stops the ranks at "
            told += human_bytes(int(guard.action_floor))
            remedy = advice_on_either(desired.spec)
            found[f"memory@{node}"] = Fault(node, told, remedy)
    return found


def open_faults(entries: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Faults that were told and not yet told to be over: name -> entry. A human's ``apply`` ends a giving up,
    and tells it."""
    known: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        event = entry.get("event")
        if event == FAULT:
            known[str(entry.get("what"))] = entry
        elif event == MENDED:
            known.pop(str(entry.get("what")), None)
        elif of_human(entry):
            known = {what: each for what, each in known.items() if not gave_up(each)}
    return known


def unread_of(observed: Observed) -> frozenset[str]:
    """Nodes of which it is not known whether their rank runs."""
    silent = (name for name, document in observed.documents.items() if document.docker is None)
    return frozenset((*observed.unknown, *silent))


def _hidden(what: str, node: object, unread: Collection[str]) -> bool:
    """Whether nobody can tell now that a fault is over. One of the group is as long as any node is silent."""
    return node in unread or (bool(unread) and what.startswith(ALL_RANKS))


def since(
    now: Mapping[str, Fault], then: Mapping[str, Fault], at: float, unread: Collection[str]
) -> dict[str, Fault]:
    """The faults of a look, each with the moment of the first look in a row that has seen it. What was wrong
    ``then`` with a node that is ``unread`` now is not over."""
    lasting = {w: fault for w, fault in then.items() if w not in now and _hidden(w, fault.node, unread)}
    return lasting | {what: _since(fault, then.get(what), at) for what, fault in now.items()}


def _since(fault: Fault, then: Fault | None, at: float) -> Fault:
    return replace(fault, at=at) if then is None else replace(fault, at=then.at, then=then.then or then.text)


def entries_due(
    entries: Sequence[Mapping[str, Any]],
    then: Mapping[str, Fault] | None,
    now: Mapping[str, Fault],
    at: float,
    unread: Collection[str] = (),
    gone: Mapping[str, float] | None = None,
) -> list[dict[str, Any]]:
    """Entries for faults that were there at two looks (``then`` and ``now``), for those that were over at the
    second, and for those that were gone at two, of nodes that were read. ``at``: seconds since 1970.
    ``gone``: of `gone_since`; else a fault that was over before a restart stood after it in the story."""
    if then is None:
        return []
    known, moments = open_faults(entries), gone or {}
    lasting = {what: fault for what, fault in now.items() if what in then}
    due = [_begun(what, fault) for what, fault in lasting.items() if what not in known]
    due += [
        _begun(what, replace(fault, at=at, then=""))
        for what, fault in lasting.items()
        if what in known and not what.startswith(ALL_RANKS) and _grown(fault, then[what], known[what])
    ]
    told = {entry.get("id") for entry in entries}
    for what, fault in then.items():
        fresh = what not in known and _id(what, fault) not in told
        if what not in now and fresh and not _told_often(entries, FAULT, what, at):
            due += [_begun(what, fault), _over(what, fault.then or fault.text, moments.get(what, at))]
    over = (what for what in sorted(known) if what not in now and what not in then)
    return due + [
        _over(w, str(known[w].get("text")), moments.get(w, at))
        for w in over
        if not _hidden(w, known[w].get("node"), unread)
    ]


def _grown(now: Fault, then: Fault, entry: Mapping[str, Any]) -> bool:
    """Something more is wrong there, at two looks, than its entry tells."""
    told = entry.get("fields")
    return isinstance(told, list) and not set(now.fields) & set(then.fields) <= set(told)


def gone_since(
    known: Iterable[str], now: Container[str], before: Mapping[str, float], at: float
) -> dict[str, float]:
    """Faults that are ``known`` and not there ``now``, each with the moment of the first look in a row that
    has not seen it. ``before``: the same of the look before."""
    return {what: before.get(what, at) for what in known if what not in now}


def _id(what: str, fault: Fault) -> str:
    return f"{FAULT}-{what}-{fault.at:.0f}"


def _begun(what: str, fault: Fault) -> dict[str, Any]:
    return {
        "id": _id(what, fault),
        "event": FAULT,
        "what": what,
        "node": fault.node,
        "text": fault.then or fault.text,
        "fields": list(fault.fields),
        "at": fault.at,
    }


def _over(what: str, told: str, at: float) -> dict[str, Any]:
    """``told``: the fault's text; what was to be done is over, too."""
    text = told.partition("; ")[0]
    return {"id": f"{MENDED}-{what}-{at:.0f}", "event": MENDED, "what": what, "text": text, "at": at}


def _told_often(entries: Sequence[Mapping[str, Any]], event: str, what: str, at: float) -> bool:
    told = (entry.get("at") for entry in entries if (entry.get("event"), entry.get("what")) == (event, what))
    lately = [moment for moment in told if isinstance(moment, int | float) and 0 <= at - moment < QUIET]
    return len(lately) >= OFTEN


def refused_edit(why: str, at: float) -> dict[str, Any]:
    """An edit of the spec that is not followed. ``why``: the refusal in one line."""
    text = f"an edit of the spec was refused, and watch keeps the one before: {mask(one_line(why))[:TEXT]}"
    return {"id": f"{REFUSED}-{at:.1f}", "event": REFUSED, "text": text, "at": at}


def accepted_edit(at: float) -> dict[str, Any]:
    """The spec can be read: what was refused is mended, if anything was."""
    return {"id": f"{ACCEPTED}-{at:.1f}", "event": ACCEPTED, "text": "the spec is accepted again", "at": at}


def edits_due(entries: Sequence[Mapping[str, Any]], edits: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of entries of edits those that are not written down; that one is accepted is told after a refusal."""
    written = {entry.get("id") for entry in entries}
    before = [entry["event"] for entry in entries if entry.get("event") in (REFUSED, ACCEPTED)]
    refused, due = before[-1:] == [REFUSED], []
    for edit in edits:
        if edit["id"] not in written and (refused or edit["event"] == REFUSED):
            refused = edit["event"] == REFUSED
            due.append(edit)
    return due


def healed(
    entries: Sequence[Mapping[str, Any]], done: Sequence[Operation], at: float
) -> list[dict[str, Any]]:
    """What was mended beside the group, which has entries of its own: one for each thing, with its cause. A
    guard that dies whenever it is started is written down as often as a fault that comes and goes."""
    by_thing: dict[str, list[Operation]] = {}
    for operation in done:
        if operation.action in _DID and kind_of(operation.resource) not in _TOLD_OTHERWISE:
            by_thing.setdefault(f"{kind_of(operation.resource)}@{operation.node}", []).append(operation)
    return [
        {
            "id": f"{HEALED}-{what}-{at:.0f}",
            "event": HEALED,
            "what": what,
            "node": operations[0].node,
            "why": operations[0].cause.told[:TEXT],
            "did": " and ".join(dict.fromkeys(_DID[operation.action] for operation in operations)),
            "at": at,
        }
        for what, operations in by_thing.items()
        if not _told_often(entries, HEALED, what, at)
    ]


def boots_in(observed: Observed) -> dict[str, str]:
    """Node -> boot id, of the nodes that were read."""
    return {name: doc.machine.boot_id for name, doc in observed.documents.items() if doc.machine}


def ended_by_boot(desired: Desired, observed: Observed) -> tuple[str, ...]:
    """Nodes that have booted since a rank that is down there was started: also when no watch saw the boot."""
    return tuple(
        name
        for name, document in observed.documents.items()
        for container, _ in ours(document, desired.spec.name, ROLE_RANK)
        if document.machine and not container.running
        if (age(container, document) or 0.0) > document.machine.uptime_s
    )


def boots_due(then: Mapping[str, str], now: Mapping[str, str], at: float) -> list[dict[str, Any]]:
    """Why ranks ended that nothing else ended: their node went down and came back between two looks.
    ``then``: boot ids when all was well last."""
    return [
        {
            "id": f"{BOOTED}-{node}-{boot}",
            "event": BOOTED,
            "node": node,
            "text": f"{node} has booted anew: {REBOOTED}",
            "at": at,
        }
        for node, boot in now.items()
        if then.get(node, boot) != boot
    ]


def life_due(
    life: Life, serving: Serving, history: History, monotonic: float, at: float
) -> list[dict[str, Any]]:
    """A group that serves although nobody saw its start to the end; one that has served for long.

    ``serving``: at this look; ``life`` stays as it was of a group that can't be asked any more.
    """
    due: list[dict[str, Any]] = []
    known = life.verdict is Verdict.SERVING and life.served_since is not None
    if not known or serving is not Serving.READY or life.epoch != history.epoch:
        return due
    served = monotonic - (life.served_since or 0.0)
    numbers = {"epoch": life.epoch, "generation": history.generation}
    if history.ready_epoch < life.epoch:
        due.append({"id": f"ready-{life.epoch}", "event": "ready", **numbers, "at": at - served})
    if history.restarts and served >= RESET_AFTER:
        due.append({"id": f"{SERVED}-{life.epoch}", "event": SERVED, **numbers, "at": at})
    return due
