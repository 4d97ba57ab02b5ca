"""Ctrl-C once: start nothing new, finish what runs. Twice: leave now. So do SIGTERM and a lost terminal."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import click

from sparkop.cli import after_the_echo
from sparkop.cli.root import Terminated, strike
from sparkop.errors import ExitCode, SparkopError, WaitInterruptedError
from sparkop.views.errors import show_error

LEAVES_WITHIN = 3.0
"""Seconds that what is cleared up gets when the user leaves now."""


FINISHES = (
    "starting nothing new, waiting for what runs. Once more leaves now; what runs on the nodes goes on there."
)
STOPS_WATCHING = (
    "stops watching. A transfer that runs goes on by itself on its node: sparkop download --follow finds it "
    "again, sparkop download --cancel ends it."
)


@contextmanager
def stop_on_interrupt(told: str = FINISHES) -> Iterator[threading.Event]:
    """An event that the first SIGINT, SIGTERM or SIGHUP sets, saying ``told``; the second one leaves at once.

    When the block ends by itself although a signal came, or fails, the signal's exception is raised then, so
    that the exit code says that it was interrupted.
    """
    stop = threading.Event()
    received: list[int] = []
    last = threading.Timer(LEAVES_WITHIN, lambda: os._exit(_code(received[-1])))
    last.daemon = True

    def handler(number: int, _frame: FrameType | None) -> None:
        if received:
            received.append(number)
            if last.ident is None:
                last.start()
            strike(number)
        received.append(number)
        stop.set()
        with suppress(OSError, RuntimeError):  # the terminal may be gone, or in the middle of a line
            click.echo(f"{after_the_echo()}sparkop: {told}", err=True)

    heard = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # ignored under nohup
        heard.append(signal.SIGHUP)
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield stop
    except SparkopError as error:
        if not received:
            raise
        if not isinstance(error, WaitInterruptedError):
            show_error(error)
    finally:
        last.cancel()
        for number, old in before.items():
            signal.signal(number, old)
    if received:
        raise _exception(received[0])


def _exception(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else Terminated()


def _code(number: int) -> int:
    return ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.TERMINATED
