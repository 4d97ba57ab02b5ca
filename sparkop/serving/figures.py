"""Figures of answers: rates, medians, percentiles, and what the engine's own metrics say of a run."""

from __future__ import annotations

import math
import statistics
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from sparkop.records import dataclass
from sparkop.serving.api import Answer, Api
from sparkop.serving.canary import sum_of

PERCENTILES = (50, 90, 99)
POLL = 1.0
"""Seconds between two looks at the metrics: rendering them costs the engine's front end some."""
FIRST_POLL = 0.2
METRICS_TIMEOUT = 10.0


@dataclass(frozen=True)
class MetricNames:
    """Names in the engine's /metrics; None: it has none."""

    running: str
    waiting: str
    kv_usage: str
    accepted: str | None = None
    drafted: str | None = None
    acceptance: str | None = None
    """A gauge, where there are no counters of drafts."""


def percentile(values: Sequence[float], percent: float) -> float:
    """By linear interpolation between the two nearest; ``values`` must not be empty."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def percentiles(values: Sequence[float]) -> dict[str, float] | None:
    """``p50``, ``p90``, ``p99``; None of nothing."""
    if not values:
        return None
    return {f"p{p}": round(percentile(values, p), 5) for p in PERCENTILES}


def spread(values: Sequence[float]) -> dict[str, float | int] | None:
    """Median, smallest, largest and how many; None of nothing."""
    if not values:
        return None
    median = statistics.median(values)
    return {
        "median": round(median, 3),
        "min": round(min(values), 3),
        "max": round(max(values), 3),
        "n": len(values),
    }


def request_record(answer: Answer) -> dict[str, Any]:
    """One request, in the recipe's names; times in seconds on one clock, gaps between chunks in ms."""
    arrivals = answer.arrivals
    told = answer.usage.get("completion_tokens")
    return {
        "t0": round(answer.began, 6),
        "ttft": None if answer.first is None else round(answer.first, 6),
        "t_first": round(arrivals[0], 6) if arrivals else None,
        "t_last": round(arrivals[-1], 6) if arrivals else None,
        "completion_tokens": len(arrivals) if told is None else told,
        "counted_by": "chunks" if told is None else "usage",
        "prompt_tokens": answer.usage.get("prompt_tokens"),
        "chunks": len(arrivals),
        "finish": answer.finish,
        "loop": answer.loop,
        "gaps_ms": [round((b - a) * 1e3, 2) for a, b in pairwise(arrivals)],
    }


def stream_rate(record: Mapping[str, Any]) -> float | None:
    """Tokens a second of one stream: (n - 1) / (last - first)."""
    if record["t_first"] is None or record["t_last"] <= record["t_first"]:
        return None
    return float((record["completion_tokens"] - 1) / (record["t_last"] - record["t_first"]))


def together_rate(records: Sequence[Mapping[str, Any]]) -> float | None:
    """Tokens a second of all streams: all tokens / (latest last - earliest first)."""
    began = [record["t_first"] for record in records if record["t_first"] is not None]
    if not began:
        return None
    seconds = max(record["t_last"] for record in records if record["t_last"] is not None) - min(began)
    return sum(record["completion_tokens"] for record in records) / seconds if seconds > 0 else None


class Gauge:
    """The engine's metrics over a run: acceptance of drafts, largest use of the KV cache, other users."""

    def __init__(self, api: Api, names: MetricNames, ours: int) -> None:
        self._api, self._names, self._ours = api, names, ours
        self._peak: float | None = None
        self._acceptances: list[float] = []
        self._others = False
        self._before: tuple[float | None, float | None] = (None, None)
        self._over = threading.Event()

    def read(self) -> str | None:
        """The metrics as text; None when they can't be read: a run is measured without them then."""
        try:
            status, body = self._api.get("/metrics", METRICS_TIMEOUT)
        except OSError:
            return None
        return body.decode("utf-8", "replace") if status == 200 else None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look once a second while the run goes on."""
        text = self.read()
        self._before = self._drafts(text)
        thread = threading.Thread(target=self._poll, daemon=True, name="metrics")
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(METRICS_TIMEOUT)

    def _poll(self) -> None:
        wait = FIRST_POLL
        while not self._over.wait(wait):
            self._look(self.read())
            wait = POLL

    def _look(self, text: str | None) -> None:
        if text is None:
            return
        usage = sum_of(self._names.kv_usage, text)
        if usage is not None and math.isfinite(usage):
            self._peak = max(self._peak or 0.0, usage)
        taken = sum_of(self._names.acceptance, text) if self._names.acceptance else None
        if taken and math.isfinite(taken):
            self._acceptances.append(taken)
        self._others = self._others or active(text, self._names) > self._ours

    def _drafts(self, text: str | None) -> tuple[float | None, float | None]:
        names = (self._names.accepted, self._names.drafted)
        accepted, drafted = (sum_of(n, text) if n and text is not None else None for n in names)
        return accepted, drafted

    def record(self) -> dict[str, Any]:
        """``acceptance`` (accepted / drafted tokens of this run), ``pool_peak`` (0 to 1), ``others``."""
        before, after = self._before, self._drafts(self.read())
        acceptance = round(statistics.fmean(self._acceptances), 4) if self._acceptances else None
        if None not in (*before, *after):
            drafted = float(after[1] or 0) - float(before[1] or 0)
            accepted = float(after[0] or 0) - float(before[0] or 0)
            acceptance = round(accepted / drafted, 4) if drafted > 0 else None
        peak = None if self._peak is None else round(self._peak, 4)
        return {"acceptance": acceptance, "pool_peak": peak, "others": self._others}


def active(text: str, names: MetricNames) -> float:
    """Requests that run or wait."""
    return (sum_of(names.running, text) or 0.0) + (sum_of(names.waiting, text) or 0.0)
