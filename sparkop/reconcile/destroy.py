"""Remove what sparkop has made for a cluster: ranks, guards, transfers, images it pulled or built, its state
folder.

The checkpoint goes only when that is asked for (the command asks for a typed confirmation): it took hours.
What goes of it: ``node/leaving.py``.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

from sparkop.errors import BlockedError, SparkopError
from sparkop.hosts.base import Host
from sparkop.hosts.document import Document, Image, Removable
from sparkop.reconcile.carry_out import carry_out
from sparkop.reconcile.history import DAMAGED
from sparkop.reconcile.lease import Held, hold, new_holder, who_of
from sparkop.reconcile.observe import Reading, observe
from sparkop.reconcile.plan import Plan
from sparkop.reconcile.stop import plan_stop, removed_by, unanswered
from sparkop.records import dataclass
from sparkop.resources.base import Clock, RealClock, Resource
from sparkop.resources.compare import counted, human_bytes
from sparkop.resources.events import Event, Listener, Phase, ignore
from sparkop.resources.made import IMAGE, KIND, STATE, TRANSFERS, WEIGHTS, Made, words_for
from sparkop.resources.operations import Action, Cause, Cost, Operation
from sparkop.resources.pulled import is_ours, is_unclear, pulled_in
from sparkop.resources.registry import RESOURCES
from sparkop.resources.stamped import short_image
from sparkop.resources.state import HISTORY, entries_in, first_of, history_damaged, owner_of
from sparkop.resources.weights.resource import KIND as WEIGHTS_KIND
from sparkop.spec.models import ClusterSpec
from sparkop.threads import AnyOf

CAUSE = Cause("cluster", "present", "destroyed by you")


def _unasked(_going: tuple[str, ...]) -> None:
    """Nobody is asked."""


@dataclass(frozen=True)
class Destroyed:
    """What was removed, by node, in words; what a later destroy will, when nobody uses it any more; and the
    nodes that did not answer, and why."""

    removed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kept: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    interrupted: bool = False


def plan_destroy(reading: Reading, *, weights: bool) -> Plan:
    """After ranks and guards are gone: images, transfers and weights, then the state folder. Pure. Nothing
    where the Docker engine was not read."""
    own: dict[str, list[Operation]] = {}
    for name in reading.desired.nodes:
        document = reading.observed.documents[name]
        if document.docker is None:
            continue  # what still runs there needs its key, and its history to be found again
        in_use, cluster = document.docker.in_use, reading.desired.spec.name
        own[name] = [
            _image(name, reference, shown, spare=reference == image.id)
            for reference, shown, image in _images(document, cluster)
            if image.id not in in_use
        ]
        if _has_state(reading, name):
            own[name].append(Operation(Action.REMOVE, name, TRANSFERS, CAUSE))
    ended = tuple(o.key for found in own.values() for o in found if o.resource == TRANSFERS)
    for name, place in _checkpoints(reading).items() if weights else ():
        keep = {"keep": _claimed(reading)} if _is_shared(reading) else {}
        cost = Cost(place.bytes)
        own[name].append(Operation(Action.REMOVE, name, WEIGHTS, CAUSE, cost, needs=ended, parameters=keep))
    places = _places(reading)
    for name, found in own.items():
        if places[name] == name and _has_state(reading, name):
            there = (each for other, each in own.items() if places[other] == name)
            before, node = tuple(o.key for each in there for o in each), reading.desired.nodes[name]
            left = _in_use(reading.observed.documents[name], reading.desired.spec.name)
            apart = None if weights else node.weights
            parameters = {"path": node.state, "left": left, "apart": apart}
            found.append(Operation(Action.REMOVE, name, STATE, CAUSE, needs=before, parameters=parameters))
    operations = tuple(operation for found in own.values() for operation in found)
    return Plan(operations, unknown=tuple(reading.observed.unknown.values()))


def _images(document: Document, cluster: str) -> Iterator[tuple[str, str, Image]]:
    """What sparkop has pulled or built on a node: reference, how it is shown, image."""
    docker = document.docker
    if docker is None:
        return
    for entry, image in _pulled(document, cluster):
        reference = str(entry["reference"])
        yield reference, reference, image
    for image in docker.unnamed:
        yield image.id, short_image(image.id), image


def _pulled(document: Document, cluster: str) -> list[tuple[dict[str, Any], Image]]:
    """What was pulled and is there still: its entry in the history, and the image. What somebody else has
    put under its name since is not ours."""
    return [(entry, image) for entry, image in _entries(document, cluster) if is_ours(entry, image)]


def _entries(document: Document, cluster: str) -> Iterator[tuple[dict[str, Any], Image]]:
    """What the history, unless it is another cluster's, knows of images that are there."""
    images = document.docker.images if document.docker else {}
    own = owner_of(document) in (None, cluster)
    for entry in pulled_in(document) if own else ():
        image = images.get(str(entry["reference"]))
        if image is not None:
            yield entry, image


