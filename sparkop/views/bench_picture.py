"""The figures of ``bench`` as a picture, by matplotlib (the extra ``bench``)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkop.errors import UsageError
from sparkop.serving.summary import Row, rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {"code": "tab:blue", "prose": "tab:orange"}


def check_drawable(path: Path) -> None:
    """Raise UsageError when ``path`` can't become a picture: before hours are measured.

    Matplotlib may be missing, the ending may be none that it writes, the folder may be missing.
    """
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib", remedy='install sparkop with it: "sparkop[bench]"')
    from matplotlib.backend_bases import FigureCanvasBase

    endings = FigureCanvasBase.get_supported_filetypes()
    if path.suffix and path.suffix[1:].lower() not in endings:
        raise UsageError(f"--plot can't write {path.suffix}", remedy=f"one of: {', '.join(sorted(endings))}")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{path} can't be written", cause=f"{path.parent} is no folder")


def draw(measured: Mapping[str, Any], path: Path) -> None:
    """Prefill, decode by streams, and waiting times; the ending of ``path`` chooses PNG, SVG or PDF.

    Raises UsageError when matplotlib is not installed, or the file can't be written.
    """
    check_drawable(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    found = rows(measured)
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    prefill, decode, times = figure.subplots(1, 3)
    _prefill(prefill, [row for row in found if "prefill" in row.name])
    _decode(decode, measured)
    _times(times, [row for row in found if row.gaps and row.name.startswith("decode")])
    figure.suptitle(f"{measured.get('model')}, {measured.get('finished') or measured.get('ts')}")
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} can't be written", cause=str(error)) from error


def _prefill(axes: Axes, found: list[Row]) -> None:
    found = [row for row in found if row.each]
    names = [row.name.removeprefix("prefill ").removesuffix(" prefill") for row in found]
    medians = [statistics.median(row.each) for row in found]
    low = [m - min(row.each) for m, row in zip(medians, found, strict=True)]
    high = [max(row.each) - m for m, row in zip(medians, found, strict=True)]
    axes.bar(names, medians, yerr=[low, high], capsize=4, color="tab:green")
    axes.set_title("prefill: median, smallest and largest")
    axes.set_xlabel("tokens of the prompt")
    axes.set_ylabel("tokens a second")


def _decode(axes: Axes, measured: Mapping[str, Any]) -> None:
    for kind, colour in _COLOURS.items():
        runs = [run for run in measured["decode"] if run["kind"] == kind]
        streams = sorted({run["C"] for run in runs})
        for name, style in (("aggregate", "-o"), ("per_stream_median", "--s")):
            values = [[r[name] for r in runs if r["C"] == c and r.get(name) is not None] for c in streams]
            points = [(c, statistics.median(v)) for c, v in zip(streams, values, strict=True) if v]
            label = f"{kind}, {'together' if name == 'aggregate' else 'a stream'}"
            if points:
                axes.plot(*zip(*points, strict=True), style, color=colour, label=label)
    axes.set_title("decode")
    axes.set_xlabel("streams at a time")
    axes.set_ylabel("tokens a second")
    axes.set_xticks(sorted({run["C"] for run in measured["decode"]}))
    axes.set_ylim(bottom=0)
    if axes.lines:
        axes.legend()


def _times(axes: Axes, found: list[Row]) -> None:
    names = [row.name.removeprefix("decode ") for row in found]
    for offset, (name, shade) in enumerate((("p50", "tab:blue"), ("p90", "tab:cyan"), ("p99", "tab:gray"))):
        places = [index + (offset - 1) * 0.27 for index in range(len(found))]
        heights = [(row.gaps or {})[name] * 1e3 for row in found]
        axes.bar(places, heights, width=0.27, color=shade, label=name)
    axes.set_xticks(range(len(found)), names)
    axes.set_title("between two chunks")
    axes.set_ylabel("milliseconds")
    if found:
        axes.legend()
