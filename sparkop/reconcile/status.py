"""The report of ``status``: nodes, resources, ranks, guard, memory, API. Data only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from sparkop.engines.common import container_names
from sparkop.hosts.document import Document, Unit
from sparkop.reconcile.access import access_of
from sparkop.reconcile.lease_seen import Sign, signs_in
from sparkop.reconcile.measured import Measured
from sparkop.reconcile.observe import Reading
from sparkop.reconcile.plan import GROUP, Plan
from sparkop.reconcile.restrain import starts_group
from sparkop.reconcile.speeds import Speeds, speeds_in
from sparkop.reconcile.unplanned import unplanned
from sparkop.reconcile.unserved import AGAIN, Unserved, answered, mends, unread, unserved, with_the_stop
from sparkop.reconcile.watch.story import OF_WATCH, open_faults
from sparkop.records import dataclass
from sparkop.resources.base import Resource
from sparkop.resources.clients import KIND as CLIENTS
from sparkop.resources.desired import Desired, DesiredRank
from sparkop.resources.endpoint import KIND as ENDPOINT
from sparkop.resources.endpoint import loading, loads
from sparkop.resources.group import age, as_a_human_wants, examine, state_text
from sparkop.resources.labels import ROLE_GUARD, ROLE_RANK, ours
from sparkop.resources.memguard import floors_of, under
from sparkop.resources.observed import GaveUp
from sparkop.resources.operations import Cause, Operation, kind_of
from sparkop.resources.rank import ALL, borrowed
from sparkop.resources.registry import RESOURCES
from sparkop.resources.state import LEASE, entries_in
from sparkop.resources.trip import Story, advice_of, damaged, damaged_remedy, story_in
from sparkop.resources.weights.follow import running_told
from sparkop.serving.canary import Serving
from sparkop.serving.token_zero import Explained, explain
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import CONTROLLER

State = Literal["ok", "differs", "unknown"]
ClusterState = Literal["ok", "stopped", "differs", "unknown"]
"""``stopped``: a human wanted it so, and nothing serves: that is as wished, whatever an apply would do."""


@dataclass(frozen=True)
class ResourceStatus:
    """One kind on one node. ``detail``: what differs, in words."""

    resource: str
    state: State
    detail: str = ""


@dataclass(frozen=True)
class RankStatus:
    """One rank container that was found or should be there. ``seconds``: how long it has run."""

    rank: int
    node: str
    container: str
    state: str
    """running, exited (N), missing, stopped, unknown, running (another configuration)."""
    epoch: str = ""
    seconds: float | None = None
    oom_killed: bool = False


@dataclass(frozen=True)
class GuardStatus:
    """The memory guard of a node. ``floor`` (of the guard that runs, else the spec's) and ``trip_available``
    in bytes."""

    state: str
    floor: int | None = None
    tripped_at: float | None = None
    trip_available: int | None = None
    trip_damaged: bool = False
    """It has killed ranks; its record of that makes no sense."""
    advice: str = ""
    story: Story | None = None
    """What the guard wrote down before it killed."""


@dataclass(frozen=True)
class OverrideStatus:
    """A rule that the spec sets aside, and the user's reason."""

    rule: str
    reason: str


@dataclass(frozen=True)
class NodeStatus:
    """One node. ``reason`` is set when it is unknown; memory in bytes."""

    node: str
    state: State
    reason: str = ""
    resources: tuple[ResourceStatus, ...] = ()
    guard: GuardStatus | None = None
    memory_total: int | None = None
    memory_available: int | None = None
    memory_under: str = ""
    """The lowest of the guard's floors that it is under: hard, action, soft or empty."""


@dataclass(frozen=True)
class WatchStatus:
    """Who heals the cluster by itself, and whether it has given up."""

    running: bool | None = False
    """None: not known, ``unknown`` says why."""
    signs: tuple[Sign, ...] = ()
    """The watches that have given a sign of life, the newest first."""
    gave_up: GaveUp | None = None
    unknown: str = ""


@dataclass(frozen=True)
class Status:
    """The whole cluster."""

    cluster: str
    state: ClusterState
    nodes: tuple[NodeStatus, ...]
    ranks: tuple[RankStatus, ...]
    endpoint: str
    """What the API did (``serving.canary.Serving``); one that does not listen yet is loading, one that says
    so after it has served, or after its time, is not ready. Of one that could not be asked: stopped,
    tripped, gave up or not serving (``unserved``)."""
    endpoint_detail: str
    url: str
    models: tuple[str, ...]
    key_path: str | None
    stopped_by_human: bool = False
    destroy_begun: bool = False
    """The stop is that of a destroy which has not ended."""
    watch: WatchStatus = WatchStatus()
    warnings: tuple[str, ...] = ()
    overrides: tuple[OverrideStatus, ...] = ()
    measured: tuple[Measured, ...] = ()
    """The engine's own figures beside the budget's, where they were asked for."""
    speeds: Speeds | None = None
    """What ``sparkop bench`` measured last."""
    endpoint_cause: str = ""
    """Why answers are no answers, where that is likely."""
    endpoint_remedy: str = ""
    loading: str = ""
    """How long ranks that do not serve yet have run, and how long is normal; empty when none loads."""
    open: bool = False
    """The API has no key and listens to more than its own machine."""
    notes: tuple[str, ...] = ()
    """What looks like a fault in the logs, and is none."""
    transfers: tuple[str, ...] = ()
    """Transfers of weights that run on the nodes now, in words."""

    @property
    def as_wished(self) -> bool:
        """As desired, or stopped as a human wished; a destroy that has not ended is neither."""
        return self.state == "ok" or (self.state == "stopped" and not self.destroy_begun)

    @property
    def tripped(self) -> bool:
        """A memory guard has killed ranks, and nobody has confirmed that or changed the numbers."""
        guards = [node.guard for node in self.nodes if node.guard is not None]
        return any(guard.tripped_at is not None or guard.trip_damaged for guard in guards)


def status_of(reading: Reading, plan: Plan, resources: Sequence[Resource] = RESOURCES) -> Status:
    """Say per node and resource what is as desired, what differs, and what is unknown. Pure."""
    desired, observed = reading.desired, reading.observed
    spec = desired.spec
    access = access_of(desired)
    explained = explain(spec, observed.endpoint)
    kinds = [resource.kind for resource in resources if resource.kind != CLIENTS]
    state = _state(reading, plan)
    wished = as_a_human_wants(desired, observed, reading.history)
    told, absent = (_without_the_stop(plan), "stopped") if wished else (plan, "missing")
    still = loading(desired, observed, reading.history)
    watch = _watch(reading)
    alive = next((sign for sign in watch.signs if sign.alive), None)
    served = _served(reading, plan, state, alive, loads=bool(still) and loads(observed.endpoint))
    if state != "stopped":
        served = with_the_stop(reading, served)
    return Status(
        cluster=spec.name,
        state=state,
        nodes=(
            *(_node(node.name, reading, told, kinds, absent) for node in spec.nodes),
            *_controller(spec, plan),
        ),
        ranks=_ranks(reading, absent),
        endpoint=served.word,
        endpoint_detail=served.detail,
        url=access.url,
        models=access.models,
        key_path=access.key_path,
        stopped_by_human=reading.history.intent.stopped,
        destroy_begun=reading.history.intent.destroys,
        watch=watch,
        warnings=(*plan.warnings, *_seen_by_watch(reading)),
        overrides=tuple(OverrideStatus(each.id, each.reason) for each in spec.rules.override),
        speeds=speeds_in(spec, observed.documents.get(desired.head)),
        open=access.open,
        endpoint_cause=explained.cause if explained else "",
        endpoint_remedy=_remedy(explained, served, alive, starts=any(map(starts_group, plan.operations))),
        loading=still,
        transfers=running_told(observed.documents),
    )


def _remedy(explained: Explained | None, served: Unserved, watching: Sign | None, *, starts: bool) -> str:
    """What to do: of a watch that lives, that it starts the group again; and what it can't do. ``starts``:
    a new start of the group is planned; else nothing is said of one."""
    if explained is None or (explained.starts_anew and not starts):
        return served.remedy
    if watching is None and starts:
        return explained.remedy
    return served.remedy if explained.restart_helps else f"{served.remedy}\n{explained.remedy}"


def _served(
    reading: Reading, plan: Plan, state: ClusterState, watching: Sign | None, *, loads: bool
) -> Unserved:
    endpoint = reading.observed.endpoint
    if endpoint.serving is not Serving.NOT_ASKED:
        late = "not ready" if endpoint.serving is Serving.LOADING else str(endpoint.serving)
        word = str(Serving.LOADING) if loads else late
        return Unserved(word, *answered(reading, plan, watching, loads=loads))
    if state == "stopped":
        mark = reading.history.intent
        if mark.destroys:
            told = f"by {mark.by}, whose sparkop destroy was begun and has not ended"
            return Unserved("stopped", told, f"sparkop destroy again ends it; {AGAIN}")
        told = f"by {mark.by}, as wished" if mark.by else "as wished"
        first = mends(plan)  # an apply would end there
        return Unserved("stopped", told, f"{first}\nthen {AGAIN}" if first else AGAIN)
    return unserved(reading, plan, watching)


def _watch(reading: Reading) -> WatchStatus:
    """The head has the signs of life; in a cluster that was not applied no watch leaves one."""
    head = reading.desired.head
    document = reading.observed.documents.get(head)
    signs, unknown = signs_in(document), ""
    if document is None or document.state is None or document.error("state", LEASE) is not None:
        unknown = f"its signs of life are on {head}, which could not be read"
    elif reading.history.unapplied:
        unknown = f"no watch leaves a sign of life here ({reading.history.unapplied})"
    running = any(sign.alive for sign in signs) or (None if unknown else False)
    return WatchStatus(running, signs, reading.history.gave_up, "" if running else unknown)


def _seen_by_watch(reading: Reading) -> tuple[str, ...]:
    """What one look can't see, and a watch that lives has found."""
    head = reading.observed.documents.get(reading.desired.head)
    if head is None or not _watch(reading).running:
        return ()
    found = open_faults(entries_in(head))
    return tuple(
        f"{entry.get('node')}: {entry.get('text')}"
        for what, entry in found.items()
        if kind_of(what).partition("@")[0] in OF_WATCH
    )


def _without_the_stop(plan: Plan) -> Plan:
    """What differs although the stop is as wished."""
    kinds = ("memguard", "intent", *GROUP)

    def kept(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
        return tuple(o for o in operations if kind_of(o.resource) not in kinds)

    return replace(plan, operations=kept(plan.operations), waiting=kept(plan.waiting))


def _state(reading: Reading, plan: Plan) -> ClusterState:
    if plan.unknown:
        return "unknown"
    if as_a_human_wants(reading.desired, reading.observed, reading.history):
        return "stopped"
    return "ok" if plan.converged else "differs"


def with_measured(status: Status, measured: tuple[Measured, ...]) -> Status:
    """The status with the engine's own figures, and a warning for each that is not the budget's."""
    off = tuple(f"{each.node}: {each.off}" for each in measured if each.off)
    return replace(status, measured=measured, warnings=(*status.warnings, *off))


def with_notes(status: Status, notes: tuple[str, ...]) -> Status:
    """The status with what a reader of the logs would take for a fault."""
    return replace(status, notes=notes)


def _node(name: str, reading: Reading, plan: Plan, kinds: list[str], absent: str) -> NodeStatus:
    document = reading.observed.documents.get(name)
    if document is None:
        return NodeStatus(name, "unknown", reading.observed.unknown[name].told)
    found = tuple(_or_unplanned(_resource(kind, name, plan), reading, plan, name) for kind in kinds)
    guard = _guard(name, document, reading, absent)
    total = document.memory.total if document.memory else None
    available = document.memory.available if document.memory else None
    # an API that can't be asked for another node's sake makes this one neither unknown nor right
    states = {each.state for each in found if (each.resource, each.state) != (ENDPOINT, "unknown")}
    return NodeStatus(
        node=name,
        state="unknown" if "unknown" in states else "differs" if "differs" in states else "ok",
        resources=found,
        guard=guard,
        memory_total=total,
        memory_available=available,
        memory_under=under(available, total, floors_of(reading.desired.spec, document)) if guard else "",
    )


def _controller(spec: ClusterSpec, plan: Plan) -> tuple[NodeStatus, ...]:
    """A row for the machine that runs sparkop, when the spec lists clients on it."""
    if not spec.clients.connect:
        return ()
    found = _resource(CLIENTS, CONTROLLER, plan)
    return (NodeStatus(CONTROLLER, found.state, resources=(found,)),)


def _resource(kind: str, node: str, plan: Plan) -> ResourceStatus:
    """With all that a human has to mend: of two rails both are named. What is done by itself is told by the
    first of its operations."""
    unread = [u.told for u in plan.unknown if u.node == node and kind_of(u.resource or "") == kind]
    if unread:
        return ResourceStatus(kind, "unknown", "; ".join(dict.fromkeys(unread)))
    blocked = [b.cause for b in plan.blockers if b.node == node and kind_of(b.resource) == kind]
    planned = [o for o in plan.operations if o.node == node and kind_of(o.resource) == kind]
    own = [o for o in planned if o.resource != ALL and borrowed(o.cause) is None]
    told = dict.fromkeys(_told(kind, cause) for cause in blocked or [o.cause for o in (own or planned)[:1]])
    return ResourceStatus(kind, "differs" if told else "ok", "; ".join(told))


def _told(kind: str, cause: Cause) -> str:
    found = borrowed(cause)
    if found is None:
        return cause.told_of(kind)
    other, wrong = found
    return f"starts anew with {other} ({wrong.told})"


def _or_unplanned(status: ResourceStatus, reading: Reading, plan: Plan, node: str) -> ResourceStatus:
    """What nothing is planned for, as something is unknown or in the way, is not right for that; and of a
    group that can't be seen whole the API is not known to be."""
    if status.state != "ok":
        return status
    told = ", ".join(
        f"{resource} {cause.told}" if resource != status.resource else cause.told_of(resource)
        for resource, cause in unplanned(reading, plan, node).items()
        if kind_of(resource) == status.resource
    )
    if told:
        return replace(status, state="differs", detail=told)
    hidden = unread(reading) if (status.resource, node) == (ENDPOINT, reading.desired.head) else ""
    return replace(status, state="unknown", detail=hidden) if hidden else status


def _guard(name: str, document: Document, reading: Reading, absent: str) -> GuardStatus | None:
    trip = reading.history.trips.get(name)
    found = ours(document, reading.desired.spec.name, ROLE_GUARD)
    unread = damaged(document)
    if not reading.desired.spec.memory.guard.enabled and not found and trip is None and not unread:
        return None
    if document.docker is None:
        state = "unknown"
    elif not found:
        state = absent
    else:
        guard = next((each for each, _ in found if each.running), found[0][0])
        state = state_text(guard) + (f" (unit, {guard.kept})" if isinstance(guard, Unit) else "")
    return GuardStatus(
        state=state,
        floor=floors_of(reading.desired.spec, document).action,
        tripped_at=trip.at if trip else None,
        trip_available=trip.available if trip else None,
        trip_damaged=unread,
        advice=damaged_remedy(reading.desired, name)
        if unread
        else advice_of(reading.desired.spec, document)
        if trip
        else "",
        story=_story(document, reading),
    )


def _story(document: Document, reading: Reading) -> Story | None:
    """The guard's own, but for one word: it takes a group for loading until memory has been still for a
    while, whatever the group has served by then."""
    story, served = story_in(document), reading.history.ready_epoch
    if story is None:
        return None
    ranks = ours(document, reading.desired.spec.name, ROLE_RANK)
    killed = {stamp.epoch for rank, stamp in ranks if rank.name in story.containers}
    return replace(story, phase="serving") if 0 < served in killed else story


def _ranks(reading: Reading, absent: str) -> tuple[RankStatus, ...]:
    """What was found, and what should be there but is not."""
    desired, observed = reading.desired, reading.observed
    made = {(rank.node, rank.name): rank for rank in desired.ranks}
    named = zip(desired.spec.nodes, container_names(desired.spec), strict=True)
    wanted = {(node.name, name): rank for rank, (node, name) in enumerate(named)}
    group = examine(desired, observed, reading.history)
    rows = []
    for found in group.found:
        place = (found.node, found.container.name)
        wanted.pop(place, None)
        rows.append(
            RankStatus(
                rank=found.stamp.rank,
                node=found.node,
                container=found.container.name,
                state=state_text(found.container) + _other(desired, made.get(place), found.stamp.hash),
                epoch=str(found.stamp.epoch),
                seconds=age(found.container, observed.documents[found.node])
                if found.container.running
                else None,
                oom_killed=found.container.oom_killed,
            )
        )
    for (node, name), rank in wanted.items():
        document = observed.documents.get(node)
        unseen = document is None or document.docker is None
        rows.append(RankStatus(rank, node, name, "unknown" if unseen else absent))
    return tuple(sorted(rows, key=lambda row: (row.rank, row.node)))


def _other(desired: Desired, own: DesiredRank | None, stamped: str) -> str:
    if not desired.ranks:
        return ""
    if own is None:
        return " (left over)"
    return "" if own.made(stamped) else " (another configuration)"
