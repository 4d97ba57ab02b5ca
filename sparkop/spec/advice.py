"""What was probably meant: by other tools' words, other sections, the habits of other formats."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from sparkop.records import dataclass
from sparkop.spec.fields import every_field
from sparkop.spec.tree import Node, Path, Scalar, show_path

_OTHER_WORDS = {
    "model": "weights",
    "models": "weights",
    "head": "nodes",
    "hosts": "nodes",
    "worker": "nodes",
    "workers": "nodes",
    "env": "environment",
    "args": "extraArgs",
    "repo": "repository",
    "url": "repository",
}


def other_word(key: str, keys: Sequence[str]) -> str | None:
    """What other tools call it."""
    if key in ("metadata", "spec") and "nodes" in keys:
        return "a ClusterSpec is flat: name, nodes and the rest stand at the top"
    meant = _OTHER_WORDS.get(key)
    return f"did you mean {meant}?" if meant in keys else None


@dataclass(frozen=True)
class _Known:
    """A field by the names that people write: its key, the recipes' variables, the engines' flags."""

    key: str
    path: Path
    variables: frozenset[str]
    flags: frozenset[str]


@cache
def _known() -> tuple[_Known, ...]:
    """A file that is no spec asks for thousands of keys: the models are walked once."""
    return tuple(
        _Known(
            field.key,
            field.path,
            frozenset(re.split(r"[:;,\s]+", field.about("recipe") or "")),
            frozenset(re.split(r"[,\s]+", field.about("flag") or "")),
        )
        for field in every_field()
    )


def elsewhere(key: str, path: Path) -> str | None:
    """The key stands in another section, or is a variable of a recipe."""
    for field in _known() if key.isupper() else ():
        if key in field.variables:
            return f"the recipe's {key} is {show_path(field.path)} here"
    section = tuple(step for step in path[:-1] if isinstance(step, str))
    for field in _known():
        if field.key == key and field.path[:-1] != section:
            if len(field.path) == 1:  # its path alone would repeat the word
                return f"{key} stands at the top of a spec"
            return f"did you mean {show_path(field.path)}?"
    flag = "--" + re.sub(r"[_-]+", "-", re.sub(r"(?<=[a-z])(?=[A-Z])", "-", key.lstrip("-"))).lower()
    for field in _known():
        if flag in field.flags:
            return f"the flag {flag} is {show_path(field.path)} here"
    return None


def missing_blank(key: str) -> str | None:
    return "is a blank missing after the colon?" if re.match(r"^[A-Za-z]\w*:\S", key) else None


def as_number(text: str) -> str | None:
    """What was probably meant by a text where a number belongs."""
    if percent := re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]+)?)\s*%", text):
        return f"write {float(percent[1]) / 100:g}"
    if re.fullmatch(r"[0-9]{1,3}([,' ][0-9]{3})+", text):
        return f"write {re.sub('[^0-9]', '', text)}"
    if number := re.fullmatch(r"([0-9]+)\s*[A-Za-z]+", text):
        return f"the number alone: {number[1]}"
    return None


def how_to_quote(node: Node) -> str:
    """How the text of a mapping or list that should have been text is written."""
    place = node.place
    text = place.text[place.column - 1 : place.end - 1].rstrip()
    if text.startswith(("{", "[")) and text.endswith(("}", "]")):
        quoted = text.replace("'", "''")
        return f"quote it: '{quoted}'"
    if ": " in text:
        return "a colon with a blank after it makes a mapping: put the whole item in quotes"
    return "put it in quotes"


def habit(node: Node, message: str) -> str | None:
    """Advice on what other formats do with a value."""
    if not isinstance(node, Scalar) or "not expanded" in message:
        return None
    if re.search(r"\$\{|\$[A-Za-z_]|\{\{", node.raw):
        return "variables are not expanded in a spec: use --set or an overlay"
    if node.raw[:1] in "“”‘’„«" and node.raw:
        return "curly quotes are part of the text: use straight ones"
    return None
