"""What in a spec may be a secret that was written there by mistake, so that no error quotes it.

An error quotes a whole line, and the secret may stand beside what is wrong, in a text that is no YAML at all,
or behind an alias: so secrets are found in the text, by the names before them, not by the path of the error.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import lru_cache

from sparkop.spec.suggest import nearest_name
from sparkop.spec.tree import Path, Place, Source

MASK = "*" * 8
Span = tuple[int, int]
"""Columns of a line, from 0, the end excluded."""

_WORD = r"(?:key|token|secret|passw(?:or)?d|passphrase|credentials?)"
_SECRET_KEY = re.compile(rf"{_WORD}\Z", re.IGNORECASE)
_NAMED = re.compile(
    rf"""(?P<word>{_WORD})(?P<file>[-_]?file)?["'\])]*(?P<between>\s*[:=,]\s*|\s+)(?:[!&]\S+\s+)*""",
    re.IGNORECASE,
)
_ARGUMENT = re.compile(r"(?:^|[\s\[\"',=:{])--?[\w.-]*\Z")
_OPENED = re.compile(
    rf"""(?P<key>[\s-]*["']?[\w.-]*{_WORD})["']?\s*:\s*(?:[!&]\S+\s*)?(?:[|>][-+0-9]*)?\s*(?:\#.*)?\Z""",
    re.IGNORECASE,
)
_IN_ADDRESS = re.compile(r"(?<=[\w.-]):(?P<password>[^\s:/@'\"]+)@(?!sha(?:256|512):)")
_BY_LOOK = re.compile(r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[\w-]{20,}|gh[opsu]_\w{20,}|eyJ[\w-]{10,}\.[\w.-]{10,})")
_NO_SECRET = ("generate", "none")
"""What ``api.key`` takes; what is near to it is a slip of the hand."""
_SHORTEST = 4
"""Shorter texts are masked in the line and not in messages, where they would be parts of words."""
_CUT = 57
"""Messages quote a long value up to here."""


def is_secret(path: Path) -> bool:
    """Whether a value at the path may be a secret."""
    names = [step for step in path if isinstance(step, str)]
    return bool(names) and _SECRET_KEY.search(names[-1]) is not None


def spans(line: str) -> list[Span]:
    """Where a line holds what may be a secret."""
    joined: list[Span] = []
    for start, end in sorted([*_named(line), *_known_by_itself(line)]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        elif end > start:
            joined.append((start, end))
    return joined


def _known_by_itself(text: str) -> list[Span]:
    return [
        *(each.span("password") for each in _IN_ADDRESS.finditer(text)),
        *(each.span() for each in _BY_LOOK.finditer(text)),
    ]


def _named(line: str) -> Iterator[Span]:
    at = counted = depth = 0
    while (match := _NAMED.search(line, at)) is not None:
        start = at = match.end()
        between = match["between"].strip()
        word = match.start("word")
        if between in ("", ",") and not (
            match["word"].isupper() or _ARGUMENT.search(line[max(0, word - 80) : word])
        ):
            continue
        for opening in "{[":
            depth += line.count(opening, counted, start)
        for closing in "}]":
            depth -= line.count(closing, counted, start)
        counted = start
        end = _end(line, start, one_word=between != ":", in_brackets=depth > 0)
        if _may_be_secret(line[start:end], is_file=match["file"] is not None):
            yield start, end
            at = max(at, end)


def _end(line: str, start: int, *, one_word: bool, in_brackets: bool) -> int:
    """Where the value at ``start`` ends. Rather too much than too little when that is not clear."""
    quoted = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')""").match(line, start)
    if quoted:
        return quoted.end()
    if line[start : start + 1] in ("{", "[", '"', "'"):
        pattern = r".*"
    elif in_brackets:
        pattern = r"[^,}\]]*"
    else:
        pattern = r"\S*" if one_word else r"(?:(?!\s#).)*"
    found = re.compile(pattern).match(line, start)
    return start + len(found[0].rstrip()) if found else start


def _may_be_secret(value: str, *, is_file: bool) -> bool:
    value = value.strip("\"' ")
    if not value or value[0] in "$*|>#" or value.lower() in ("null", "~", "true", "false"):
        return False
    if is_file:
        return "/" not in value and not value.startswith("~")
    return nearest_name(value, _NO_SECRET) is None


@lru_cache(maxsize=16)
def _lines(source: Source) -> dict[int, list[Span]]:
    """Spans by line, from 1. A value may also stand on the lines below its key, when they are further in."""
    found: dict[int, list[Span]] = {}
    below: int | None = None
    for number, line in enumerate(source.lines, 1):
        indent = len(line) - len(line.lstrip())
        if not line.strip():
            continue
        if below is not None and indent > below:
            found[number] = [(indent, len(line.rstrip()))]
            continue
        opened = _OPENED.match(line)
        below = len(line) - len(line.lstrip(" -")) if opened else None
        if each := spans(line):
            found[number] = each
            start, end = each[-1]
            if line[start] in "\"'" and (end - start == 1 or line[end - 1] != line[start]):
                below = indent
    return found


def line_spans(place: Place, first: int, last: int) -> list[Span]:
    """What may be a secret in the columns from ``first`` to ``last`` of a place's line, from ``first`` on."""
    near = _overlapping(_lines(place.source).get(place.line, []), first, last)
    return [(max(start, first) - first, min(end, last) - first) for start, end in near]


def _overlapping(found: list[Span], first: int, last: int) -> list[Span]:
    at = bisect_left(found, first, key=lambda span: span[1])
    until = bisect_left(found, last, key=lambda span: span[0])
    return [(start, end) for start, end in found[at:until] if end > first]


def without_secrets(text: str, place: Place) -> str:
    """A message about the value at ``place``, without what may be a secret there."""
    lines = _lines(place.source)
    texts: set[str] = set()
    number, first, last = place.line, place.column - 1, place.end - 1
    while near := _overlapping(lines.get(number, []), first, last):
        line = place.source.lines[number - 1]
        for start, end in near:
            raw = line[start:end]
            for each in (raw, raw.strip("\"'"), raw.strip("[]{}\"' ")):
                texts |= {each, each.replace("'", "''"), each[:_CUT]}
        if near[-1][1] < len(line.rstrip()):
            break
        # A value that goes on: in quotes, or as a block.
        number, first, last = number + 1, 0, sys.maxsize
    for secret in sorted(texts, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, MASK)
    return mask_line(text, _known_by_itself(text), 0, 0)[0]


def mask_line(text: str, found: Iterable[Span], start: int, end: int) -> tuple[str, int, int]:
    """A line with its secrets masked, and where the span from ``start`` to ``end`` then is."""
    for first, last in sorted(found, reverse=True):
        text = text[:first] + MASK + text[last:]
        start = _moved(start, first, last, first)
        end = _moved(end, first, last, first + len(MASK))
    return text, start, max(end, start + 1)


def _moved(column: int, first: int, last: int, inside: int) -> int:
    if column <= first:
        return column
    return column - (last - first) + len(MASK) if column >= last else inside
