"""The effects of ``node/act.py`` that several resources use, in their words."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping

from sparkop.hosts.base import Json
from sparkop.resources.base import Context


def write_file(
    context: Context, node: str, path: str, content: bytes, *, mode: int = 0o644, aside: bool = False
) -> None:
    """Write a file whole (draft, fsync, rename), folders included. ``path``: absolute on the node. ``aside``:
    what was there is damaged, and kept under another name."""
    context.host(node).act(
        "file.write",
        {"path": path, "content": b64encode(content).decode(), "mode": mode, "aside": aside},
        context.fence(node),
    )


def ensure_directory(context: Context, node: str, path: str) -> None:
    """Make a folder of the user's; present is success."""
    context.host(node).act("directory.ensure", {"path": path}, context.fence(node))


def record(context: Context, node: str, entry: Mapping[str, Json], *, replace: bool = False) -> None:
    """Append to the history of the cluster. An entry with the same ``id`` is written once, or replaced."""
    context.host(node).act("history.append", {"entry": dict(entry), "replace": replace}, context.fence(node))


def drop_record(context: Context, node: str, identifier: str) -> None:
    """Take an entry of the history back; absent is success."""
    context.host(node).act("history.drop", {"id": identifier}, context.fence(node))


def keep_in_story(context: Context, entry: Mapping[str, Json]) -> None:
    """Append what a file tells that is removed now; a head that may not be written to forgets it."""
    if context.desired.head in context.fences:
        record(context, context.desired.head, entry)


def mend_history(context: Context, node: str) -> None:
    """Keep a damaged history aside and begin it anew, with an entry that says so."""
    context.host(node).act("history.append", {"entry": None}, context.fence(node))


def remove_file(context: Context, node: str, path: str, *, aside: bool = False) -> None:
    """Remove a file; absent is success. ``aside``: it is damaged, and kept under another name."""
    context.host(node).act("file.remove", {"path": path, "aside": aside}, context.fence(node))