def _in_use(document: Document, cluster: str) -> list[dict[str, Any]]:
    """Those of images that stay, because a container is made of them."""
    docker = document.docker
    if docker is None:
        return []
    return [entry for entry, image in _pulled(document, cluster) if image.id in docker.in_use]


def _has_state(reading: Reading, node: str) -> bool:
    """There is a state folder, not another cluster's or somebody's, and with more in it than what a destroy
    has left."""
    document = reading.observed.documents[node]
    if _is_somebodys(document):
        return False
    own, cluster = set(document.state or ()), reading.desired.spec.name
    own -= set(document.ground.foreign if document.ground else ())
    if own == {HISTORY} and entries_in(document) and entries_in(document) == _in_use(document, cluster):
        return False
    return bool(own) and owner_of(document) in (None, cluster)


def _places(reading: Reading) -> dict[str, str]:
    """Node -> the first node with the same state folder: two of a spec may lead to one machine, and the
    folder goes once, with the lease in it. Cloned machines have one machine id, and not one boot id."""
    first: dict[tuple[str, str, str], str] = {}
    places: dict[str, str] = {}
    for name, node in reading.desired.nodes.items():
        machine = reading.observed.documents[name].machine
        own = (machine.machine_id, machine.boot_id, node.state) if machine else (name, "", node.state)
        places[name] = first.setdefault(own, name)
    return places


def _is_somebodys(document: Document) -> bool:
    """The folder has files that are not ours, and nothing that only we write."""
    ground = document.ground
    return bool(ground and ground.foreign and not ground.owned and not entries_in(document))


def _image(node: str, reference: str, shown: str, *, spare: bool = False) -> Operation:
    """``spare``: it stays when somebody has begun to use it."""
    parameters = {"reference": reference, "spare": spare}
    return Operation(Action.REMOVE, node, f"{IMAGE}/{shown}", CAUSE, parameters=parameters)


def _checkpoints(reading: Reading) -> dict[str, Removable]:
    """What is there of the checkpoint, by node; of a folder that all share, on one that has it: the one that
    knows of the most files that stay."""
    documents = reading.observed.documents.items()
    found = {name: each.removable for name, each in documents if each.docker and each.removable}
    there = [(name, place) for name, place in found.items() if place.there]
    if _is_shared(reading):
        there.sort(key=lambda each: -sum(map(len, each[1].kept.values())))
        del there[1:]
    return dict(there)


def _claimed(reading: Reading) -> list[str]:
    """Files of a folder that all share which other clusters use, on whichever node."""
    places = (document.removable for document in reading.observed.documents.values())
    return sorted({path for place in places if place for paths in place.kept.values() for path in paths})


def _is_shared(reading: Reading) -> bool:
    return reading.desired.spec.weights.distribution == "shared"


def _checkpoint_lines(reading: Reading) -> tuple[str, ...]:
    """``spark-1: 126 GiB in PATH``, of what goes."""
    every = ", ".join(reading.desired.nodes) if _is_shared(reading) else None
    return tuple(
        f"{every or name}: {human_bytes(place.bytes)} in {place.path}"
        for name, place in _checkpoints(reading).items()
    )


def _check_checkpoint(reading: Reading) -> None:
    """Raise BlockedError while nothing is removed yet: the files are not known, or lie behind a link."""
    checkpoint = reading.desired.outside[KIND]
    if checkpoint.repository is None:
        raise BlockedError(
            "which files the checkpoint has is not known; nothing was removed",
            cause=checkpoint.problem,
            remedy="try again when the hub answers, or leave the checkpoint: destroy without --weights",
        )
    for name, document in reading.observed.documents.items():
        place = document.removable
        if place is None:
            raise BlockedError(
                "what is there of the checkpoint can't be read; nothing was removed",
                node=name,
                cause=document.error("removable"),
                remedy="see that the user of this node may read there, or leave the checkpoint: "
                "destroy without --weights",
            )
        if place.link is not None:
            raise BlockedError(
                f"{place.link} is a link: what lies behind it is not removed, and another revision may need "
                "this one by it; nothing was removed",
                node=name,
                remedy=f"there: ls -l {shlex.quote(place.link)}; put what it leads to in its place, or "
                "remove the link (and what it leads to, where nobody needs that), then destroy again",
            )


