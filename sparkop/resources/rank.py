# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""The ranks: one container a node, and one unit (principle 4).

If one has to be replaced, all are: keep the logs, stop all, see that they are gone and that memory came
back, start the workers, then the head. In a plan::

    record rank/all   on the head: the group's number, before anything is touched; waits for everything else
    remove rank/N     head first (a follower may not stop while its head lives); keeps the log
    wait   rank/all   every rank is gone on every node, memory has come back
    start  rank/N     workers together, then the head
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from sparkop.engines.common import container_names
from sparkop.errors import BlockedError, LeaseHeldError, SparkopError, UnreachableError
from sparkop.hosts import silent_docker
from sparkop.hosts.base import ContainerSpec, Json
from sparkop.hosts.document import parse_document
from sparkop.resources import memory_gate, trip
from sparkop.resources.acts import ensure_directory, record
from sparkop.resources.base import Context, Difference, Resource
from sparkop.resources.compare import human_bytes, unread
from sparkop.resources.desired import Desired
from sparkop.resources.group import KEY, Found, Group, examine, may_serve
from sparkop.resources.incident import folder, keep, keep_log
from sparkop.resources.labels import CLUSTER, ROLE_RANK, ours
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Action, Blocker, Cause, Cost, Operation, Origin, Unknown, kind_of
from sparkop.resources.rank_logs import follow_or_tell
from sparkop.resources.weights.job import release_pages
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

KIND = "rank"
ALL = "rank/all"
GRACE = 10.0
"""Seconds that a rank gets to end by itself: a vLLM follower without its head takes 11 and does no work."""
GONE_DEADLINE = 120.0
SETTLED = 0.01
"""Memory has come back when it grows by less than this part of all memory between two looks."""


class Ranks(Resource):
    """All ranks of the cluster."""

    kind = KIND

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Json]:
        return {"labels": [f"{CLUSTER}={spec.name}"], "containers": list(container_names(spec))}

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        unknown = tuple(
            unread(observed.documents[name], "docker", name, KIND)
            for name in desired.nodes
            if observed.documents[name].docker is None
        )
        unknown += tuple(Unknown(n.name, n.unread, KIND) for n in desired.nodes.values() if n.unread)
        if unknown or not observed.complete:
            return Difference(unknown=unknown)
        if not desired.ranks:
            return Difference(blockers=_cannot_render(desired))
        group = examine(desired, observed, history)
        if group.causes:
            return Difference(replacement(desired, group, history), warnings=group.warnings)
        return Difference(left_over(desired, group), warnings=(*group.warnings, *_policies(desired, group)))

    def perform(self, operation: Operation, context: Context) -> None:
        if operation.action is Action.RECORD:
            before = int(operation.parameters["before"])
            kept = folder(before) if before else ""
            if before:
                keep(context, operation.cause, before)
            resumes = operation.parameters.get("resumes")
            record(
                context,
                operation.node,
                {
                    "id": f"start-{operation.parameters['epoch']}",
                    "event": "start",
                    "epoch": operation.parameters["epoch"],
                    "generation": operation.parameters["generation"],
                    "spec": operation.parameters["spec"],
                    "node": operation.parameters["cause_node"],
                    "why": operation.cause.told,
                    **({"kept": kept} if kept else {}),
                    "by": operation.parameters.get("by", "human"),
                    **({"resumes": resumes} if resumes else {}),
                    "at": context.clock.time(),
                },
            )
        elif operation.action is Action.REMOVE:
            _remove(operation, context)
        elif operation.action is Action.WAIT:
            _wait_gone(operation, context)
        else:
            _start(operation, context)


def _cannot_render(desired: Desired) -> tuple[Blocker, ...]:
    if any(node.facts is None for node in desired.nodes.values()):
        return ()  # the fabric tells why, and what to do
    cause = Cause("containers", "can't be rendered", "one for each rank")
    return (Blocker(desired.head, KIND, cause, desired.why_no_ranks),)


