"""What a node's history says of the images that sparkop brought or built there: they are its to remove.

The entry is written before an image comes, without ``image``: a transfer goes on when its command is killed,
and then nobody would know whose the image is. Once the image is there, its id is in the entry: what a user
puts under the same name later is not ours. Where a command was killed between the two, a digest or our label
tells; of a tag alone nobody knows whose image it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkop.hosts.base import Json
from sparkop.hosts.document import Document, Image
from sparkop.resources.acts import drop_record, record
from sparkop.resources.base import Context
from sparkop.resources.labels import BUILT_FOR
from sparkop.resources.state import entries_in

PULLED = "pulled"
"""Event of a node's history: sparkop has pulled this image, so sparkop may remove it."""


def pulled_in(document: Document) -> list[dict[str, Any]]:
    """Entries of a node's history: what was pulled, or was about to be."""
    return [entry for entry in entries_in(document) if entry.get("event") == PULLED]


def is_foreseen(entry: Mapping[str, Any]) -> bool:
    """It was about to be pulled; whether it came is not known (nor in an entry of an older sparkop)."""
    return not entry.get("image")


def is_ours(entry: Mapping[str, Any], image: Image) -> bool:
    """Whether what stands under the entry's reference is what sparkop brought."""
    if not is_foreseen(entry):
        return bool(entry["image"] == image.id)
    return "@" in str(entry["reference"]) or BUILT_FOR in image.labels


def is_unclear(entry: Mapping[str, Any], image: Image) -> bool:
    """Whether it may be what sparkop was about to bring, or what a user has put there since."""
    return is_foreseen(entry) and not is_ours(entry, image)


def is_known_as_ours(context: Context, node: str, reference: str, image: Image) -> bool:
    """Whether the history says so of what has this name."""
    known = pulled_in(context.observed.documents[node])
    return any(each.get("id") == _identifier(reference) and is_ours(each, image) for each in known)


def foresee(context: Context, node: str, reference: str) -> None:
    """Record that it is about to come."""
    _record(context, node, reference)


def keep(context: Context, node: str, reference: str, image: Image) -> None:
    """Record what has come."""
    _record(context, node, reference, image=image.id)


def take_back(context: Context, node: str, reference: str) -> None:
    """It did not come: an image of that name that is there later is the user's."""
    drop_record(context, node, _identifier(reference))


def _identifier(reference: str) -> str:
    return f"{PULLED}-{reference}"


def _record(context: Context, node: str, reference: str, **more: Json) -> None:
    entry = {"id": _identifier(reference), "event": PULLED, "node": node, "reference": reference}
    record(context, node, {**entry, **more, "at": context.clock.time()}, replace=True)
