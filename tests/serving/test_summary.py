"""The verdict of compare: noise is called noise, a difference is called a difference."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkop.serving.summary import compare, judge, rows


def runs(source: random.Random, mean: float, count: int) -> list[float]:
    """With 3 % of noise, as runs on a quiet machine have."""
    return [source.gauss(mean, mean * 0.03) for _ in range(count)]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_the_same_speed_is_seldom_called_a_difference(count: int) -> None:
    """At 99 % one in a hundred; a rule on ranges would cry in one of ten."""
    source = random.Random(7)
    alarms = sum(
        "B is" in judge("x", runs(source, 40, count), runs(source, 40, count)).verdict for _ in range(2000)
    )
    assert alarms / 2000 < 0.02


def test_half_the_speed_is_always_seen() -> None:
    source = random.Random(8)
    for _ in range(200):
        found = judge("x", runs(source, 40, 3), runs(source, 20, 3))
        assert "slower" in found.verdict
        assert found.change == pytest.approx(-0.5, abs=0.1)


@given(
    st.lists(st.floats(1, 1e4), min_size=1, max_size=6), st.lists(st.floats(1, 1e4), min_size=1, max_size=6)
)
def test_a_change_within_its_noise_is_no_news(a: list[float], b: list[float]) -> None:
    found = judge("x", a, b)
    if found.noise is None:
        assert min(len(a), len(b)) == 1
        assert "repeat" in found.verdict
    else:
        assert ("B is" in found.verdict) == (abs(found.change) > max(found.noise, 0.01)) or (
            abs(abs(found.change) - max(found.noise, 0.01)) < 1e-3
        )
        assert ("faster" in found.verdict) <= (found.change > 0)


def measured(rate: float, streams: int = 2) -> dict[str, Any]:
    request = {"ttft": 0.1, "gaps_ms": [20.0, 30.0], "counted_by": "usage", "loop": None}
    decode = [
        {
            "C": streams,
            "kind": "code",
            "rep": i,
            "per_stream_median": rate + i / 10,
            "aggregate": 1.5 * rate,
            "reqs": [request] * streams,
            "acceptance": 0.5 + i / 10,
            "pool_peak": 0.1 * (i + 1),
            "others": i == 1,
        }
        for i in range(3)
    ]
    return {"prefill": {}, "decode": decode, "ctx": []}


def test_streams_and_together_are_compared_apart() -> None:
    found = compare(measured(40.0), measured(30.0))
    assert [c.name for c in found] == ["decode code x2, a stream", "decode code x2, together"]
    assert all("slower by 25%" in c.verdict for c in found)


def test_figures_that_only_one_has_are_left_out() -> None:
    assert compare(measured(40.0, 1), measured(40.0, 2)) == []


def test_a_row_gathers_its_runs() -> None:
    (row,) = rows(measured(40.0))
    assert row.each == (40.0, 40.1, 40.2)
    assert row.acceptance == pytest.approx(0.6)
    assert row.pool_peak == pytest.approx(0.3)
    assert row.gaps == {"p50": 0.025, "p90": 0.03, "p99": 0.03}
    assert "others" in row.note
