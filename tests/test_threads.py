"""Threads beside the caller: results in order, failures told, and nobody waited for at the end."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sparkop import threads
from sparkop.threads import MOST, Later, side_by_side


def test_results_come_in_the_order_of_the_items() -> None:
    """More items than threads, the first ones slowest."""

    def call(number: int) -> int:
        threading.Event().wait(0.02 if number < 3 else 0)
        return number * number

    assert side_by_side(call, range(MOST + 10), "x") == [n * n for n in range(MOST + 10)]
    assert side_by_side(call, [], "x") == []


def test_they_run_at_the_same_time() -> None:
    """Three that wait for each other."""
    barrier = threading.Barrier(3, timeout=10)
    assert sorted(side_by_side(lambda _: barrier.wait(), range(3), "x")) == [0, 1, 2]


def test_the_first_failure_is_raised_after_all_have_ended() -> None:
    """Half a reading must not look whole; and one slow node's answer is not thrown away on the way."""
    ended: list[int] = []

    def call(number: int) -> None:
        if number % 2:
            raise ValueError(number)
        ended.append(number)

    with pytest.raises(ValueError, match="1"):
        side_by_side(call, range(6), "x")
    assert sorted(ended) == [0, 2, 4]


def test_a_result_that_is_late_is_a_timeout_and_then_there() -> None:
    """Asked again, it is the same call."""
    go = threading.Event()
    later = Later(lambda: go.wait(10), "x")
    with pytest.raises(TimeoutError):
        later.result(0.01)
    go.set()
    assert later.result(10) is True


def test_the_process_ends_although_a_call_hangs() -> None:
    """The reason for this module: a pool of concurrent.futures would hang here."""
    program = (
        "import time; from sparkop.threads import Later; Later(lambda: time.sleep(600), 'x'); print('end')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "end\n"


def test_no_command_uses_a_pool_that_is_joined_at_the_end() -> None:
    """A second Ctrl-C of `download --follow` waited for what a frozen node still did. The lab's own may."""
    root = Path(threads.__file__).parent
    users = [p for p in root.rglob("*.py") if "ThreadPoolExecutor(" in p.read_text(encoding="utf-8")]
    assert {p.relative_to(root).parts[0] for p in users} <= {"lab", "node"}
