"""What a bench document says, row by row; and whether two documents differ by more than noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from sparkop.records import dataclass
from sparkop.serving.figures import percentiles

STUDENT_99 = {
    1: 63.66, 2: 9.925, 3: 5.841, 4: 4.604, 5: 4.032, 6: 3.707, 7: 3.499, 8: 3.355, 9: 3.250, 10: 3.169,
    12: 3.055, 15: 2.947, 20: 2.845, 30: 2.750, 60: 2.660,
}  # fmt: skip
"""Two-sided 99 % points of Student's distribution, by degrees of freedom."""
NEGLIGIBLE = 0.01
"""A smaller difference is no news, however sure it is."""


@dataclass(frozen=True)
class Row:
    """One kind of run. Rates in tokens a second, one value a run; ``ttft`` and ``gaps`` in seconds."""

    name: str
    streams: int
    each: tuple[float, ...]
    """Of one stream (median over the streams of a run); of a prefill: its rate."""
    together: tuple[float, ...]
    ttft: Mapping[str, float] | None
    gaps: Mapping[str, float] | None
    """Between two chunks; one chunk holds several tokens where drafts are accepted."""
    acceptance: float | None = None
    """Of drafted tokens, 0 to 1."""
    pool_peak: float | None = None
    """Largest use of the KV cache that was seen, 0 to 1."""
    note: str = ""


def rows(document: Mapping[str, Any]) -> list[Row]:
    """Every kind of run that was measured, in the order of the document. Reads the recipe's own files too."""
    found = [
        _row(f"prefill {int(size):,}", 1, entry["runs"], entry["runs"], "tok_s", None)
        for size, entry in (document.get("prefill") or {}).items()
        if entry["runs"]
    ]
    runs: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for run in document.get("decode") or ():
        runs.setdefault((run["kind"], run["C"]), []).append(run)
    for (kind, streams), group in runs.items():
        requests = [request for run in group for request in run["reqs"]]
        name = f"decode {kind} x{streams}"
        found.append(_row(name, streams, group, requests, "per_stream_median", "aggregate"))
    for each in document.get("ctx") or ():
        size = f"{each['target_tokens']:,}"
        found.append(
            _row(f"context {size} prefill", 1, [each], [each], "prefill_tok_s", None, _recalled(each))
        )
        found.append(_row(f"context {size} decode", 1, [each], [each], "decode_tok_s", None))
    return found


def _recalled(run: Mapping[str, Any]) -> str:
    return (
        f"{run['recalled']} of {run['asked']} numbers found again"
        if {"recalled", "asked"} <= run.keys()
        else ""
    )


def _row(
    name: str,
    streams: int,
    runs: Sequence[Mapping[str, Any]],
    requests: Sequence[Mapping[str, Any]],
    each: str,
    together: str | None,
    note: str = "",
) -> Row:
    acceptance = [run["acceptance"] for run in runs if run.get("acceptance") is not None]
    peaks = [run["pool_peak"] for run in runs if run.get("pool_peak") is not None]
    notes = [note] if note else []
    if any(run.get("others") for run in runs):
        notes.append("others used the API meanwhile")
    if any(request.get("loop") for request in requests):
        notes.append("an answer went in circles")
    if any(request.get("counted_by") == "chunks" for request in requests) and not name.startswith("prefill"):
        notes.append("tokens counted by chunks: the server tells no usage")
    return Row(
        name=name,
        streams=streams,
        each=tuple(run[each] for run in runs if run.get(each) is not None),
        together=tuple(run[together] for run in runs if run.get(together) is not None) if together else (),
        ttft=percentiles([request["ttft"] for request in requests if request.get("ttft") is not None]),
        gaps=percentiles([gap / 1e3 for request in requests for gap in request.get("gaps_ms") or ()]),
        acceptance=statistics.fmean(acceptance) if acceptance else None,
        pool_peak=max(peaks, default=None),
        note="; ".join(notes),
    )


@dataclass(frozen=True)
class Comparison:
    """One figure of two documents. ``change`` and ``noise`` as parts of A: +0.1 is 10 % faster."""

    name: str
    a: float
    b: float
    change: float
    noise: float | None
    """Half the width of the 99 % interval of the change; None with fewer than two runs on a side."""
    verdict: str


def compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Comparison]:
    """Every figure that both have."""
    others = {row.name: row for row in rows(b)}
    found = []
    for row in rows(a):
        other = others.get(row.name)
        if other is None:
            continue
        pairs = [("", row.each, other.each)]
        if row.streams > 1:
            pairs = [(", a stream", row.each, other.each), (", together", row.together, other.together)]
        found += [judge(row.name + what, left, right) for what, left, right in pairs if left and right]
    return found


def judge(name: str, a: Sequence[float], b: Sequence[float]) -> Comparison:
    """Welch's test at 99 %: a table has many rows, and a false alarm costs a search."""
    before, after = statistics.fmean(a), statistics.fmean(b)
    change = after / before - 1 if before else 0.0
    noise = _noise(a, b)
    if noise is None:
        verdict = "too few runs to tell noise: repeat"
    elif abs(change) <= max(noise, NEGLIGIBLE):
        verdict = "no difference beyond noise"
    else:
        verdict = f"B is {'faster' if change > 0 else 'slower'} by {abs(change):.0%}"
    return Comparison(
        name, round(before, 3), round(after, 3), round(change, 4), noise and round(noise, 4), verdict
    )


def _noise(a: Sequence[float], b: Sequence[float]) -> float | None:
    if len(a) < 2 or len(b) < 2 or not statistics.fmean(a):
        return None
    errors = [statistics.variance(side) / len(side) for side in (a, b)]
    total = sum(errors)
    if total == 0:
        return 0.0
    parts = sum(error**2 / (len(side) - 1) for error, side in zip(errors, (a, b), strict=True))
    freedom = max(1, math.floor(total**2 / parts)) if parts else 1
    known = max(degrees for degrees in STUDENT_99 if degrees <= freedom)
    return STUDENT_99[known] * math.sqrt(total) / statistics.fmean(a)
