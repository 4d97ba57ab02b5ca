"""Rows of figures as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

_BARS = "▁▂▃▄▅▆▇█"


def moment(at: float) -> str:
    """Seconds since 1970 in the reader's own time."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """One bar a value, from 0 to the largest; when there are more than ``width``, the least of each group."""
    if not values or max(values) <= 0:
        return ""
    count = min(width, len(values))
    groups = (values[len(values) * i // count : len(values) * (i + 1) // count] for i in range(count))
    top = max(values)
    return "".join(_BARS[min(7, int(8 * max(0.0, min(group)) / top))] for group in groups)
