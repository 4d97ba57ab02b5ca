"""Edits a JSON text in place: all that is not edited stays as it is, byte for byte.

Two grammars: strict JSON, and JSON with ``//`` comments and trailing commas, which is what Pi reads as
models.json (its ``stripJsonComments``; block comments are an error there, and so they are here).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn

from sparkop.records import dataclass

_STRING = r'"(?:\\[^\n\r\u2028\u2029]|[^"\\])*"'
_COMMENT = re.compile(_STRING + r"|//[^\n]*")
_TRAILING_COMMA = re.compile(_STRING + r"|,(?=[ \t\r\n]*[}\]])")
_ONE_STRING = re.compile(_STRING)
_SPACE = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r"[^\s,\]}]+")
_REST_OF_LINE = re.compile(r"[ \t]*(?://[^\r\n]*)?")
DEEPEST = 200

Path = tuple[str, ...]


class BrokenTextError(ValueError):
    """The text is not what the client would read. The message says where."""


@dataclass(frozen=True)
class Member:
    """``"key": value`` of an object, or an item of an array (key None); ``start`` is where it begins."""

    key: str | None
    start: int
    value: Node


@dataclass(frozen=True)
class Node:
    """A value and its offsets in the text; ``members`` of an object or an array."""

    start: int
    end: int
    kind: str
    """``object``, ``array`` or ``scalar``."""
    members: tuple[Member, ...] = ()

    def get(self, key: str) -> Node | None:
        """The value of a key."""
        return next((member.value for member in self.members if member.key == key), None)


class Document:
    """One text and its tree. Edits return the new text; parse that again for the next edit."""

    def __init__(self, text: str, *, comments: bool) -> None:
        """Raises BrokenTextError, with line and column, for what the client would not read.

        ``comments``: ``//`` comments and trailing commas are allowed. A leading byte order mark is kept.
        """
        self.text = text
        blanked = " " + text[1:] if text.startswith("\ufeff") else text
        self._commas = _blank(_COMMENT, blanked) if comments else blanked
        self._bare = _blank(_TRAILING_COMMA, self._commas) if comments else blanked
        try:
            self.value: Any = json.loads(self._bare, parse_constant=_no_constant)
            self.root = self._node(_skip(self._bare, 0), 0)
        except json.JSONDecodeError as error:
            raise BrokenTextError(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
        except RecursionError:
            raise BrokenTextError("nested too deep") from None

    def at(self, *path: str) -> Node | None:
        """The value under these keys."""
        node: Node | None = self.root
        for key in path:
            node = node.get(key) if node is not None and node.kind == "object" else None
        return node

    def read(self, *path: str) -> Any:
        """The same, as Python sees it; None when it is not there."""
        node = self.at(*path)
        return None if node is None else json.loads(self._bare[node.start : node.end])

    def source(self, *path: str) -> str | None:
        """The same, as it is written."""
        node = self.at(*path)
        return None if node is None else self.text[node.start : node.end]

    def with_value(self, path: Path, value: Any) -> str:
        """The text with this value under these keys; objects on the way are made."""
        return self._with(path, lambda indent: _dump(value, self._step(), indent))

    def with_source(self, path: Path, source: str) -> str:
        """As ``with_value``, for a value that is put in as it is written."""
        return self._with(path, lambda _indent: source)

    def with_item(self, path: Path, value: Any) -> str:
        """The text with one more item at the end of an array that is there."""
        node = self.at(*path)
        if node is None or node.kind != "array":
            raise BrokenTextError(f"{'.'.join(path)} is no list")
        return self._inserted(node, lambda indent: _dump(value, self._step(), indent))

    def without(self, path: Path) -> str:
        """The text without the last key of the path; the same text when it is not there."""
        parent = self.at(*path[:-1])
        for index, member in enumerate(parent.members if parent else ()):
            if member.key == path[-1] and parent is not None:
                return self._removed(parent, index)
        return self.text

    def without_item(self, path: Path, value: Any) -> str:
        """The text without the first item of an array that equals ``value``."""
        node = self.at(*path)
        for index, item in enumerate(node.members if node and node.kind == "array" else ()):
            if json.loads(self._bare[item.start : item.value.end]) == value and node is not None:
                return self._removed(node, index)
        return self.text

    def _with(self, path: Path, render: Callable[[str], str]) -> str:
        found = self.at(*path)
        if found is not None:
            by = render(self._indent_at(found.start))
            return self.text[: found.start] + self._lines(by) + self.text[found.end :]
        parent = self.at(*path[:-1])
        if parent is None:
            made = Document(self._with(path[:-1], lambda _indent: "{}"), comments=True)
            return made._with(path, render)
        if parent.kind != "object":
            raise BrokenTextError(f"{'.'.join(path[:-1]) or 'the document'} is no object")
        return self._inserted(parent, lambda indent: f"{json.dumps(path[-1])}: {render(indent)}")

    def _inserted(self, parent: Node, render: Callable[[str], str]) -> str:
        """One more member, in the manner of those that are there."""
        text, close = self.text, parent.end - 1
        if not parent.members:
            outer = self._indent_at(parent.start)
            inner = outer + self._step()
            kept = text[parent.start + 1 : close].rstrip()  # comments
            body = self._lines(f"{kept}\n{inner}{render(inner)}\n{outer}")
            return text[: parent.start + 1] + body + text[close:]
        last = parent.members[-1]
        end = last.value.end
        comma = self._commas.find(",", end, close)
        indent = self._indent_at(last.start)
        added = self._lines(render(indent))
        if "\n" not in text[parent.start : parent.members[0].start]:
            at = comma + 1 if comma >= 0 else end
            return text[:at] + (" " if comma >= 0 else ", ") + added + text[at:]
        at = self._after_comment(comma + 1 if comma >= 0 else end)
        line = self._lines(f"\n{indent}") + added
        if comma >= 0:  # a comma after the last one: keep the manner
            return text[:at] + line + "," + text[at:]
        return text[:end] + "," + text[end:at] + line + text[at:]

    def _removed(self, parent: Node, index: int) -> str:
        """Without one member, its comma, and its line when nothing else is on it."""
        member = parent.members[index]
        start, end = member.start, member.value.end
        last = index + 1 == len(parent.members)
        comma = self._commas.find(",", end, parent.end - 1 if last else parent.members[index + 1].start)
        text = self.text
        if len(parent.members) == 1:
            inside = text[parent.start + 1 : start] + text[max(comma + 1, end) : parent.end - 1]
            if not inside.strip() and "//" not in text[end : max(comma, end)]:
                return text[: parent.start + 1] + text[parent.end - 1 :]
        between = text[end:comma] if comma >= 0 else ""
        text = text[:start] + (between if "//" in between else "") + text[max(comma + 1, end) :]
        left = text[:start].rstrip(" \t")
        right = text[start:].lstrip(" \t")
        if left.endswith("\n") and right[:1] in ("\n", "\r"):
            text = left.removesuffix("\n").removesuffix("\r") + right
        elif comma >= 0 and text[start - 1] in " \t[{":
            text = text[:start] + right
        if comma < 0 and index > 0:
            previous = parent.members[index - 1].value.end
            if left[previous:] == ",":  # on the same line
                return left[:-1] + right
            before = self._commas.find(",", previous, start)
            text = text[:before] + text[before + 1 :]
        return text

    def _after_comment(self, at: int) -> int:
        """Behind the comment that follows on the same line; ``at`` when none does."""
        found = _REST_OF_LINE.match(self.text, at)
        return found.end() if found is not None and "//" in found[0] else at

    def _indent_at(self, offset: int) -> str:
        line = self.text[self.text.rfind("\n", 0, offset) + 1 : offset]
        found = re.match(r"\ufeff?([ \t]*)", line)
        return found[1] if found else ""

    def _step(self) -> str:
        """One level of indentation, as the text has it; two blanks when it has none."""
        found = re.search(r"[{\[][ \t]*\r?\n([ \t]+)", self.text)
        return found[1] if found else "  "

    def _lines(self, text: str) -> str:
        return text.replace("\n", "\r\n") if "\r\n" in self.text else text

    def _node(self, at: int, depth: int) -> Node:
        if depth > DEEPEST:
            raise BrokenTextError("nested too deep")
        opening = self._bare[at]
        if opening not in "{[":
            found = (_ONE_STRING if opening == '"' else _SCALAR).match(self._bare, at)
            assert found is not None
            return Node(at, found.end(), "scalar")
        members: list[Member] = []
        keys: set[str] = set()
        start, at = at, _skip(self._bare, at + 1)
        while self._bare[at] not in "}]":
            begin, key = at, None
            if opening == "{":
                key, at = self._key(at)
                if key in keys:
                    line = self.text.count("\n", 0, begin) + 1
                    raise BrokenTextError(f"line {line}: the key {key!r} is there twice")
                keys.add(key)
            value = self._node(at, depth + 1)
            members.append(Member(key, begin, value))
            at = _skip(self._bare, value.end)
            if self._bare[at] == ",":
                at = _skip(self._bare, at + 1)
        return Node(start, at + 1, "object" if opening == "{" else "array", tuple(members))

    def _key(self, at: int) -> tuple[str, int]:
        """The key that begins here, and where its value does."""
        found = _ONE_STRING.match(self._bare, at)
        assert found is not None
        return str(json.loads(found[0])), _skip(self._bare, _skip(self._bare, found.end()) + 1)


def _blank(pattern: re.Pattern[str], text: str) -> str:
    """The same length, with blanks for all that the pattern finds beside strings."""
    return pattern.sub(lambda found: found[0] if found[0].startswith('"') else " " * len(found[0]), text)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _no_constant(name: str) -> NoReturn:
    raise BrokenTextError(f"{name} is no JSON")


def _dump(value: Any, step: str, indent: str) -> str:
    """``value`` as JSON whose second and later lines begin with ``indent``."""
    return json.dumps(value, indent=step, ensure_ascii=False).replace("\n", "\n" + indent)
