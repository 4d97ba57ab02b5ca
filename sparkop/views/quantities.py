"""Rows of figures as people read them."""

from __future__ import annotations

from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """One bar a value, from 0 to the largest; when there are more than ``width``, the least of each group."""
    if not values or max(values) <= 0:
        return ""
    count = min(width, len(values))
    groups = (values[len(values) * i // count : len(values) * (i + 1) // count] for i in range(count))
    top = max(values)
    return "".join(_BARS[min(7, int(8 * max(0.0, min(group)) / top))] for group in groups)
