"""`reconcile` can't read, write, ask or look at a clock: what it needs is in its arguments (principle 1)."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparkop.reconcile.observe import Reading
from sparkop.reconcile.reconcile import reconcile
from sparkop.views.plan_text import plan_lines
from tests.reconcile.simulation import SIMULATED
from tests.reconcile.worlds import FOLDER, build, read

WORLDS = sorted(FOLDER.glob("*.yaml"))
REFUSED = ("open", "os.", "socket.", "subprocess.", "shutil.", "tempfile.", "time.sleep", "glob.", "pathlib.")
"""Beginnings of the interpreter's audit events for everything that touches the world."""
CLOCKS = ("time", "monotonic", "perf_counter", "time_ns", "monotonic_ns")

_forbidden: int | None = None
"""The thread that may not touch the world; threads that other tests have left behind may."""
_seen: list[str] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _forbidden == threading.get_ident() and event.startswith(REFUSED):
        _seen.append(event)
        raise PermissionError(f"{event} in a pure function")


sys.addaudithook(_audit)


@contextmanager
def world_refused(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No file, no socket, no process, no clock."""
    global _forbidden

    def refused(clock: Callable[[], float]) -> float:
        if _forbidden != threading.get_ident():
            return clock()
        _seen.append("clock")
        raise PermissionError("a clock in a pure function")

    with monkeypatch.context() as patch:
        for name in CLOCKS:
            patch.setattr(time, name, partial(refused, getattr(time, name)))
        _seen.clear()
        _forbidden = threading.get_ident()
        try:
            yield
        finally:
            _forbidden = None


@pytest.fixture(scope="module")
def readings() -> dict[str, Reading]:
    """Every world, read."""
    found = {}
    for path in WORLDS:
        world = read(path)
        found[path.stem] = build(world).observe(agreed=frozenset(world.agreed))
    return found


def plan(reading: Reading) -> list[str]:
    return plan_lines(reconcile(reading.desired, reading.observed, reading.history, 1.8e9, SIMULATED))


def test_reconcile_touches_nothing(readings: dict[str, Reading], monkeypatch: pytest.MonkeyPatch) -> None:
    """In no world; and twice the same, so that nothing is remembered between two calls either."""
    first = {name: plan(reading) for name, reading in readings.items()}
    again: dict[str, list[str]] = {}
    with world_refused(monkeypatch):
        for name, reading in readings.items():
            again[name] = plan(reading)
        seen = list(_seen)
    assert seen == []
    assert again == first
    assert len(again) >= 50


@pytest.mark.parametrize(
    "touch",
    [lambda: Path(__file__).read_text(), lambda: __import__("socket").socket(), lambda: time.time()],
    ids=["file", "socket", "clock"],
)
def test_the_refusal_itself_works(touch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the test above would prove nothing."""
    with world_refused(monkeypatch), pytest.raises(PermissionError):
        touch()
