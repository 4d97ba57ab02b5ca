"""Small helpers that resources share when they compare. Pure."""

from __future__ import annotations

from sparkop.hosts.document import Document
from sparkop.resources.operations import Unknown

GIB = 1 << 30
MIB = 1 << 20


def unread(document: Document, section: str, node: str, kind: str) -> Unknown:
    """The section of a node's document that ``kind`` needs could not be read."""
    reason = document.error(section) or f"{section} is missing from the node's answer"
    if section == "docker":
        reason = f"Docker did not answer: {reason.partition(': ')[2] or reason}"
    return Unknown(node=node, reason=reason, resource=kind)


def human_bytes(count: int) -> str:
    """``1.5 GiB``."""
    for unit, size in (("TiB", 1 << 40), ("GiB", GIB), ("MiB", MIB), ("KiB", 1 << 10)):
        if abs(count) >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def human_seconds(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3.5 h``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
