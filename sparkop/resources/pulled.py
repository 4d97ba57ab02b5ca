"""What a node's history says of the images that sparkop brought or built there: they are its to remove.

The entry is written before an image comes, without ``image``: a transfer goes on when its command is killed,
and then nobody would know whose the image is. Once the image is there, its id is in the entry: what a user
puts under the same name later is not ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkop.hosts.base import Json
from sparkop.hosts.document import Document, Image
from sparkop.resources.acts import drop_record, record
from sparkop.resources.base import Context
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
    return is_foreseen(entry) or entry["image"] == image.id


def foresee(context: Context, node: str, reference: str, found: Image | None) -> None:
    """Record that it is about to come. What has the name already (``found``) is the user's until ours has
    replaced it, unless it is ours itself."""
    known = pulled_in(context.observed.documents[node])
    ours = [entry for entry in known if entry.get("id") == _identifier(reference)]
    if found is None or any(is_ours(entry, found) for entry in ours):
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
