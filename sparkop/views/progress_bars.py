"""The live bars of a running apply; imported where there is a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import (
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress_bar import ProgressBar
from rich.table import Column
from rich.text import Text

from sparkop.resources.events import Event, Listener, Phase
from sparkop.resources.operations import Operation
from sparkop.views.progress import outcome_line, progress_text, title

BAR = 16
"""Width of a bar."""
LONGEST = 200
"""Letters of a loading line that are shown while it is the newest."""


@contextmanager
def progress_bars(console: Console) -> Iterator[Listener]:
    """A listener that shows a bar for each operation that runs."""
    with Progress(
        SpinnerColumn(),
        TimeElapsedColumn(),
        _Bar(),
        # Whole, on a second line where the terminal is narrow: what is left to wait for stands at its end.
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=False)),
        console=console,
        transient=True,
    ) as progress:
        yield _Live(console, progress)


class _Bar(ProgressColumn):
    """Only for what is measured in bytes. A full bar is no end: an image is still unpacked then."""

    def render(self, task: Task) -> RenderableType:
        done, total = task.fields.get("done", 0), task.fields.get("of", 0)
        return ProgressBar(total=total, completed=done, width=BAR) if total else ""


class _Live:
    """Bars for what runs, lines above them for what happened."""

    def __init__(self, console: Console, progress: Progress) -> None:
        self._console = console
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, event: Event) -> None:
        if event.operation and event.phase is Phase.STARTED:
            self._tasks[event.operation.key] = self._progress.add_task(title(event.operation), total=None)
        elif event.operation and event.phase is Phase.PROGRESS:
            self._update(event, event.operation)
        else:
            if event.operation and event.phase in (Phase.DONE, Phase.FAILED, Phase.SKIPPED):
                task = self._tasks.pop(event.operation.key, None)
                if task is not None:
                    self._progress.remove_task(task)
            if line := outcome_line(event):
                self._console.print(Text.assemble(*line))

    def _update(self, event: Event, operation: Operation) -> None:
        task = self._tasks.get(operation.key)
        if task is None:
            return
        told = progress_text(event)[:LONGEST]
        self._progress.update(
            task,
            description=f"{title(operation)}: {told}" if told else title(operation),
            done=event.done_bytes,
            of=event.total_bytes,
        )
