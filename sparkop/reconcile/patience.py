"""Waiting that tells what it waits for, and ends at once when the user has asked to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from sparkop.errors import WaitInterruptedError
from sparkop.resources.compare import human_seconds
from sparkop.resources.events import Event, Listener, Phase, ignore
from sparkop.threads import Later

R = TypeVar("R")

LOOK_EVERY = 0.1
"""Seconds between two looks at the stop request."""
TOLD_AFTER, TOLD_EVERY = 4.0, 15.0
"""Seconds of silence before a wait is told, and between two tellings."""


def patiently(
    call: Callable[[], R], waited_for: Callable[[], str], emit: Listener, stop: threading.Event | None
) -> R:
    """What the call returns or raises; it only reads, so it may be left behind.

    Raises WaitInterruptedError when ``stop`` is set meanwhile.
    """
    if emit is ignore and stop is None:
        return call()
    later = Later(call, "waited-for")
    began, due = time.monotonic(), TOLD_AFTER
    while not later.ended(LOOK_EVERY):
        if stop is not None and stop.is_set():
            raise WaitInterruptedError(f"stopped waiting: {waited_for()}")
        passed = time.monotonic() - began
        if passed >= due:
            due += TOLD_EVERY
            emit(Event(Phase.NOTE, text=f"{waited_for()} for {human_seconds(passed)}; still asking"))
    return later.result()
