"""The merged spec as YAML, each value with the place that it came from: ``sparkop render --spec``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sparkop.spec.scalars import resolve, trap_of
from sparkop.spec.secrets import MASK, is_secret, mask_line, spans
from sparkop.spec.tree import Entry, MappingNode, Node, Place, Scalar, SequenceNode
from sparkop.spec.yaml_text import split_lines

if TYPE_CHECKING:
    from sparkop.spec.load import LoadedSpec

_PLAIN = re.compile(r"(~/|--[a-z]|[A-Za-z0-9_/.])([-A-Za-z0-9_/.@+=~:() ]*[-A-Za-z0-9_/.@+=~()])?\Z")
_PLAIN_BLOCK = re.compile(_PLAIN.pattern.replace("@+", "@+,"))
_DATE_1_1 = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}")
_NUMBER_1_1 = re.compile(r"[-+]?(0[xo][0-9a-fA-F_]+|[.0-9][0-9_.]*([eE][-+]?[0-9]+)?)\Z")
_SEXAGESIMAL_1_1 = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?\Z")
"""Degrees and times of day are numbers there, with a fraction too: 1:30.5 is 90.5."""
_WIDEST_COLUMN = 60
"""Comments stand at most this far right; longer lines push theirs."""


def show_spec(loaded: LoadedSpec) -> str:
    """YAML that reads as the same spec, with ``# file:line`` after each value.

    What may be a secret is masked: no rule has refused it yet, and this text is pasted into bug reports.
    """
    head = [f"# {loaded.paths[0]}" if loaded.paths else "# spec"]
    head += [f"# + {path}" for path in loaded.paths[1:]]
    head += [f"# + --set {masked(line)}" for each in loaded.sets for line in split_lines(each)[:1]]
    lines = [(masked(text), place) for text, place in _mapping(loaded.tree, 0)]
    column = min(_WIDEST_COLUMN, max(len(text) for text, _ in lines))
    body = [
        f"{text.ljust(column)}  # {place.source.name}:{place.line}" if place is not None else text
        for text, place in lines
    ]
    return "\n".join([*head, *body]) + "\n"


def masked(line: str) -> str:
    return mask_line(line, spans(line), 0, 0)[0]


Line = tuple[str, Place | None]


def _mapping(node: MappingNode, depth: int) -> Iterator[Line]:
    for key, entry in node.entries.items():
        yield from _entry(key, entry, depth)


def _entry(key: str, entry: Entry, depth: int) -> Iterator[Line]:
    start = f"{'  ' * depth}{yaml_scalar(key)}:"
    value = entry.value
    if isinstance(value, MappingNode) and value.entries:
        yield start, None
        yield from _mapping(value, depth + 1)
    elif isinstance(value, SequenceNode) and value.items:
        if _short(value):
            yield f"{start} [{', '.join(_flow(item) for item in value.items)}]", value.items[0].place
            return
        yield start, None
        yield from _items(value, depth + 1)
    else:
        yield f"{start} {_flow(value, block=True)}", value.place


def _items(node: SequenceNode, depth: int) -> Iterator[Line]:
    for before, item in zip((None, *node.items), node.items, strict=False):
        if _names_secret(before) and isinstance(item, Scalar):
            yield f"{'  ' * depth}- {yaml_scalar(MASK)}", item.place
        elif isinstance(item, MappingNode) and item.entries:
            for number, (text, place) in enumerate(_mapping(item, depth + 1)):
                yield (text if number else f"{'  ' * depth}- {text.lstrip()}"), place
        else:
            yield f"{'  ' * depth}- {_flow(item, block=True)}", item.place


def _names_secret(before: Node | None) -> bool:
    """Whether an item is an argument such as ``--hub-token``, whose value is the next item."""
    word = before.value if isinstance(before, Scalar) else None
    return isinstance(word, str) and word.startswith("-") and is_secret((word,))


def _short(node: SequenceNode) -> bool:
    """Scalars of one line of one source fit into brackets; else each has a place of its own."""
    places = {(item.place.source.name, item.place.line) for item in node.items}
    length = sum(len(item.raw) + 2 for item in node.items if isinstance(item, Scalar))
    return len(places) == 1 and length < 80 and all(isinstance(item, Scalar) for item in node.items)


def _flow(node: Node, *, block: bool = False) -> str:
    if isinstance(node, MappingNode):
        return "{" + ", ".join(f"{yaml_scalar(k)}: {_flow(e.value)}" for k, e in node.entries.items()) + "}"
    if isinstance(node, SequenceNode):
        return "[" + ", ".join(_flow(item) for item in node.items) + "]"
    assert isinstance(node, Scalar)
    if not isinstance(node.value, str):
        return node.raw or "null"
    return yaml_scalar(node.value, block=block)


def yaml_scalar(text: str, *, block: bool = False) -> str:
    """A text as a YAML scalar that reads as that text in YAML 1.1 and 1.2, quoted only when it must be.

    ``block``: it stands outside brackets and braces, where commas are text.
    """
    plain = (
        (_PLAIN_BLOCK if block else _PLAIN).match(text) is not None
        and ": " not in text
        and isinstance(resolve(text), str)
        and trap_of(text) is None
        and not _DATE_1_1.match(text)
        and not _SEXAGESIMAL_1_1.match(text)
        and (not _NUMBER_1_1.match(text) or text.count(".") > 1)
    )
    return text if plain else '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character == "\n":
        return "\\n"
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
