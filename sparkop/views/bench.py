"""The report of ``bench``: a table with bars, and the comparison of two measurements."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.bar import Bar
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparkop.serving.summary import Comparison, Row, rows
from sparkop.views.console import out, print_json, talk
from sparkop.views.documents import document
from sparkop.views.plain_console import PlainConsole

_BAR = 20
"""Characters of the longest bar."""
_WIDE = 140
"""Columns that the whole table takes; a narrower terminal gets no bars and no ranges."""


def tell(text: str) -> None:
    """One line of progress, on stderr."""
    talk().print(text, markup=False)


def _wide() -> Console:
    """Stdout; files and pipes get the width that tables need."""
    return out() if out().is_terminal else PlainConsole(file=sys.stdout, width=_WIDE)


def show_bench(measured: Mapping[str, Any], output: str = "text") -> None:
    """The document itself, or what it says."""
    if output == "json":
        print_json({**measured, "summary": [document(row) for row in rows(measured)]})
        return
    console = _wide()
    found = rows(measured)
    console.print(f"{measured.get('model')}  {measured.get('finished') or measured.get('ts')}", markup=False)
    if not found:
        console.print("nothing measured yet")
        return
    console.print(_table(found, full=console.width >= _WIDE))
    for row in found:
        if row.note:
            console.print(Text.assemble((f"{row.name}: ", "bold"), row.note))


def _table(found: Sequence[Row], *, full: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("tok/s", no_wrap=True)
    drafts = any(row.acceptance is not None for row in found)
    pool = any(row.pool_peak is not None for row in found)
    names = ["median"] + (["min to max"] if full else []) + ["runs", "first token p50, p90", "gap p50, p99"]
    names += (["drafts taken"] if drafts else []) + (["pool used"] if pool else [])
    if full:
        table.add_column("", width=_BAR)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for row in found:
        alike = [statistics.median(r.each) for r in found if r.each and _scale(r) == _scale(row)]
        engine = [_percent(row.acceptance)] * drafts + [_percent(row.pool_peak)] * pool
        times = [_pair(row.ttft, "p50", "p90"), _pair(row.gaps, "p50", "p99")]
        bar = Bar(max(alike), 0, statistics.median(row.each), width=_BAR) if row.each else ""
        table.add_row(row.name, *([bar] * full), *_rates(row.each, full), *times, *engine)
        if row.streams > 1 and row.together:
            table.add_row("  together", *([""] * full), *_rates(row.together, full))
    return table


def _rates(values: Sequence[float], full: bool) -> list[str]:
    if not values:
        return ["-", *(["-"] * full), "0"]
    span = [f"{min(values):,.1f} to {max(values):,.1f}"] * full
    return [f"{statistics.median(values):,.1f}", *span, str(len(values))]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _scale(row: Row) -> bool:
    """Rows with the same answer share a scale of bars: prefill is a hundred times decode."""
    return "prefill" in row.name


def _pair(values: Mapping[str, float] | None, one: str, other: str) -> str:
    return f"{_time(values[one])}, {_time(values[other])}" if values else "-"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def show_comparison(
    sides: Mapping[Path, Mapping[str, Any]], found: Sequence[Comparison], output: str = "text"
) -> None:
    """Each figure of both (means), the change, its noise, and a verdict in words. ``sides``: A, then B."""
    a, b = sides
    if output == "json":
        print_json({"a": str(a), "b": str(b), "figures": document(found)})
        return
    console = _wide()
    for name, (path, measured) in zip("AB", sides.items(), strict=True):
        when = measured.get("finished") or measured.get("ts")
        console.print(f"{name} {path}  {measured.get('model')}  {when}", markup=False)
    for what in ("model", "configuration"):
        if len({str(measured.get(what)) for measured in sides.values()}) > 1:
            console.print(Text(f"A and B have another {what}", style="yellow"))
    if not found:
        console.print("the two have no figure in common")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("tok/s", "A", "B", "change", "noise", "verdict"):
        table.add_column(name, justify="left" if name in ("tok/s", "verdict") else "right")
    for each in found:
        noise = "?" if each.noise is None else f"±{each.noise:.1%}"
        style = "green" if "faster" in each.verdict else "red" if "slower" in each.verdict else ""
        verdict = Text(each.verdict, style=style)
        table.add_row(each.name, f"{each.a:,.1f}", f"{each.b:,.1f}", f"{each.change:+.1%}", noise, verdict)
    console.print(table)