def replacement(desired: Desired, group: Group, history: History) -> tuple[Operation, ...]:
    """The operations that make a new group, as described above."""
    resource, node, first = group.causes[0]
    changed = any(_is_spec_change(cause) for _, _, cause in group.causes)
    unchanged = not changed if group.found else history.spec == desired.spec_hash
    numbers = {
        "before": group.epoch,
        "epoch": 1 + max(group.epoch, history.epoch),
        "generation": max(group.generation, history.generation) + (0 if unchanged else 1),
    }
    why = first if resource == ALL else _lent(first, resource)
    stopped = None if history.intent.stopped else Origin.DRIFT
    nothing = stopped if history.epoch else Origin.NEW
    origin = group.origin if group.found else nothing
    resumes = _broken_off(group, history)
    begin = Operation(
        Action.RECORD,
        desired.head,
        ALL,
        why,
        origin=origin,
        parameters={
            **numbers,
            "spec": desired.spec_hash,
            "cause_node": node,
            **({"resumes": resumes} if resumes else {}),
        },
    )
    removals = removals_of(desired, group, why, (begin.key,))
    ended = [o.key for o in removals] or [begin.key]
    gone = waiting_for(list(desired.nodes), ended, desired.head, launch=True)
    starts: list[Operation] = []
    causes = {(r, n): c for r, n, c in group.causes}
    for rank in reversed(desired.ranks):
        cause = causes.get((f"{KIND}/{rank.rank}", rank.node), why)
        needs = (gone.key,) if rank.rank else (gone.key, *(o.key for o in starts))
        starts.append(
            Operation(Action.START, rank.node, f"{KIND}/{rank.rank}", cause, needs=needs, parameters=numbers)
        )
    return (begin, *removals, gone, *starts)


def _lent(cause: Cause, rank: str) -> Cause:
    """Why ranks that are right start anew: what is wrong with ``rank``, maybe of another node."""
    return replace(cause, field=f"{rank} {cause.field}")


def borrowed(cause: Cause) -> tuple[str, Cause] | None:
    """Of such a cause the rank and what is wrong with it; None of a rank's own."""
    rank, _, field = cause.field.partition(" ")
    return (rank, replace(cause, field=field)) if field and kind_of(rank) == KIND else None


def _policies(desired: Desired, group: Group) -> Iterator[str]:
    """Restart policies that were changed by hand: Docker would start a rank without the others (principle 4).
    To set one back needs no new group, so none is planned."""
    wanted = {(rank.node, rank.name): rank.container.restart_policy for rank in desired.ranks}
    for each in group.found:
        own, runs = wanted.get((each.node, each.container.name), "no"), each.container.restart_policy
        if runs != own:
            yield (
                f"{each.node}: Docker's restart policy of {each.resource} was changed to {runs}, so it may "
                f"start without the others; there: docker update --restart={own} {each.container.name}"
            )


def _broken_off(group: Group, history: History) -> int:
    """Number of the group whose restart ended, with its watch, before the head was started, which comes last:
    to start all ranks is still that restart. 0: there is none."""
    started = any(f.stamp.rank == 0 and f.stamp.epoch == history.unfinished for f in group.found)
    return 0 if started else history.unfinished


def left_over(desired: Desired, group: Group) -> tuple[Operation, ...]:
    """Remove the containers of ranks that the spec no longer has; the group that is right serves on."""
    return tuple(
        Operation(
            Action.REMOVE,
            found.node,
            found.left_over,
            Cause("container", found.container.name, "absent"),
            parameters=_removal_parameters(desired, found),
        )
        for found in group.left_over
    )


def removals_of(desired: Desired, group: Group, why: Cause, needs: tuple[str, ...]) -> list[Operation]:
    """Remove every rank that was found: the head first, a follower may ignore SIGTERM while it lives."""
    own = {(resource, node): cause for resource, node, cause in group.causes}
    serves = may_serve(desired, group)
    removals: list[Operation] = []
    heads: list[str] = []
    for found in sorted(group.found, key=lambda f: f.node != desired.head):
        on_head = found.node == desired.head
        unwanted = found in group.left_over
        resource = found.left_over if unwanted else found.resource
        cause = (
            Cause("container", found.container.name, "absent")
            if unwanted
            else own.get((resource, found.node), why)
        )
        operation = Operation(
            Action.REMOVE,
            found.node,
            resource,
            cause,
            Cost(stops_serving=serves and found.container.running),
            needs=needs if on_head else (*needs, *heads),
            parameters=_removal_parameters(desired, found),
        )
        removals.append(operation)
        if on_head:
            heads.append(operation.key)
    return removals


def waiting_for(nodes: list[str], needs: list[str], at: str, *, launch: bool = False) -> Operation:
    """Look at ``nodes`` until no rank is left there and memory has come back; planned at one of them.
    ``launch``: ranks are started then, so it has to be enough."""
    cause = Cause("ranks", "not known to be gone", "none left on any node, memory back")
    return Operation(
        Action.WAIT,
        at,
        ALL,
        cause,
        needs=tuple(needs),
        parameters={"nodes": nodes, **({"launch": True} if launch else {})},
    )


