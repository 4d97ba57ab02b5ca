"""Bytes and seconds as people read them."""

from __future__ import annotations

from collections.abc import Sequence


def bytes_text(size: float) -> str:
    """``512 B``, ``1.5 KiB``, ``2.0 GiB``: binary units, one decimal."""
    if abs(size) < 1024:
        return f"{size:.0f} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if abs(size) < 1024 or unit == "TiB":
            return f"{size:.1f} {unit}"
    raise AssertionError


def duration_text(seconds: float) -> str:
    """``0.4 s``, ``12 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """One bar a value, from 0 to the largest; when there are more than ``width``, the least of each group."""
    if not values or max(values) <= 0:
        return ""
    count = min(width, len(values))
    groups = (values[len(values) * i // count : len(values) * (i + 1) // count] for i in range(count))
    top = max(values)
    return "".join(_BARS[min(7, int(8 * max(0.0, min(group)) / top))] for group in groups)
