"""YAML to :mod:`sparkop.spec.tree`, with every error of the text itself.

Values are read by the core schema of YAML 1.2. Plain values that YAML 1.1 and 1.2 read differently are
refused, because the same file would mean something else in another tool.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field, replace
from typing import Any

from sparkop.records import dataclass
from sparkop.spec.problems import Problem
from sparkop.spec.scalars import both_ways, resolve, trap_of
from sparkop.spec.tree import Entry, MappingNode, Node, Place, Scalar, SequenceNode, Source

LARGEST_FILE = 256 * 1024
"""Bytes. A spec is a page or two; the YAML scanner needs a second for 100 KiB."""
DEEPEST = 40
MOST_NODES = 20_000
"""Nodes after aliases are followed: a small file of nested aliases stands for billions."""

_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff\ud800-\udfff]")
_HALF = re.compile("[\ud800-\udfff]")
_TAGS = {"str", "int", "float", "bool", "null", "map", "seq"}


def split_lines(text: str) -> tuple[str, ...]:
    """The lines of a YAML text, without their ends."""
    return tuple(_BREAK.split(text))


def decode(name: str, content: bytes, order: int) -> tuple[Source, str | None, list[Problem]]:
    """The text of a file. None when the bytes are no text at all; then there are problems."""
    if len(content) > LARGEST_FILE:
        source = Source(name, ("",), order)
        return (
            source,
            None,
            [_at(source, 1, 1, 1, "the file is too long: a spec has at most 256 KiB")],
        )
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        source = Source(name, ("",), order)
        return source, None, [_at(source, 1, 1, 1, "the file is UTF-16: save it as UTF-8")]
    content = content.removeprefix(b"\xef\xbb\xbf")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start].decode()
        source = Source(name, split_lines(content.decode(errors="replace")), order)
        lines = split_lines(before)
        bad = f"0x{content[error.start]:02x}"
        message = f"the file is not UTF-8: byte {bad} is no character here; save the file as UTF-8"
        return source, None, [_at(source, len(lines), len(lines[-1]) + 1, len(lines[-1]) + 2, message)]
    return Source(name, split_lines(text), order), text, []


def parse(source: Source, text: str, *, line: int = 1, shift: int = 0) -> tuple[Node | None, list[Problem]]:
    """The tree of a text, or None when the YAML itself is broken or empty; and the problems found.

    ``line`` and ``shift`` place a text that is only a part of a source's line (``--set``).
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    broken = _unreadable(source) if shift == 0 else []
    if broken:
        return None, broken
    builder = _Builder(source, line, shift)
    try:
        root = builder.document(YAML(typ="safe", pure=True).parse(_BREAK.sub("\n", text)))
    except MarkedYAMLError as error:
        return None, [*builder.problems, builder.syntax(error)]
    except (YAMLError, ValueError, RecursionError, IndexError, AttributeError, AssertionError) as error:
        # The scanner has faults of its own on garbage; to a user they are all "no YAML".
        return None, [_at(source, line, 1 + shift, 2 + shift, f"is no YAML: {str(error).splitlines()[:1]}")]
    return root, builder.problems


def _unreadable(source: Source) -> list[Problem]:
    """Control characters and tabs in indentation: found by line, so that all are told at once."""
    problems = []
    for number, each in enumerate(source.lines, 1):
        found = _CONTROL.search(each)
        if found:
            code = f"U+{ord(found[0]):04X}"
            column = found.start() + 1
            problems.append(
                _at(source, number, column, column + 1, f"a control character ({code}) is no YAML")
            )
        indent = re.match(r"[ ]*\t[ \t]*(?=[^\s#])", each)
        odd = re.match("[ \t]*([\u00a0\u2007\u202f\u200b\u3000\ufeff])", each)
        if odd:
            code = f"U+{ord(odd[1]):04X}"
            message = f"indentation has a blank that is none to YAML ({code}): use blanks"
            problems.append(_at(source, number, odd.start(1) + 1, odd.end(1) + 1, message))
        if indent and not _inside_block_text(source.lines, number):
            problems.append(
                _at(
                    source,
                    number,
                    each.index("\t") + 1,
                    indent.end() + 1,
                    "indentation has a tab: use blanks",
                )
            )
    return problems


def _inside_block_text(lines: tuple[str, ...], number: int) -> bool:
    """Whether the line belongs to a ``|`` or ``>`` text, where tabs are content."""
    indent = len(lines[number - 1]) - len(lines[number - 1].lstrip(" "))
    for each in reversed(lines[: number - 1]):
        if each.strip() and len(each) - len(each.lstrip(" ")) < indent:
            return re.search(r"[|>][-+0-9]*\s*(#.*)?$", each) is not None
    return False


def _at(source: Source, line: int, column: int, end: int, message: str, **more: Any) -> Problem:
    return Problem(Place(source, line, column, end), message, **more)


