"""Long looks say what they wait for, and end when the user asks for it."""

from __future__ import annotations

import threading
import time

import pytest

from sparkop.errors import WaitInterruptedError
from sparkop.reconcile import patience
from sparkop.reconcile.patience import patiently
from sparkop.resources.events import Event, ignore


def test_it_returns_and_raises_what_the_call_does() -> None:
    def fail() -> None:
        raise TimeoutError("its own")

    stop = threading.Event()
    assert patiently(lambda: 3, lambda: "it", ignore, stop) == 3
    with pytest.raises(TimeoutError, match="its own"):
        patiently(fail, lambda: "it", ignore, stop)


def test_a_stop_ends_it_at_once_and_a_silence_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that hangs is asked for a minute and more."""
    monkeypatch.setattr(patience, "TOLD_AFTER", 0.0)
    stop, over, told = threading.Event(), threading.Event(), []

    def hear(event: Event) -> None:
        told.append(event.text)
        stop.set()

    began = time.monotonic()
    with pytest.raises(WaitInterruptedError, match="the API has given no token"):
        patiently(lambda: over.wait(30), lambda: "the API has given no token", hear, stop)
    over.set()
    assert time.monotonic() - began < 10
    assert "the API has given no token for" in told[0]
