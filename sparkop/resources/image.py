# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""The engine's image on every node: pulled by the node's own engine, or built there (``image_build.py``)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from sparkop.engines.common import image_reference
from sparkop.errors import BlockedError
from sparkop.hosts.base import Json
from sparkop.hosts.document import Image
from sparkop.resources import image_build
from sparkop.resources.acts import record
from sparkop.resources.base import Context, Difference
from sparkop.resources.build_context import read_context
from sparkop.resources.compare import unread
from sparkop.resources.desired import Desired
from sparkop.resources.made import PULLED
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Action, Cause, Operation, Unknown
from sparkop.resources.stamped import short_image
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

KIND = "image"
TOLD_EVERY = 0.5
"""Seconds between two progress events of a pull."""


class EngineImage:
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
        operations: list[Operation] = []
        unknown: list[Unknown] = []
        head: Image | None = None
        for node in desired.nodes.values():
            document = observed.documents[node.name]
            if document.docker is None:
                unknown.append(unread(document, "docker", node.name, KIND))
            elif reference not in document.docker.images:
                reason = document.error("docker", reference) or "not in the node's answer"
                unknown.append(Unknown(node.name, f"{reference}: {reason}", KIND))
            else:
                found = document.docker.images[reference]
                head = found if node.head else head
                cause = _cause(reference, found, head)
                if cause is not None:
                    operations.append(Operation(Action.PULL, node.name, KIND, cause))
        return Difference(tuple(operations), unknown=tuple(unknown))

    def perform(self, operation: Operation, context: Context) -> None:
        if operation.action is Action.BUILD:
            tag = image_build.perform(operation, context, partial(_pull, context, operation.node))
            _record(context, operation.node, tag)
        else:
            _pull(context, operation.node, image_reference(context.desired.spec))


def _pull(context: Context, node: str, reference: str) -> None:
    stream = context.host(node).containers.pull(reference, context.fence(node))
    for text, done, total, rate in pull_progress(stream, node=node, reference=reference):
        context.progress(text, done=done, total=total, rate=rate)
    _record(context, node, reference)


def _record(context: Context, node: str, reference: str) -> None:
    """What sparkop brought, ``destroy`` may take away."""
    entry = {"id": f"{PULLED}-{reference}", "event": PULLED, "reference": reference}
    record(context, node, {**entry, "at": context.clock.time()})


def _cause(reference: str, found: Image | None, head: Image | None) -> Cause | None:
    if found is None:
        return Cause("image", "absent", short_image(reference) if "@" in reference else "present")
    if "@" in reference or head is None or not head.digests or not found.digests:
        return None
    if set(head.digests) & set(found.digests):
        return None
    wanted = f"{short_image(head.digests[0])}, as on the head"
    return Cause("image.digest", short_image(found.digests[0]), wanted)


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
            f"on {node}: docker system df; docker image prune",
        )
    elif "unauthorized" in lower or "denied" in lower or "403" in lower:
        cause, remedy = "the registry wants a login, or the name is wrong", f"on {node}: docker login"
    elif "not found" in lower or "manifest unknown" in lower:
        cause, remedy = "the registry has no such image", "correct image.reference"
    else:
        cause, remedy = "the registry is not reachable from the node", f"on {node}: docker pull {reference}"
    return BlockedError(f"pulling {reference} failed", node=node, cause=cause, remedy=remedy, detail=error)