@dataclass
class _Builder:
    """Events of one document to nodes."""

    source: Source
    line: int
    shift: int
    problems: list[Problem] = field(default_factory=list)
    anchors: dict[str, Node] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    count: int = 0
    full: bool = False
    events: Iterator[Any] = field(default_factory=lambda: iter(()))

    def document(self, events: Iterator[Any]) -> Node | None:
        from ruamel.yaml import events as kinds

        self.events = events
        root: Node | None = None
        for event in events:
            if isinstance(event, kinds.DocumentStartEvent):
                if root is not None:
                    self.problem(event, "a second document begins here: a file holds one")
                    return root
            elif not isinstance(
                event, (kinds.StreamStartEvent, kinds.StreamEndEvent, kinds.DocumentEndEvent)
            ):
                root = self.node(event, 0)
                if root is None:
                    return None
        if root is None or (isinstance(root, Scalar) and root.value is None and not root.raw):
            return None
        return root

    def place(self, event: Any) -> Place:
        start, end = event.start_mark, event.end_mark
        line = start.line + self.line
        column = start.column + 1 + (self.shift if start.line == 0 else 0)
        if end.line == start.line:
            last = end.column + 1 + (self.shift if start.line == 0 else 0)
        else:
            last = len(self.source.lines[line - 1]) + 1 if line <= len(self.source.lines) else column + 1
        return Place(self.source, line, column, max(last, column + 1))

    def first_line(self, place: Place) -> Place:
        """A block's own span: what it has on the line where it begins."""
        text = re.sub(r"\s#.*$", "", place.text).rstrip()
        return replace(place, end=max(len(text) + 1, place.column + 1))

    def until(self, place: Place, event: Any) -> Place:
        """The span of a mapping or list in brackets, when it ends on the line where it began."""
        end = event.end_mark
        if event.start_mark == end or end.line + self.line != place.line:
            return place
        return replace(place, end=end.column + 1 + (self.shift if end.line == 0 else 0))

    def problem(self, event: Any, message: str, **more: Any) -> None:
        place = event if isinstance(event, Place) else self.place(event)
        self.problems.append(Problem(place, message, **more))

    def node(self, event: Any, depth: int) -> Node | None:
        """One value; None when the rest can't be read (too deep, too many)."""
        from ruamel.yaml import events as kinds

        before = self.count
        self.count += 1
        if depth > DEEPEST or self.count > MOST_NODES:
            if not self.full:
                what = (
                    f"nested more than {DEEPEST} deep"
                    if depth > DEEPEST
                    else "too many values (aliases count)"
                )
                self.problem(event, what)
            self.full = True
            return None
        place = self.place(event)
        if isinstance(event, kinds.AliasEvent):
            return self.alias(event, place)
        tag = self.tag(event)
        if event.anchor:
            self.anchors.pop(event.anchor, None)
        node: Node | None
        if isinstance(event, kinds.ScalarEvent):
            node = self.scalar(event, place, tag)
        elif isinstance(event, kinds.SequenceStartEvent):
            node = self.sequence(self.first_line(place), depth)
        else:
            node = self.mapping(self.first_line(place), depth)
        if node is not None and event.anchor:
            self.anchors[event.anchor] = node
            self.sizes[id(node)] = self.count - before
        return node

    def tag(self, event: Any) -> str | None:
        tag = str(event.tag) if event.tag else None
        if tag is None or tag == "!":
            return "str" if tag else None
        short = tag.removeprefix("tag:yaml.org,2002:")
        if short not in _TAGS or short == tag:
            self.problem(event, f"has the tag {tag}: a spec needs no tags")
            return None
        return short

    def alias(self, event: Any, place: Place) -> Node | None:
        target = self.anchors.get(event.anchor)
        if target is None:
            known = ", ".join(f"&{name}" for name in self.anchors) or "none"
            self.problem(
                place, f"*{event.anchor} names no anchor above it", accepted=f"anchors so far: {known}"
            )
            return Scalar(place, value=None, raw="*")
        self.count += self.sizes.get(id(target), 1)
        if self.count > MOST_NODES:
            if not self.full:
                self.problem(place, "too many values: aliases of aliases multiply")
            self.full = True
            return None
        return target.through(place)

    def scalar(self, event: Any, place: Place, tag: str | None) -> Scalar:
        raw = event.value
        if _HALF.search(raw):
            self.problem(
                place, "half a character (a surrogate) is no text", suggestion="write the character itself"
            )
            return Scalar(place, value="", raw="", plain=False)
        if not event.implicit[0] or tag == "str" or event.style:
            return Scalar(place, value=raw, raw=raw, plain=False)
        trap = trap_of(raw)
        if trap is not None:
            self.problem(place, trap[0], suggestion=both_ways(raw, trap[1]))
            return Scalar(place, value=raw, raw=raw, plain=True)
        return Scalar(place, value=resolve(raw), raw=raw, plain=True)

    def sequence(self, place: Place, depth: int) -> Node | None:
        from ruamel.yaml.events import SequenceEndEvent

        items: list[Node] = []
        for event in self.events:
            if isinstance(event, SequenceEndEvent):
                return SequenceNode(self.until(place, event), items=tuple(items))
            item = self.node(event, depth + 1)
            if item is None:
                return None
            items.append(item)
        return None

    def mapping(self, place: Place, depth: int) -> Node | None:
        from ruamel.yaml.events import MappingEndEvent

        entries: dict[str, Entry] = {}
        merged: dict[str, Entry] = {}
        for event in self.events:
            if isinstance(event, MappingEndEvent):
                for key, entry in merged.items():
                    entries.setdefault(key, entry)
                return MappingNode(self.until(place, event), entries=entries)
            key_node = self.node(event, depth + 1)
            value_event = next(self.events, None)
            value = self.node(value_event, depth + 1) if key_node is not None and value_event else None
            if key_node is None or value is None:
                return None
            if isinstance(value, Scalar) and not value.raw and value.plain:
                # Nothing was written: the scanner's place for that is somewhere below.
                value = replace(value, place=key_node.place)
            name = self.key(key_node)
            if name == "<<" and isinstance(key_node, Scalar) and key_node.plain:
                for key, entry in self.merge(value).items():
                    merged.setdefault(key, entry)
            elif name is not None and name in entries:
                first = entries[name].key
                self.problem(
                    key_node.place,
                    f"the key {name} stands here a second time; the first is on line {first.line}",
                    suggestion="keep one of them",
                )
            elif name is not None:
                entries[name] = Entry(key_node.place, value)
        return None

    def key(self, node: Node) -> str | None:
        if not isinstance(node, Scalar):
            self.problem(
                node.place,
                "a mapping or a list is no key",
                suggestion="braces around a template? Text that begins with { or [ needs quotes",
            )
            return None
        if isinstance(node.value, str):
            return node.value
        what = "nothing" if node.value is None else f"{node.raw} (not text)"
        self.problem(node.place, f"the key is {what}", suggestion=f'quote it when it is meant: "{node.raw}"')
        return None

    def merge(self, value: Node) -> dict[str, Entry]:
        """What ``<<`` brings in: the place of each is the alias, as nothing else stands in this mapping."""
        parts = value.items if isinstance(value, SequenceNode) and value.defined is None else (value,)
        brought: dict[str, Entry] = {}
        for part in parts:
            if not isinstance(part, MappingNode):
                self.problem(part.place, "a merge key << takes a mapping or a list of mappings")
                continue
            for key, entry in part.entries.items():
                brought.setdefault(key, Entry(part.place, entry.value.through(part.place)))
        return brought

    def text_from(self, line: int, column: int) -> str:
        """What is read of the source from there on."""
        lines = self.source.lines[line - 1 : line if self.shift else None]
        return "".join([lines[0][column - 1 :], *lines[1:]]) if lines else ""

    def syntax(self, error: Any) -> Problem:
        """The scanner's words, in the words of a user."""
        mark = error.problem_mark or error.context_mark
        line, column = mark.line + self.line, mark.column + 1
        problem = str(error.problem or error.context or "is no YAML")
        # An end-of-file mark has no text: point to where the unfinished thing began.
        if not self.text_from(line, column + (self.shift if mark.line == 0 else 0)).strip():
            if error.context_mark is not None:
                line, column = error.context_mark.line + self.line, error.context_mark.column + 1
            else:
                line = next(
                    n for n in range(len(self.source.lines), 0, -1) if n == 1 or self.source.lines[n - 1]
                )
                column = len(self.source.lines[line - 1]) + 1
        if line == self.line:
            column += self.shift
        place = Place(self.source, line, column, column + 1)
        message, suggestion = _syntax_words(problem, str(error.context or ""), place)
        return Problem(place, message, suggestion=suggestion)