def _check_apart(reading: Reading) -> None:
    """Raise BlockedError while nothing is removed yet: the checkpoint would go with the state folder."""
    for name, document in reading.observed.documents.items():
        if document.ground and document.ground.apart:
            raise BlockedError(
                f"the checkpoint's folder {document.ground.apart} lies within the state folder "
                f"{reading.desired.nodes[name].state}; nothing was removed",
                node=name,
                remedy="move the checkpoint elsewhere, or remove it too: destroy --weights",
            )


def destroy(
    spec: ClusterSpec,
    hosts: Mapping[str, Host],
    *,
    weights: bool = False,
    agree: Callable[[tuple[str, ...]], None] = _unasked,
    emit: Listener = ignore,
    stop: threading.Event | None = None,
    holder: str | None = None,
    clock: Clock | None = None,
    resources: Sequence[Resource] = RESOURCES,
) -> Destroyed:
    """Stop serving, then remove. Nodes that do not answer are in the result; run it again for them.

    ``agree`` is told what goes of the checkpoint, a line a node, and raises what ends it before anything is
    written. Raises LeaseHeldError; BlockedError when something can't be removed.
    """
    clock, holder, stop = clock or RealClock(), holder or new_holder(), stop or threading.Event()
    checkpoint = next((resource for resource in resources if resource.kind == WEIGHTS_KIND), None)
    look = partial(
        observe,
        spec,
        hosts,
        canary=False,
        render=False,
        clock=clock,
        resources=(*resources, Made(checkpoint if weights else None)),
        emit=emit,
    )
    reading = look(stop=stop)
    _tell_damage(reading, emit)
    _tell_unclear(reading, emit)
    if weights:
        _check_checkpoint(reading)
        _tell_kept(reading, emit)
    else:
        _check_apart(reading)
    nodes = {operation.node for operation in _everything(reading, holder, weights)}
    away = unanswered(reading)
    if not nodes:
        return Destroyed(kept=_tell_in_use(reading, emit), unknown=away)
    agree(_checkpoint_lines(reading))
    documents = {name: each for name, each in reading.observed.documents.items() if name in nodes}
    with hold(
        spec, hosts, documents, command="destroy", holder=holder, clock=clock, emit=emit, stop=stop
    ) as held:
        reading = look(stop=AnyOf(stop, held.lost))
        plan = _on(nodes, plan_stop(reading, who_of(holder), clock.time(), away, destroys=True))
        outcome = carry_out(plan, reading, held, resources, emit=emit, stop=stop, clock=clock)
        if outcome.error is not None:
            raise outcome.error
        removed, kept = removed_by(plan), dict[str, tuple[str, ...]]()
        interrupted = bool(outcome.skipped)
        if not interrupted:
            reading = look(stop=AnyOf(stop, held.lost))
            plan = _on(nodes, plan_destroy(reading, weights=weights))
            kept = _tell_in_use(reading, emit)
            interrupted = _remove(reading, plan, held, emit, stop, clock)
            for operation in plan.operations:
                removed.setdefault(operation.node, []).append(_told(operation, reading))
    return Destroyed(_frozen(removed), kept, {**away, **unanswered(reading)}, interrupted)


def _everything(reading: Reading, holder: str, weights: bool) -> list[Operation]:
    """What shows that there is something of ours on a node; a mark that a stop would leave does not."""
    stopping = plan_stop(reading, holder, 0.0).operations
    removals = [operation for operation in stopping if operation.action is Action.REMOVE]
    return [*removals, *plan_destroy(reading, weights=weights).operations]


def _tell_in_use(reading: Reading, emit: Listener) -> dict[str, tuple[str, ...]]:
    """After ranks and guards are gone: what is made of an image still is somebody's. Returns it by node."""
    told: dict[str, list[str]] = {}
    for name, document in reading.observed.documents.items():
        for _, shown, image in _images(document, reading.desired.spec.name):
            container = document.docker.in_use.get(image.id) if document.docker else None
            if container is not None:
                told.setdefault(name, []).append(f"image {shown}, of which container {container} is made")
    for name, kept in told.items():
        for each in kept:
            text = f"kept: {each}; sparkop destroy again once that is gone"
            emit(Event(Phase.NOTE, node=name, text=text))
    return _frozen(told)


