"""Text of others (nodes, containers, logs, servers) without what would steer the terminal of who reads it."""

from __future__ import annotations

import re

_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_STEERING = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters
    r"\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # lines and directions
    r"\ud800-\udfff\ufffe\uffff"  # halves of characters, and none at all
)
_NOT_PLAIN = re.compile(f"[{_STEERING}]")
_NOT_ONE_LINE = re.compile(f"[\t\n{_STEERING}]")
REPLACEMENT = "�"


def plain(text: str) -> str:
    """Colours are taken out; other control and direction characters, and halves of characters, become ``�``.
    Tabs and ends of lines stay."""
    if _NOT_PLAIN.search(text) is None:
        return text
    return _NOT_PLAIN.sub(REPLACEMENT, _COLOUR.sub("", text))


def one_line(text: str) -> str:
    """The same for what must not look like several lines: a name, a value. White space becomes a blank."""
    if _NOT_ONE_LINE.search(text) is None:
        return text
    return plain(re.sub(r"[\t\n\r\x0b\x0c]+", " ", text))


def json_plain(text: str) -> str:
    """JSON that says the same with escapes in place of such characters."""
    return _NOT_PLAIN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
