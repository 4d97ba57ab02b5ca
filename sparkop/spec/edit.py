"""Changing a spec's text so that comments, order and quotes survive (ruamel's round trip)."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from sparkop.spec.tree import Path


def edit(text: str, changes: Sequence[tuple[Path, Any]]) -> str:
    """``text`` with values put at paths of YAML keys; None takes a key or an item away.

    Values are plain data; missing mappings are made. Comments, the order of keys and everything that is not
    named stay as they are.
    """
    from ruamel.yaml import YAML

    if "\r\n" in text:
        return edit(text.replace("\r\n", "\n"), changes).replace("\n", "\r\n")
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 4096
    offset = _list_offset(text)
    yaml.indent(mapping=2, sequence=offset + 2, offset=offset)
    document = yaml.load(text)
    if document is None:
        document = {}
    for path, value in changes:
        _put(document, path, _styled(value))
    out = io.StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def dump(value: Mapping[str, Any]) -> str:
    """Plain data as YAML in the layout that sparkop writes."""
    return edit("", [((key,), item) for key, item in value.items()])


def _put(document: Any, path: Path, value: Any) -> None:
    node = document
    for step, following in pairwise(path):
        missing = isinstance(node, dict) and step not in node
        if missing or node[step] is None:
            node[step] = [] if isinstance(following, int) else {}
        node = node[step]
    last = path[-1]
    if value is None:
        if isinstance(node, dict):
            node.pop(last, None)
        elif isinstance(last, int) and last < len(node):
            del node[last]
    elif isinstance(last, int) and last == len(node):
        node.append(value)
    else:
        node[last] = value


def _styled(value: Any) -> Any:
    """Text that another YAML version would read as a number or truth value goes in quotes."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    from sparkop.spec.show import yaml_scalar

    if isinstance(value, str):
        return DoubleQuotedScalarString(value) if yaml_scalar(value).startswith('"') else value
    if isinstance(value, Mapping):
        return {key: _styled(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_styled(item) for item in value]
    return value


def _list_offset(text: str) -> int:
    """How far the hyphens of lists stand in from their key: 2 as sparkop writes, or 0 as others do."""
    found = re.search(r"^( *)[\w-]+:[ \t]*(?:#.*)?\n(?:\s*#.*\n|\s*\n)*( *)- ", text, re.MULTILINE)
    return max(0, len(found[2]) - len(found[1])) if found else 2
