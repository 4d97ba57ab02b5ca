"""Small helpers that resources share when they compare. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from sparkop.hosts import silent_docker
from sparkop.hosts.document import Document
from sparkop.resources.operations import Unknown

GIB = 1 << 30
MIB = 1 << 20


def unread(document: Document, section: str, node: str, kind: str) -> Unknown:
    """The section of a node's document that ``kind`` needs could not be read."""
    if section == "docker":
        return Unknown(node=node, reason=silent_docker.why(document), resource=kind)
    reason = document.error(section) or f"{section} is missing from the node's answer"
    return Unknown(node=node, reason=reason, resource=kind)


def whole(found: Any) -> int | None:
    """A figure of somebody's JSON as a whole number; None for what is none."""
    return int(found) if isinstance(found, int | float) and isfinite(found) else None


def counted(number: int, word: str) -> str:
    """``1 operation``, ``2 operations``."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def with_verb(names: Sequence[str], one: str, several: str) -> str:
    """``a runs``, ``a, b run``."""
    return f"{', '.join(names)} {one if len(names) == 1 else several}"


def human_bytes(count: float) -> str:
    """``512 B``, ``1.5 GiB``: binary units, one decimal."""
    for unit, size in (("TiB", 1 << 40), ("GiB", GIB), ("MiB", MIB), ("KiB", 1 << 10)):
        if abs(count) >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"


def human_seconds(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3.5 h``: an estimate, or a time that is over a limit."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def precise_seconds(seconds: float) -> str:
    """``0.4 s``, ``12 s``, ``3 min 20 s``, ``2 h 5 min``: a time that was measured."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