def _removal_parameters(desired: Desired, found: Found) -> dict[str, Json]:
    follower = found.node != desired.head
    return {
        "name": found.container.name,
        "rank": found.stamp.rank,
        "epoch": found.stamp.epoch,
        "grace": 0.0 if follower and not desired.engine.manners.follower_stops else GRACE,
    }


def _is_spec_change(cause: Cause) -> bool:
    return cause.field not in ("container", "state", "epoch", "endpoint", KEY)


def _remove(operation: Operation, context: Context) -> None:
    host, fence = context.host(operation.node), context.fence(operation.node)
    name, wanted = str(operation.parameters["name"]), operation.parameters
    try:
        keep_log(context, operation.node, name, rank=int(wanted["rank"]), epoch=int(wanted["epoch"]))
    except (LeaseHeldError, UnreachableError):
        raise
    except SparkopError as error:
        context.log(f"the log of {name} could not be kept: {error.message}")
    host.containers.remove(name, fence, grace=float(wanted["grace"]))


def _wait_gone(operation: Operation, context: Context) -> None:
    """No rank of this cluster anywhere, and memory no longer growing back; before a start: enough of it."""
    cluster = context.desired.spec.name
    until = context.clock.monotonic() + GONE_DEADLINE
    before: dict[str, int] = {}
    still = context.clock.monotonic()
    while True:
        left: list[str] = []
        growing = False
        short: dict[str, Cause] = {}
        for name in operation.parameters["nodes"]:
            document = parse_document(
                context.host(name).probe(
                    {"sections": ["memory", "docker"], "labels": [f"{CLUSTER}={cluster}"]}
                ),
                node=name,
            )
            if document.docker is None or document.memory is None:
                reason = silent_docker.why(document) if document.docker is None else document.error("memory")
                raise UnreachableError("it can't be seen whether the ranks are gone", node=name, cause=reason)
            left += [f"{c.name} on {name} ({c.state})" for c, _ in ours(document, cluster, ROLE_RANK)]
            memory = document.memory
            growing |= memory.available - before.get(name, 0) > SETTLED * memory.total
            before[name] = memory.available
            lacking = memory_gate.short(context.desired.spec, memory)
            if lacking and operation.parameters.get("launch"):
                short[name] = lacking
        if left:
            context.confirm(operation.node)  # else they may be those of another writer
        if left or growing:
            still = context.clock.monotonic()
        elif short and context.clock.monotonic() - still >= memory_gate.BACK_WITHIN:
            raise _refused(short)
        elif not short:
            told = ", ".join(f"{name} {human_bytes(free)}" for name, free in before.items())
            context.progress(f"ranks gone; available memory: {told}")
            return
        if context.clock.monotonic() > until:
            raise BlockedError(
                f"still there: {', '.join(left)}" if left else "memory is still coming back",
                node=operation.node,
                cause="the Docker engine can't end a process (a driver call that hangs)" if left else None,
                remedy="restart the node; a process that hangs in the GPU driver can't be killed"
                if left
                else "run sparkop apply again in a minute",
            )
        context.progress(f"waiting for {', '.join(left) or 'memory to come back'}")
        context.clock.sleep(0.5)


def _refused(short: Mapping[str, Cause]) -> BlockedError:
    node, cause = next(iter(short.items()))
    return BlockedError(
        "too little memory for a start, and no rank of ours holds it",
        node=node,
        cause=cause.told,
        remedy=memory_gate.FREE_IT,
    )


def _start(operation: Operation, context: Context) -> None:
    rank = next(r for r in context.desired.ranks if f"{KIND}/{r.rank}" == operation.resource)
    node = context.desired.nodes[operation.node]
    container = rank.labelled(
        context.desired.spec.name,
        context.desired.spec_hash,
        epoch=int(operation.parameters["epoch"]),
        generation=int(operation.parameters["generation"]),
    )
    for path in _own_folders(container, node.state, node.home):
        ensure_directory(context, operation.node, path)
    release_pages(context, operation.node)
    trip.look_again(context, [operation.node] if rank.rank else context.desired.nodes)
    context.host(operation.node).containers.run(container, context.fence(operation.node))
    follow_or_tell(context, operation.node, container.name, rank.rank)


def _own_folders(container: ContainerSpec, state: str, home: str) -> list[str]:
    """Writable folders that the rank mounts from the user's own: made as the user, before Docker makes them
    as root."""
    return [
        mount.source
        for mount in container.mounts
        if not mount.read_only and mount.source.startswith((f"{state}/", f"{home.rstrip('/')}/"))
    ]
