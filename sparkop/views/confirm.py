"""Questions. Only on a terminal; without one a command goes ahead as told."""

from __future__ import annotations

import signal
import sys

import click

from sparkop.errors import DeclinedError


def confirm(question: str) -> None:
    """Ask, and raise DeclinedError when the answer is no."""
    if not agreed(question):
        raise DeclinedError("left as it is: you said no")


def agreed(question: str) -> bool:
    """The answer; yes where there is no terminal to ask. Ctrl-C leaves: nothing runs meanwhile."""
    if not can_ask():
        return True
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return click.confirm(question, default=False, err=True)
    finally:
        signal.signal(signal.SIGINT, before)


def can_ask() -> bool:
    """Whether there is a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()
