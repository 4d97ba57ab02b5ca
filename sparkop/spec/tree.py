"""What was written, with the place of every key and value: the form of a spec between YAML and the models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from sparkop.records import dataclass

Path = tuple[str | int, ...]
"""YAML keys and list indexes from the root."""


@dataclass(frozen=True, eq=False)
class Source:
    """A text that spec values come from: a file, or the ``--set`` options (one a line).

    Each is only equal to itself: places are keys of mappings, and texts are long.
    """

    name: str
    lines: tuple[str, ...]
    order: int = 0
    """Later layers have a higher number."""


@dataclass(frozen=True)
class Place:
    """A span on one line of a source. Line and columns count from 1; ``end`` is the column after the span."""

    source: Source
    line: int
    column: int
    end: int

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"

    @property
    def text(self) -> str:
        """The line, without its end."""
        return self.source.lines[self.line - 1] if self.line <= len(self.source.lines) else ""


@dataclass(frozen=True)
class Node:
    """A value. ``defined`` is where an alias's or merge key's value was written; ``place`` is the alias."""

    place: Place
    defined: Place | None = None

    def through(self, alias: Place) -> Node:
        """The same value, used at ``alias``."""
        return replace(self, place=alias, defined=self.defined or self.place)


@dataclass(frozen=True)
class Scalar(Node):
    """A single value. ``raw`` is the text as written; ``plain`` means without quotes."""

    value: bool | int | float | str | None = None
    raw: str = ""
    plain: bool = True


@dataclass(frozen=True)
class Entry:
    """One key of a mapping and its value."""

    key: Place
    value: Node


@dataclass(frozen=True)
class MappingNode(Node):
    """Keys in the order in which they were written."""

    entries: Mapping[str, Entry] = field(default_factory=dict)
    removed: Mapping[str, Place] = field(default_factory=dict)
    """Keys that a later layer's null took away, and where that null stands."""


@dataclass(frozen=True)
class SequenceNode(Node):
    """A list."""

    items: tuple[Node, ...] = ()


def data(node: Node) -> Any:
    """Plain Python values: dict, list, str, int, float, bool, None."""
    if isinstance(node, MappingNode):
        return {key: data(entry.value) for key, entry in node.entries.items()}
    if isinstance(node, SequenceNode):
        return [data(item) for item in node.items]
    assert isinstance(node, Scalar)
    return node.value


def child(node: Node, key: str | int) -> Node | None:
    """The value under ``key``; None when there is none."""
    if isinstance(node, MappingNode) and isinstance(key, str):
        entry = node.entries.get(key)
        return entry.value if entry else None
    if isinstance(node, SequenceNode) and isinstance(key, int) and 0 <= key < len(node.items):
        return node.items[key]
    return None


@dataclass(frozen=True)
class Found:
    """How far a path leads: the last node that exists, its key's place, and whether an alias led there."""

    node: Node
    key: Place
    path: Path
    defined: Place | None

    @property
    def place(self) -> Place:
        return self.node.place


def follow(root: Node, path: Sequence[str | int]) -> Found:
    """Walk as far as ``path`` leads. Below an alias every place is that of the alias."""
    node, key, alias, done = root, root.place, None, []
    for step in path:
        below = child(node, step)
        if below is None:
            break
        key = node.entries[str(step)].key if isinstance(node, MappingNode) else below.place
        if alias is None and below.defined is not None:
            alias = below.place
        elif alias is not None:
            below = below.through(alias)
            key = alias
        node = below
        done.append(step)
    return Found(node, key, tuple(done), node.defined)


def leaves(node: Node, path: Path = ()) -> Iterator[tuple[Path, Node]]:
    """Every scalar, and every empty mapping or list, in order."""
    if isinstance(node, MappingNode) and node.entries:
        for key, entry in node.entries.items():
            yield from leaves(entry.value, (*path, key))
    elif isinstance(node, SequenceNode) and node.items:
        for index, item in enumerate(node.items):
            yield from leaves(item, (*path, index))
    else:
        yield path, node


def show_path(path: Sequence[str | int]) -> str:
    """``nodes[0].fabric.address``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text
