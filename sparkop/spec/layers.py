"""Layers of a spec: the base file, overlays, then ``--set path=value``.

An overlay is merged like a JSON Merge Patch (RFC 7386): mappings are merged key by key, everything else is
replaced, and null takes the base's value away, so that the default holds again. One addition: ``nodes`` are
merged by ``name``, and a node with a new name comes last. To replace the list, take it away in one overlay
(``nodes: null``) and give it in the next.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from sparkop.records import dataclass
from sparkop.spec.fields import (
    field_at,
    keys_at,
    takes_free_keys,
    takes_list,
    takes_only_text,
    takes_quantity,
)
from sparkop.spec.problems import Problem
from sparkop.spec.suggest import nearest
from sparkop.spec.tree import (
    Entry,
    MappingNode,
    Node,
    Path,
    Place,
    Scalar,
    SequenceNode,
    Source,
    child,
    show_path,
)
from sparkop.spec.yaml_text import parse

_STEP = re.compile(r"\.?(?P<key>[^.\[\]=]+)|\[(?P<index>[^\]]*)\]")


def merge(base: Node, over: Node, path: Path = ()) -> Node:
    """``over`` laid over ``base``."""
    if isinstance(base, MappingNode) and isinstance(over, MappingNode):
        entries, removed = dict(base.entries), dict(base.removed)
        for key, entry in over.entries.items():
            if _is_null(entry.value):
                if entries.pop(key, None) is not None:
                    removed[key] = entry.key
            elif key in entries:
                merged = merge(entries[key].value, entry.value, (*path, key))
                # A section stays where the base has it; a value is where it was written last.
                kept = merged.place == entries[key].value.place
                entries[key] = Entry(entries[key].key if kept else entry.key, merged)
            else:
                entries[key] = Entry(entry.key, _without_nulls(entry.value))
        return replace(base, entries=entries, removed=removed)
    if path == ("nodes",) and isinstance(base, SequenceNode) and isinstance(over, SequenceNode):
        return _merge_named(base, over, path)
    return _without_nulls(over)


def _merge_named(base: SequenceNode, over: SequenceNode, path: Path) -> Node:
    names = [_name(item) for item in base.items]
    given = [_name(item) for item in over.items]
    # An empty list, or one with a node twice, is not what was meant: the model says so of the list as it is.
    if None in names or None in given or not given or len(set(given)) < len(given):
        return _without_nulls(over)
    items = list(base.items)
    for item in over.items:
        name = _name(item)
        if name in names:
            index = names.index(name)
            items[index] = merge(items[index], item, (*path, index))
        else:
            names.append(name)
            items.append(_without_nulls(item))
    return replace(base, items=tuple(items))


def _name(node: Node) -> str | None:
    name = child(node, "name")
    return name.value if isinstance(name, Scalar) and isinstance(name.value, str) else None


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None


def _without_nulls(node: Node) -> Node:
    """What an overlay adds has nothing to take away: its nulls fall out."""
    if isinstance(node, MappingNode):
        kept = {
            key: Entry(entry.key, _without_nulls(entry.value))
            for key, entry in node.entries.items()
            if not _is_null(entry.value)
        }
        return replace(node, entries=kept)
    if isinstance(node, SequenceNode):
        return replace(node, items=tuple(_without_nulls(item) for item in node.items))
    return node


@dataclass(frozen=True)
class Setting:
    """One ``path=value``, with its place for errors."""

    text: str
    source: Source
    line: int

    def place(self, start: int, end: int) -> Place:
        return Place(self.source, self.line, start + 1, max(end + 1, start + 2))


def settings(texts: Sequence[str], name: str = "--set", order: int = 1000) -> tuple[Setting, ...]:
    """The ``--set`` options as lines of one source: the second is ``--set:2``."""
    lines = tuple(re.sub(r"[\r\n]", " ", text) for text in texts)
    source = Source(name, lines, order)
    return tuple(Setting(text, source, number) for number, text in enumerate(lines, 1))


def apply_setting(root: Node, setting: Setting) -> tuple[Node, list[Problem]]:
    """``root`` with one value set. The model says whether the value is text or YAML."""
    broken = re.search("[\ud800-\udfff]", setting.text)
    if broken:
        return root, [Problem(setting.place(broken.start(), broken.end()), "is not UTF-8 here")]
    left, equals, value = setting.text.partition("=")
    if not equals or not left.strip():
        problem = Problem(
            setting.place(0, len(setting.text)),
            "is no path=value",
            accepted="for example memory.gpuFraction=0.8",
        )
        return root, [problem]
    steps, problem_at = _steps(left)
    if problem_at is not None:
        return root, [
            Problem(
                setting.place(*problem_at),
                "is no path",
                accepted="keys with dots between, and [number] or [name] of a list item: nodes[0].ssh",
            )
        ]
    start = len(left) + 1
    path, places, problems = _resolve(root, steps, setting)
    if problems:
        return root, problems
    node, problems = _value(root, path, value, start, setting)
    if node is None:
        return root, problems
    return _put(root, path, places, node), problems


def _steps(left: str) -> tuple[list[tuple[str, bool, int, int]], tuple[int, int] | None]:
    """Steps of a path: text, whether in brackets, begin and end; or the span that is none."""
    steps: list[tuple[str, bool, int, int]] = []
    at = 0
    while at < len(left):
        found = _STEP.match(left, at)
        bad = found is None or (found["index"] == "") or (not steps and left[at] in ".[")
        if found is None or bad:
            return [], (at, len(left))
        bracket = found["index"] is not None
        group = "index" if bracket else "key"
        steps.append((found[group].strip(), bracket, found.start(group), found.end(group)))
        at = found.end()
    return steps, None


def _resolve(
    root: Node, steps: Sequence[tuple[str, bool, int, int]], setting: Setting
) -> tuple[Path, list[Place], list[Problem]]:
    """List items by number or name; in brackets also free keys, which may have dots; the rest as it is."""
    path: list[str | int] = []
    places: list[Place] = []
    node: Node | None = root
    for text, bracket, start, end in steps:
        place = setting.place(start, end)
        step: str | int = text
        field = field_at(path, root)
        if isinstance(node, SequenceNode) or (node is None and field is not None and takes_list(field)):
            items = node.items if isinstance(node, SequenceNode) else ()
            index = _index(items, text)
            if index is None:
                names = [name for name in map(_name, items) if name]
                count = f"{len(items)} item{'s' if len(items) != 1 else ''}"
                return (
                    (),
                    [],
                    [
                        Problem(
                            place,
                            f"names no item of {show_path(path)}, which has {count}",
                            accepted=", ".join([*map(str, range(len(items))), *names]) or None,
                            suggestion=nearest(text, names),
                        )
                    ],
                )
            step = index
        elif bracket and (field is None or not takes_free_keys(field)):
            return (), [], [Problem(place, f"{show_path(path)} is no list, so it takes no brackets")]
        path.append(step)
        places.append(place)
        node = child(node, step) if node is not None else None
    return tuple(path), places, []


def _index(items: Sequence[Node], text: str) -> int | None:
    if re.fullmatch("[0-9]{1,4}", text) and int(text) <= len(items):
        return int(text)
    for index, item in enumerate(items):
        if _name(item) == text:
            return index
    return None


def _value(
    root: Node, path: Path, value: str, start: int, setting: Setting
) -> tuple[Node | None, list[Problem]]:
    place = setting.place(start, max(start + len(value), start + 1))
    field = field_at(path, root)
    if value == "null":
        return Scalar(place, value=None, raw=value), []
    if field is None:
        return None, [_unknown(root, path, setting)]
    if takes_only_text(field.annotation) or takes_quantity(field.annotation):
        return Scalar(place, value=value, raw=value, plain=False), []
    node, problems = parse(setting.source, value, line=setting.line, shift=start)
    if node is None and not problems:
        # Perhaps a variable of the shell that is not set: that must not take a value away.
        advice = "null takes the value away: then the default holds"
        return None, [Problem(place, "has no value: nothing follows the =", path, suggestion=advice)]
    return node, problems


def _unknown(root: Node, path: Path, setting: Setting) -> Problem:
    """The first step that no model knows, and what would be known there."""
    at = next(index for index in range(len(path)) if field_at(path[: index + 1], root) is None)
    steps, _ = _steps(setting.text.partition("=")[0])
    _, _, start, end = steps[at]
    keys = [field.key for field in keys_at(path[:at], root)]
    parent = f"{show_path(path[:at])} has no key {path[at]}" if at else f"a spec has no key {path[at]}"
    return Problem(
        setting.place(start, end),
        parent,
        accepted=", ".join(keys) or None,
        suggestion=nearest(str(path[at]), keys),
    )


def _put(root: Node, path: Path, places: Sequence[Place], value: Node) -> Node:
    if not path:
        return value
    step, rest = path[0], path[1:]
    below = child(root, step)
    if isinstance(step, int):
        items = list(root.items) if isinstance(root, SequenceNode) else []
        inner = _put(below or _empty(rest, places[0]), rest, places[1:], value)
        items[step : step + 1] = [inner]
        return SequenceNode(root.place, items=tuple(items))
    entries = dict(root.entries) if isinstance(root, MappingNode) else {}
    removed = dict(root.removed) if isinstance(root, MappingNode) else {}
    if not rest and _is_null(value):
        if entries.pop(step, None) is not None:
            removed[step] = places[0]
    else:
        inner = _put(below or _empty(rest, places[0]), rest, places[1:], value)
        entries[step] = Entry(places[0], inner)
    return MappingNode(root.place, entries=entries, removed=removed)


def _empty(rest: Path, place: Place) -> Node:
    if rest and isinstance(rest[0], int):
        return SequenceNode(place)
    return MappingNode(place, entries={})
