"""What a caller is told while work goes on. Views render it; nothing else depends on it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from sparkop.errors import SparkopError
from sparkop.records import dataclass
from sparkop.resources.operations import Operation


class Phase(StrEnum):
    """What an event tells."""

    PLANNED = "planned"
    """The nodes were read; ``text`` says what was found."""
    STARTED = "started"
    PROGRESS = "progress"
    LOG = "log"
    """A line of a rank's log, or of a program that works for the operation."""
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Not started: an earlier operation failed, or the user asked to stop."""
    NOTE = "note"
    """Said to the human, about no operation: a lease that is waited for, a warning."""


@dataclass(frozen=True)
class Event:
    """One thing that happened. Never holds a secret.

    ``done_bytes`` and ``total_bytes`` are of the operation (0: not counted in bytes); ``rate`` is bytes a
    second; ``seconds`` is how long a finished operation took.
    """

    phase: Phase
    operation: Operation | None = None
    node: str | None = None
    text: str = ""
    done_bytes: int = 0
    total_bytes: int = 0
    rate: float = 0.0
    seconds: float = 0.0
    error: SparkopError | None = None


Listener = Callable[[Event], None]
"""Gets every event, one at a time (the executor holds a lock), from any thread. Must not raise."""


def ignore(_event: Event) -> None:
    """A listener that does nothing."""
