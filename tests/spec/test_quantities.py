"""Sizes and times: units, refusals, and texts that read back as the same number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkop.node.memguard.guard import MARGIN
from sparkop.spec.memory import MemorySpec
from sparkop.spec.quantities import LARGEST_BYTES, ByteSize, Duration


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1 GiB", 2**30),
        ("1GiB", 2**30),
        ("2.7 GB", 2_700_000_000),
        ("2700000000 B", 2_700_000_000),
        ("0.5 KiB", 512),
        ("1 kB", 1000),
        ("1 KB", 1000),
        ("3 TiB", 3 * 2**40),
        ("0 B", 0),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert ByteSize.parse(text) == size


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1G", "1 GiB (1073741824 bytes) or 1 GB (1000000000 bytes)"),
        ("1.5g", "1.5 GiB (1610612736 bytes) or 1.5 GB (1500000000 bytes)"),
        ("1Gi", "write 1 GiB"),
        ("5", "write 5 GiB"),
        ("2700000000", "write 2700000000 B"),
        ("1 gb", "write 1 GB"),
        ("1 Gbit", "accepted: B, kB"),
        ("1.0001 B", "no whole number"),
        ("-1 GiB", "a number, then one of"),
        ("1e9 B", "a number, then one of"),
        ("1 GiB extra", "a number, then one of"),
        ("", "a number, then one of"),
        ("999999999999 TiB", "more than 1024 PiB"),
        ("1,5 GB", "a number, then one of"),
    ],
)
def test_sizes_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        ByteSize.parse(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90 s", 90), ("45min", 2700), ("1.5 h", 5400), ("250 ms", 0.25), ("0 s", 0)]
)
def test_times(text: str, seconds: float) -> None:
    assert Duration.parse(text) == seconds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("45m", "45 min or 45 ms"),
        ("90", "90 s or 90 min"),
        ("2 hours", "write 2 h"),
        ("1 d", "write 24 h"),
        ("5 weeks", "accepted: ms, s, min, h"),
        ("9999999 h", "more than 30 years"),
        ("-1 s", "a number, then one of"),
    ],
)
def test_times_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        Duration.parse(text)
    assert said in str(caught.value)


@given(st.integers(0, LARGEST_BYTES))
def test_size_text_reads_back(size: int) -> None:
    """A written spec (init, import) must not change a size by rounding."""
    assert ByteSize.parse(str(ByteSize(size))) == size


@given(st.integers(0, 10**9).map(lambda thousandths: thousandths / 1000))
def test_time_text_reads_back(seconds: float) -> None:
    assert Duration.parse(str(Duration(seconds))) == seconds


def test_shortest_text() -> None:
    assert str(ByteSize(2**30)) == "1 GiB"
    assert str(ByteSize(2_700_000_000)) == "2700 MB"
    assert str(Duration(2700)) == "45 min"
    assert str(Duration(90)) == "90 s"


def test_they_stay_numbers_in_a_model() -> None:
    """Others add and compare them."""
    memory = MemorySpec.model_validate({"kvCache": "2 GiB"})
    assert memory.kv_cache is not None
    assert memory.kv_cache + 1 == 2**31 + 1
    assert memory.guard.action_floor < memory.kv_cache
    assert memory.model_dump(mode="json")["kv_cache"] == "2 GiB"


@pytest.mark.parametrize("floor", [MARGIN, 100 << 20, 128 << 20, 1 << 30, 64 << 30])
def test_the_guards_floors_leave_what_growth_eats_in_one_poll(floor: int) -> None:
    """By themselves, and as given: one byte less is refused."""
    guard = {"actionFloor": f"{floor} B"}
    made = MemorySpec.model_validate({"guard": guard}).guard
    assert made.action_floor - made.hard_floor >= MARGIN
    MemorySpec.model_validate({"guard": {**guard, "hardFloor": f"{floor - MARGIN} B"}})
    with pytest.raises(ValueError, match=r"64 MiB under actionFloor .*growth of 6 GiB a second"):
        MemorySpec.model_validate({"guard": {**guard, "hardFloor": f"{floor - MARGIN + 1} B"}})
