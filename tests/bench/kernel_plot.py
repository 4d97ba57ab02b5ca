"""Plots the figures of `kernel`: `python -m tests.bench kernel_plot FILE.json PLOT`. Needs matplotlib."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot

STYLES = {
    "unsplit": ("tab:gray", "one program per head, no split"),
    "flash_attention": ("tab:orange", "FlashAttention 2 (torch)"),
    "qsa": ("tab:blue", "this kernel"),
    "ideal": ("black", "keys and values read once"),
}


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print("usage: python -m tests.bench kernel_plot FILE.json PLOT", file=sys.stderr)
        return 64
    document = json.loads(Path(arguments[0]).read_text())
    results = [one for one in document["results"] if one["table"] == "table" and one["keys"] == 2048]
    mpl.rcParams["svg.hashsalt"] = "qsa"  # the same figures give the same file
    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(15, 4.8))
    for axes, heads in ((left, [12, 1]), (middle, [24, 2])):
        _times(axes, heads, [one for one in results if one["heads"] == heads])
    _by_splits(right, [one for one in results if one["heads"] == [12, 1]])
    limit = document["read_bytes_per_second"] / 1e12
    figure.suptitle(
        f"{document['gpu']}, read limit {limit:.2f} TB/s: head dimension 256, 2048 keys a row, bfloat16"
    )
    figure.tight_layout()
    figure.savefig(arguments[1], metadata={"Date": None})
    return 0


def _times(axes: Any, heads: list[int], results: list[dict[str, Any]]) -> None:
    for name, (colour, label) in STYLES.items():
        points = [(one["rows"], one[name]) for one in results if one[name] is not None]
        line = "--" if name == "ideal" else "o-"
        axes.loglog(*zip(*points, strict=True), line, color=colour, label=label)
    axes.set(title=f"{heads[0]} query heads, {heads[1]} KV", xlabel="rows", ylabel="microseconds a call")
    axes.legend()
    axes.grid(alpha=0.3)


def _by_splits(axes: Any, results: list[dict[str, Any]]) -> None:
    for one in results:
        counts = [int(count) for count in one["by_splits"]]
        line = axes.loglog(counts, list(one["by_splits"].values()), ".-", label=f"{one['rows']} rows")
        axes.plot(one["splits"], one["qsa"], "o", markersize=9, color=line[0].get_color())
    axes.set(title="by split count, 12/1 (dot: as chosen)", xlabel="splits", ylabel="microseconds a call")
    axes.legend()
    axes.grid(alpha=0.3)
