"""What a person sees while an apply runs."""

from __future__ import annotations

import errno
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from rich.console import Console

from sparkop.resources.events import Event, Listener, Phase
from sparkop.resources.operations import Action, Cause, Operation
from sparkop.views.progress import progress_listener

PULL = Operation(Action.PULL, "spark-2", "image", Cause("image", "absent", "present"))
WAIT = Operation(Action.WAIT, "spark-1", "endpoint", Cause("endpoint", "nothing", "tokens"))


@contextmanager
def terminal(width: int) -> Iterator[tuple[Listener, io.StringIO]]:
    """A terminal, and what was written to it."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=width, color_system=None)
    with progress_listener(console) as emit:
        yield emit, written


@pytest.mark.parametrize("width", [80, 160])
def test_only_bytes_have_a_bar_and_all_that_is_known_is_shown(width: int) -> None:
    """A wait once had a bar of "0/? bytes", and a narrow terminal cut off how long it will take."""
    with terminal(width) as (emit, written):
        emit(Event(Phase.STARTED, operation=PULL))
        emit(Event(Phase.STARTED, operation=WAIT))
        half = Event(Phase.PROGRESS, PULL, text="Downloading", done_bytes=1 << 31, total_bytes=1 << 32)
        emit(replace(half, rate=1 << 20))
        emit(Event(Phase.PROGRESS, operation=WAIT, text="rank 0: loading [0/8]"))
    shown = " ".join(written.getvalue().split())
    assert "? bytes" not in shown
    assert "pull image on spark-2: Downloading, 2.0 GiB of 4.0 GiB" in shown.replace("\u2501", "")
    assert "left" in shown
    assert "wait endpoint on spark-1: rank 0: loading [0/8]" in shown, "brackets of an engine are no markup"


def test_a_pull_has_not_ended_when_all_bytes_are_there() -> None:
    """It is unpacked then: no tick before its end."""
    with terminal(100) as (emit, written):
        emit(Event(Phase.STARTED, operation=PULL))
        emit(Event(Phase.PROGRESS, operation=PULL, text="Extracting", done_bytes=7, total_bytes=7))
    assert "\u2713" not in written.getvalue()


def test_a_full_disk_behind_stderr_ends_no_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks were gone already: the group stayed down until somebody looked."""
    tried: list[str] = []

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            tried.append(text)
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("sys.stderr", Full())
    with progress_listener() as emit:
        emit(Event(Phase.DONE, operation=PULL))
    assert "pull image" in tried[0]