def _syntax_words(problem: str, context: str, place: Place) -> tuple[str, str | None]:
    line = place.text
    if "mapping values are not allowed" in problem:
        above = place.source.lines[place.line - 2].strip() if place.line > 1 else ""
        if re.match(r"^[\w.-]+:\S", above) and "://" not in above:
            return (
                "a key is not expected here",
                f"a blank is missing after the colon on line {place.line - 1}",
            )
        if re.search(r":\s+\S.*:(\s|$)", line):
            return "a second colon on this line", 'put the value in quotes: key: "text: more text"'
        return "a key is not expected here", "check the indentation, and the end of the line above"
    if "cannot start any token" in problem:
        found = re.search(r"character '(.*?)'", problem)
        character = found[1].replace("\\t", "a tab") if found else "this"
        return f"no value can begin with {character}", "put the value in quotes"
    if "end of stream" in problem or "stream end" in problem:
        if "quoted" in context:
            return "a quote is opened here and never closed", None
        return "a bracket or brace is opened here and never closed", None
    if "expected <block end>" in problem:
        return "does not fit the indentation of the lines above", "keys of one mapping begin in one column"
    if "could not find expected ':'" in problem:
        return "is no `key: value`", "a colon and a blank are missing"
    if "expected ',' or" in problem:
        return "a comma or the closing bracket is missing before this", None
    return f"is no YAML: {problem}" + (f" ({context})" if context else ""), None
