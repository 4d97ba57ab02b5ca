"""Ctrl-C once: start nothing new, finish what runs. Twice: leave now."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click

from sparkop.cli import Terminated


@contextmanager
def stop_on_interrupt() -> Iterator[threading.Event]:
    """An event that the first SIGINT or SIGTERM sets; the second one leaves at once.

    When the block ends by itself although a signal came, the signal's exception is raised then, so that
    the exit code says that it was interrupted.
    """
    stop = threading.Event()
    received: list[int] = []

    def handler(number: int, _frame: FrameType | None) -> None:
        if received:
            raise _exception(number)
        received.append(number)
        stop.set()
        click.echo(
            "\nsparkop: starting nothing new, waiting for what runs. Once more leaves now; "
            "what runs on the nodes goes on there.",
            err=True,
        )

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, old in before.items():
            signal.signal(number, old)
    if received:
        raise _exception(received[0])


def _exception(number: int) -> BaseException:
    return Terminated() if number == signal.SIGTERM else KeyboardInterrupt()
