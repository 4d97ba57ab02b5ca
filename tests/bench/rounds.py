"""What benchmarks of transfers share: turns, medians, a table of ratios."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Contestant = Callable[[], float | None]
"""Does the work once; returns its seconds, or None to have the whole call timed."""


@dataclass(frozen=True)
class Bar:
    """``name`` must take at most ``most`` times what ``of`` takes; else the ratio is only told."""

    name: str
    of: str
    most: float | None


def measure(contestants: Mapping[str, Contestant], rounds: int) -> dict[str, float]:
    """Median seconds of each; all take turns (A B C A B C), so that a busy moment hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            started = time.perf_counter()
            told = contestant()
            seconds[name].append(time.perf_counter() - started if told is None else told)
    return {name: statistics.median(values) for name, values in seconds.items()}


def report(title: str, medians: Mapping[str, float], bars: list[Bar], size: int = 0) -> bool:
    """Print the table; False when a bar is missed."""
    print(f"\n{title} (load {os.getloadavg()[0]:.1f}: figures are believed below 2)")
    for name, seconds in medians.items():
        rate = f"{size / seconds / 1e6:8.0f} MB/s" if size else ""
        print(f"  {name:32} {seconds:9.3f} s {rate}")
    kept = True
    for bar in bars:
        ratio = medians[bar.name] / medians[bar.of]
        if bar.most is None:
            print(f"  {bar.name} / {bar.of} = {ratio:.2f} (no bar)")
            continue
        verdict = "ok" if ratio <= bar.most else "MISSED"
        kept = kept and ratio <= bar.most
        print(f"  {bar.name} / {bar.of} = {ratio:.2f} (bar {bar.most:.2f}) {verdict}")
    return kept
