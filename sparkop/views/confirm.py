"""Questions. Only on a terminal; without one a command goes ahead as told."""

from __future__ import annotations

import sys

import click

from sparkop.errors import BlockedError


def confirm(question: str) -> None:
    """Ask, and raise BlockedError when the answer is no."""
    if not agreed(question):
        raise BlockedError("left as it is: you said no")


def agreed(question: str) -> bool:
    """The answer; yes where there is no terminal to ask."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    return click.confirm(question, default=False, err=True)
