"""An image from one node's engine to another's over the fabric: the registry is asked once per cluster.

Its identity is the image id: an engine that loads an image knows no repo digest of it, so a reference by
digest stands there under a tag of sparkop's own (``node/wire.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from sparkop.errors import BlockedError, SparkopError, TimedOutError, UnreachableError
from sparkop.hosts.document import Image, parse_document
from sparkop.hosts.silent_docker import silent_engine
from sparkop.node.wire import standin
from sparkop.resources.base import Context
from sparkop.resources.desired import Desired
from sparkop.resources.operations import Action, Cause, Cost, Operation
from sparkop.resources.peers import way
from sparkop.resources.transfer_job import carry_out

KIND = "image"
COPY_RATE = 300e6
"""Bytes a second of an image over the fabric, for estimates: one stream, packed and unpacked by Docker."""


def spread(
    desired: Desired,
    reference: str,
    missing: Mapping[str, Cause],
    holder: Image | None,
    root: str,
    after: str,
) -> list[Operation]:
    """Operations that bring an image from ``root`` to the nodes that miss it; each that has it sends on.

    ``after``: key of the operation that brings it to ``root``; empty when it is there. ``holder``: what the
    root has. A node without a fabric address (or all, when the root has none) gets a PULL.
    """
    made: list[Operation] = []
    sends: list[tuple[str, str]] = [(root, after)]
    size = holder.size if holder else 0
    for name, cause in missing.items():
        if not (_on_fabric(desired, root) and _on_fabric(desired, name)):
            made.append(Operation(Action.PULL, name, KIND, cause))
            continue
        source, key = sends[_sender(len(sends))]
        operation = Operation(
            Action.COPY,
            name,
            KIND,
            cause,
            Cost(size, size / COPY_RATE),
            needs=(key,) if key else (),
            parameters={"from": source, "reference": reference},
        )
        made.append(operation)
        sends.append((name, operation.key))
    return made


def _sender(number: int) -> int:
    """Who sends to the nth receiver: with each round, all that have it send to one more."""
    return number - (1 << (number.bit_length() - 1))


def _on_fabric(desired: Desired, name: str) -> bool:
    facts = desired.nodes[name].facts
    return facts is not None and facts.fabric is not None


def givers(context: Context, node: str) -> list[str]:
    """The other nodes that an image may come from over the fabric, where the spec has them sent."""
    desired = context.desired
    if desired.spec.image.distribution != "copy" or not _on_fabric(desired, node):
        return []
    return [name for name in desired.nodes if name != node and _on_fabric(desired, name)]


def giver_of(context: Context, node: str, reference: str, fits: Callable[[Image], bool]) -> str | None:
    """The first of the other nodes with such an image; one that does not answer has none to give."""
    for name in givers(context, node):
        try:
            image = look(context, name, reference)
        except UnreachableError:
            continue
        if image is not None and fits(image):
            return name
    return None


def look(context: Context, node: str, reference: str) -> Image | None:
    """What a node has under a reference now. Raises UnreachableError when its engine does not tell."""
    document = parse_document(context.host(node).probe({"images": [reference]}), node=node)
    if document.docker is None:
        raise silent_engine(document.error("docker") or "", node=node)
    return document.docker.images.get(reference)


def travel(context: Context, source: str, node: str, reference: str) -> None:
    """Bring an image from a node that has it; its engine's own checks and its id say that it came whole.

    Runs detached on ``node``. Raises SparkopError: BlockedError where it can't be done.
    """
    image = look(context, source, reference)
    if image is None:
        raise BlockedError(f"{source} has no {reference}", node=source, remedy="sparkop apply again")
    job = {
        "kind": "image",
        "directory": "",
        "files": [{"path": reference, "size": image.size, "sha256": image.id.removeprefix("sha256:")}],
        "tag": standin(reference) or _with_tag(reference),
    }
    carry_out(context, node, job, partial(way, context, source, node, {"images": [image.id]}), source=source)


def can_do_without(error: SparkopError, source: str) -> bool:
    """Whether a copy that failed so leaves another way: the copy could not be done, not the node."""
    if isinstance(error, UnreachableError):
        return error.node == source
    return isinstance(error, (BlockedError, TimedOutError))


def _with_tag(reference: str) -> str:
    """Docker's own meaning of a name without a tag."""
    return reference if ":" in reference.rpartition("/")[2] else f"{reference}:latest"
