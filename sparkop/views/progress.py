"""Events of a running apply, as a person follows them: live bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from sparkop.errors import SparkopError
from sparkop.reconcile.launcher import LauncherLog
from sparkop.resources.compare import human_bytes, precise_seconds
from sparkop.resources.events import Event, Listener, Phase
from sparkop.resources.made import words_for
from sparkop.resources.operations import Operation
from sparkop.views.console import print_lines, talk
from sparkop.views.errors import error_lines

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_INTERVAL = 5.0
"""Seconds between two progress lines of one operation where there is no terminal."""


def title(operation: Operation) -> str:
    """An operation in few words: ``pull image on spark-2``."""
    return f"{operation.action} {words_for(operation.resource)} on {operation.node}"


@contextmanager
def progress_listener(console: Console | None = None) -> Iterator[Listener]:
    """A listener that shows what goes on, on stderr."""
    if console is None and not sys.stderr.isatty():
        yield _Plain(sys.stderr)
        return
    console = console or talk()
    if not console.is_terminal:
        yield _Plain(console.file)
        return
    from sparkop.views.progress_bars import progress_bars

    with progress_bars(console) as bars:
        yield bars


@contextmanager
def logged_progress(cluster: str) -> Iterator[Listener]:
    """The same; the lines that stay go into the launcher's log too, and so does a failure."""
    log = LauncherLog(cluster)
    try:
        with progress_listener() as emit:
            yield _kept(emit, log.write)
    except SparkopError as error:
        log.write("\n".join(line.plain for line in error_lines(error)))
        raise


Line = tuple[str | tuple[str, str], ...]
"""Parts of a line: text, or text and its style, as rich assembles them where there are colours."""


def outcome_line(event: Event) -> Line | None:
    """The line that stays for an event; None for one that leaves no line."""
    match event.phase:
        case Phase.DONE if event.operation:
            return ("✓ ", "green"), f"{title(event.operation)}  ", (_took(event), "dim")
        case Phase.FAILED if event.operation:
            return ("✗ ", "bold red"), title(event.operation), f": {_whose(event)}{event.text}"
        case Phase.SKIPPED if event.operation:
            return ("- ", "yellow"), f"not started: {title(event.operation)}"
        case Phase.PLANNED | Phase.NOTE:
            return (f"{event.node}: {event.text}" if event.node else event.text,)
        case Phase.LOG:
            return ((f"  {event.node} | {event.text}", "dim"),)
        case _:
            return None


def _whose(event: Event) -> str:
    """The node that failed, where it is not the one that the operation is for: a copy's source."""
    node = event.error.node if event.error is not None else None
    return f"{node}: " if node and node != event.node else ""


def without_style(line: Line) -> str:
    """Its text."""
    return "".join(part if isinstance(part, str) else part[0] for part in line)


def _took(event: Event) -> str:
    size = f"{human_bytes(event.total_bytes)} in " if event.total_bytes else ""
    return f"{size}{precise_seconds(event.seconds)}"


def _kept(emit: Listener, write: Callable[[str], None]) -> Listener:
    """Tell ``emit``, and write down the lines that stay, and what was begun."""

    def both(event: Event) -> None:
        emit(event)
        if event.phase is Phase.STARTED and event.operation:
            write(f"… {title(event.operation)}")
        elif line := outcome_line(event):
            write(without_style(line))

    return both


class _Plain:
    """One line an event; progress at most every PLAIN_INTERVAL seconds an operation."""

    def __init__(self, channel: IO[str]) -> None:
        self._channel = channel
        self._last: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        if event.phase is Phase.STARTED and event.operation:
            self._say(f"… {title(event.operation)}")
        elif event.phase is Phase.PROGRESS and event.operation:
            self._progress(event, event.operation)
        elif line := outcome_line(event):
            self._say(without_style(line))

    def _progress(self, event: Event, operation: Operation) -> None:
        now = time.monotonic()
        if now - self._last.get(operation.key, float("-inf")) < PLAIN_INTERVAL:
            return
        self._last[operation.key] = now
        self._say(f"… {title(operation)}: {progress_text(event)}")

    def _say(self, line: str) -> None:
        with suppress(OSError):  # a full disk or a closed pipe: what goes on must not stop half-way for that
            print_lines([line], self._channel)
            self._channel.flush()


def progress_text(event: Event) -> str:
    """``1.2 GiB of 4.0 GiB, 219.0 MiB/s, 13 s left``, as far as it is known."""
    parts = [event.text] if event.text else []
    if event.total_bytes:
        parts.append(f"{human_bytes(event.done_bytes)} of {human_bytes(event.total_bytes)}")
    if event.rate > 0:
        parts.append(f"{human_bytes(event.rate)}/s")
        if event.total_bytes > event.done_bytes:
            parts.append(f"{precise_seconds((event.total_bytes - event.done_bytes) / event.rate)} left")
    return ", ".join(parts)
