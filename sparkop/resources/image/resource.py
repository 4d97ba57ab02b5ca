# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""The engine's image on every node: one node pulls it and the others take it from there over the fabric
(``travel.py``), or every node pulls it, or it is built there (``build.py``)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from sparkop.engines.common import image_reference
from sparkop.errors import BlockedError, RebootedError, SparkopError
from sparkop.hosts.base import Json
from sparkop.hosts.document import Image
from sparkop.resources.base import Context, Difference, Resource
from sparkop.resources.compare import unread
from sparkop.resources.desired import Desired
from sparkop.resources.image import build as image_build
from sparkop.resources.image import travel as image_travel
from sparkop.resources.image.context import read_context
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Action, Cause, Operation, Unknown
from sparkop.resources.pulled import foresee, is_known_as_ours, keep, take_back
from sparkop.resources.stamped import short_image
from sparkop.resources.transfer_program import call
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

KIND = "image"
TOLD_EVERY = 0.5
"""Seconds between two progress events of a pull."""


class EngineImage(Resource):
    """Absent: pulled. Another one than the head's, where only a tag is named: pulled again."""

    kind = KIND

    def prepare(self, spec: ClusterSpec) -> Any:
        return read_context(spec.image.build.context) if spec.image.build else None

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Json]:
        base = [spec.image.build.base] if spec.image.build else []
        return {"images": [image_reference(spec), *base]}

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        if desired.spec.image.build is not None:
            return image_build.difference(desired, observed)
        reference = image_reference(desired.spec)
        unknown: list[Unknown] = []
        found: dict[str, Image | None] = {}
        for node in desired.nodes.values():
            document = observed.documents[node.name]
            if document.docker is None:
                unknown.append(unread(document, "docker", node.name, KIND))
            elif reference not in document.docker.images:
                reason = document.error("docker", reference) or "not in the node's answer"
                unknown.append(Unknown(node.name, f"{reference}: {reason}", KIND))
            else:
                found[node.name] = document.docker.images[reference]
        return Difference(tuple(_operations(desired, reference, found)), unknown=tuple(unknown))

    def perform(self, operation: Operation, context: Context) -> None:
        node, reference = operation.node, image_reference(context.desired.spec)
        with _known_as_ours(context, node, reference):
            if operation.action is Action.BUILD:
                image_build.perform(operation, context, partial(_bring, context, node))
            elif operation.action is Action.COPY:
                _copy(context, node, str(operation.parameters["from"]), reference)
            else:
                _pull(context, node, reference)


def _operations(desired: Desired, reference: str, found: Mapping[str, Image | None]) -> list[Operation]:
    """One node pulls, unless one has it; from there it goes to the others."""
    spec = desired.spec
    head = found.get(desired.head)
    causes = {name: _cause(reference, image, head) for name, image in found.items()}
    missing = {name: cause for name, cause in causes.items() if cause is not None}
    if not missing:
        return []
    if spec.image.distribution == "direct":
        return [Operation(Action.PULL, name, KIND, cause) for name, cause in missing.items()]
    having = [name for name in found if name not in missing]
    wanted = spec.image.pull_on or spec.weights.download_on or desired.head
    root = next((name for name in (wanted, desired.head, *having, *missing) if name in (having or found)), "")
    operations = [Operation(Action.PULL, root, KIND, missing[root])] if root in missing else []
    others = {name: cause for name, cause in missing.items() if name != root}
    after = operations[0].key if operations else ""
    return operations + image_travel.spread(desired, reference, others, found[root], root, after)


def _bring(context: Context, node: str, reference: str) -> None:
    """The base of a build: from a node that has it, else from the registry, which alone knows a tag."""
    with _known_as_ours(context, node, reference):
        pinned = "@" in reference
        source = image_travel.giver_of(context, node, reference, lambda _: True) if pinned else None
        if source is None:
            _pull(context, node, reference)
        else:
            _copy(context, node, source, reference)


def _copy(context: Context, node: str, source: str, reference: str) -> None:
    """From a node that has it; where that can't be done, from the registry."""
    try:
        image_travel.travel(context, source, node, reference)
    except SparkopError as error:
        if not image_travel.can_do_without(error, source):
            raise
        context.log(f"no copy from {source}: {error.message}; the image is pulled instead")
        try:
            _pull(context, node, reference)
        except BlockedError as refused:
            raise BlockedError(
                f"neither a copy from {source} nor a pull brought {reference}",
                node=node,
                cause=f"the copy: {error.message}; the pull: {refused.cause or refused.message}",
                remedy=error.remedy or refused.remedy,
                detail=refused.detail,
            ) from error


