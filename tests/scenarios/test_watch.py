"""watch on real sshd and Docker with the stand-in: what breaks is mended in time, what must not be is not."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.scenarios.conftest import ROOT, STANDIN, User

pytestmark = pytest.mark.lab
QUICK = "0s,0s,0s,0s,0s,0s,0s,0s"
"""Pauses between restarts: one fault follows the other here."""


class Watcher:
    """A running `sparkop watch` and what it has said."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.log = (user.home / "watch.jsonl").open("w+")
        command = ["watch", STANDIN, "--period", "3", "--pauses", QUICK, "-o", "json"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sparkop", *command],
            cwd=ROOT,
            env=user.environment,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )

    def said(self) -> list[dict[str, Any]]:
        lines = (self.user.home / "watch.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def until(self, wanted: Callable[[dict[str, Any]], bool], seconds: float, since: int = 0) -> int:
        """Wait for an event after the first ``since`` ones; returns how many there are by then."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            said = self.said()
            for number, event in enumerate(said[since:], since + 1):
                if wanted(event):
                    return number
            assert self.process.poll() is None, said[-3:]
            time.sleep(0.2)
        raise AssertionError(f"not within {seconds} s; said: {self.said()[since:]}")

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


@pytest.fixture
def watcher(user: User) -> Iterator[Watcher]:
    user.sparkop("apply", STANDIN, check=0)
    watcher = Watcher(user)
    watcher.until(lambda event: event.get("verdict") == "serving", 30)
    yield watcher
    if watcher.process.poll() is None:
        watcher.process.kill()
        watcher.process.wait()
    watcher.log.close()


def serves(event: dict[str, Any]) -> bool:
    return event["event"] == "serving"


def test_a_night_of_faults(user: User, watcher: Watcher) -> None:
    """Dead ranks, a dead launcher and garbage are mended; the cable is told; a stop is left alone."""
    at = len(watcher.said())
    for fault, node, seconds in (
        ("kill-rank", "spark-2", 30),
        ("exit-zero", "spark-2", 30),
        ("kill-launcher", "spark-1", 30),
        ("degenerate", "spark-1", 60),
    ):
        user.sparkop("lab", "break", fault, node, check=0)
        at = watcher.until(serves, seconds, at)
    starts = [e for e in watcher.said() if e["event"] == "start-done" and e["resource"].startswith("rank/")]
    assert len(starts) == 8, "each fault led to one restart of both ranks"

    user.sparkop("lab", "break", "cable", "spark-2", check=0)
    at = watcher.until(lambda e: e["event"] == "fault" and "fabric@spark-2" in e["what"], 30, at)
    at = watcher.until(lambda e: e["event"] == "remembered" and e["kind"] == "fault", 30, at)
    user.sparkop("lab", "mend", "cable", "spark-2", check=0)
    at = watcher.until(lambda e: e["event"] == "remembered" and e["kind"] == "mended", 30, at)

    user.sparkop("stop", STANDIN, "--yes", check=0)
    at = watcher.until(lambda e: e["event"] == "held", 30, at)
    time.sleep(7)  # two periods in which it could have started something
    assert not any(e["event"] == "acting" for e in watcher.said()[at:])
    user.sparkop("apply", STANDIN, check=0)
    assert watcher.end() == 143

    told = [event["event"] for event in user.sparkop("events", STANDIN, "-o", "json", check=0).json]
    assert told.count("restart") >= 4
    assert "fault" in told
    assert "mended" in told


def test_a_node_that_loses_power_is_brought_in_again(user: User, watcher: Watcher) -> None:
    user.sparkop("lab", "break", "power-cut", "spark-2", check=0)
    at = watcher.until(lambda e: e["event"] == "fault" and e["what"] == "node@spark-2", 90)
    assert not any(e["event"] == "acting" for e in watcher.said()), "the survivor is not touched"
    user.sparkop("lab", "boot", "spark-2", check=0)
    watcher.until(serves, 90, at)
    assert user.sparkop("diff", STANDIN).code == 0