def _tell_unclear(reading: Reading, emit: Listener) -> None:
    """Images under tags whose pull was broken off: they may be what a user has put there since."""
    for name, document in reading.observed.documents.items():
        for entry, image in _entries(document, reading.desired.spec.name):
            if is_unclear(entry, image):
                reference = str(entry["reference"])
                text = (
                    f"kept: image {reference}, which may be yours: when it came, no sparkop was there to see "
                    f"it; docker rmi {shlex.quote(reference)} removes it"
                )
                emit(Event(Phase.NOTE, node=name, text=text))


def _tell_kept(reading: Reading, emit: Listener) -> None:
    for name, document in reading.observed.documents.items():
        place = document.removable
        if place is None:
            continue
        for cluster, paths in place.kept.items():
            files = counted(len(paths), "file")
            text = f"kept: {files} of the checkpoint in {place.path}, which cluster {cluster} uses too"
            emit(Event(Phase.NOTE, node=name, text=text))


def _on(nodes: set[str], plan: Plan) -> Plan:
    """The part for nodes whose lease we hold; to look whether something is gone needs none."""
    kept = (o for o in plan.operations if o.node in nodes or o.action is Action.WAIT)
    return replace(plan, operations=tuple(kept))


def _tell_damage(reading: Reading, emit: Listener) -> None:
    for name, document in reading.observed.documents.items():
        lost = any(entry.get("event") == DAMAGED for entry in entries_in(document))
        if lost or history_damaged(document):
            when = (
                "was damaged once: which images were pulled before"
                if lost
                else "is damaged: which images were pulled"
            )
            text = f"{HISTORY} {when} for the cluster is not known, so they stay"
            emit(Event(Phase.NOTE, node=name, text=text))
        owner = owner_of(document)
        if owner not in (None, reading.desired.spec.name):
            emit(Event(Phase.NOTE, node=name, text=f"the state folder is that of {owner}: it stays"))
        if document.ground and _is_somebodys(document):
            text = f"{reading.desired.nodes[name].state} has files that are not sparkop's"
            emit(Event(Phase.NOTE, node=name, text=f"{text} ({first_of(document.ground.foreign)}): it stays"))


def _remove(
    reading: Reading,
    plan: Plan,
    held: Held,
    emit: Listener,
    stop: threading.Event,
    clock: Clock,
) -> bool:
    """Everything but the state folders, then those: the lease lies in them, so it has to come last."""
    folders = tuple(operation for operation in plan.operations if operation.resource == STATE)
    others = tuple(operation for operation in plan.operations if operation.resource != STATE)
    outcome = carry_out(Plan(others), reading, held, [Made()], emit=emit, stop=stop, clock=clock)
    if outcome.error is None and not outcome.skipped:
        held.end_beats()
        outcome = carry_out(Plan(folders), reading, held, [Made()], emit=emit, stop=stop, clock=clock)
        gone = outcome.done_nodes(folders)
        held.forget(name for name, first in _places(reading).items() if first in gone)
    if outcome.error is not None:
        raise _in_words(outcome.error)
    return bool(outcome.skipped)


def _in_words(error: BaseException) -> BaseException:
    if isinstance(error, SparkopError) and "ermission" in f"{error.message} {error.cause}":
        return BlockedError(
            error.message,
            node=error.node,
            cause=error.cause or "containers wrote there as root",
            remedy="remove it as root on the node, then run sparkop destroy again",
        )
    return error


def _told(operation: Operation, reading: Reading) -> str:
    """What was removed; of a checkpoint how much, and where."""
    ground = reading.observed.documents[operation.node].ground
    left = operation.resource == STATE and operation.parameters["left"]
    if operation.resource == STATE and (left or (ground and ground.foreign)):
        but = f" but for {HISTORY}, by which a later destroy finds the images that are kept" if left else ""
        return f"sparkop's files in {operation.parameters['path']}{but}"
    if operation.resource != WEIGHTS:
        return words_for(operation.resource)
    place = _checkpoints(reading)[operation.node]
    return f"{words_for(WEIGHTS)} ({human_bytes(place.bytes)} in {place.path})"


def _frozen(removed: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(names) for name, names in removed.items()}