def _pull(context: Context, node: str, reference: str) -> None:
    try:
        stream = context.host(node).containers.pull(reference, context.fence(node))
        for text, done, total, rate in pull_progress(stream, node=node, reference=reference):
            context.progress(text, done=done, total=total, rate=rate)
    except BlockedError as error:
        if error.remedy is not None:
            raise
        raise _refused(node, reference, error.message) from error  # the engine refuses before it begins


@contextmanager
def _known_as_ours(context: Context, node: str, reference: str) -> Iterator[None]:
    """What sparkop brings, ``destroy`` may take away: recorded before it comes, and its id once it has come.
    Where it was refused, the record is taken back; what else ends a command says nothing of what came."""
    before = image_travel.look(context, node, reference)
    ours = before is not None and is_known_as_ours(context, node, reference, before)
    if before is None or ours:  # else it is the user's until ours has replaced it
        foresee(context, node, reference)
    try:
        yield
    except RebootedError:
        raise
    except BlockedError:
        with suppress(SparkopError):  # the refusal is what is told
            _settle(context, node, reference, before if ours else None)
        raise
    image = image_travel.look(context, node, reference)
    if image is not None:
        keep(context, node, reference, image)


def _settle(context: Context, node: str, reference: str, ours: Image | None) -> None:
    """After a refusal: what there is of it. A copy that was given up may still bring it."""
    if call(context.host(node), context.fence(node), "status", {"kind": KIND})["running"]:
        return
    found = image_travel.look(context, node, reference)
    if found is None:
        take_back(context, node, reference)
    elif ours is not None and found.id == ours.id:
        keep(context, node, reference, found)


def _cause(reference: str, found: Image | None, head: Image | None) -> Cause | None:
    if found is None:
        return Cause("image", "absent", short_image(reference) if "@" in reference else "present")
    if "@" in reference or head is None or not head.digests or found.id == head.id:
        return None
    if set(head.digests) & set(found.digests):
        return None
    wanted = f"{short_image(head.digests[0])}, as on the head"
    observed = short_image(found.digests[0]) if found.digests else short_image(f"@{found.id}")
    return Cause("image.digest", observed, wanted)


def pull_progress(
    stream: Iterator[Json], *, node: str, reference: str
) -> Iterator[tuple[str, int, int, float]]:
    """Text, bytes done and known so far, and rate of a pull. Raises BlockedError for the engine's refusal.

    The total grows while layers become known.
    """
    layers: dict[str, tuple[int, int]] = {}
    began = told = time.monotonic()
    for item in stream:
        if not isinstance(item, dict):
            continue
        error = item.get("error") or (item.get("errorDetail") or {}).get("message")
        if error:
            raise _refused(node, reference, str(error))
        _count(layers, item)
        now = time.monotonic()
        if now - told >= TOLD_EVERY:
            told = now
            done = sum(d for d, _ in layers.values())
            total = sum(t for _, t in layers.values())
            yield str(item.get("status") or "pulling"), done, total, done / max(now - began, 1e-6)


def _count(layers: dict[str, tuple[int, int]], item: Mapping[str, Json]) -> None:
    layer, detail, status = str(item.get("id") or ""), item.get("progressDetail") or {}, item.get("status")
    if status == "Downloading" and detail.get("total"):
        layers[layer] = (int(detail.get("current") or 0), int(detail["total"]))
    elif status in ("Download complete", "Pull complete", "Already exists") and layer in layers:
        layers[layer] = (layers[layer][1], layers[layer][1])


def _refused(node: str, reference: str, error: str) -> BlockedError:
    lower = error.lower()
    if "no space left" in lower:
        cause, remedy = (
            "the disk of the Docker engine is full",
            "there: docker system df; docker image prune",
        )
    elif "unauthorized" in lower or "denied" in lower or "403" in lower:
        cause, remedy = "the registry wants a login, or the name is wrong", "there: docker login"
    elif "not found" in lower or "manifest unknown" in lower:
        cause, remedy = "the registry has no such image", "correct image.reference, or image.build.base"
    else:
        cause, remedy = "the registry is not reachable from the node", f"there: docker pull {reference}"
    return BlockedError(f"pulling {reference} failed", node=node, cause=cause, remedy=remedy, detail=error)
