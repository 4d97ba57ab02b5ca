"""What a fault is, and what it is aimed at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparkop.lab.host import Host
from sparkop.lab.lab import Lab


@dataclass(frozen=True)
class Target:
    """One host of a lab, and what on it."""

    lab: Lab
    host: Host
    rail: int | None = None
    """0 or 1: one fabric rail; None: both."""
    rank: int | None = None
    """One rank; None: every rank of the host."""
    path: str | None = None
    """Folder of the weights on the host; None: found from a rank's container."""
    amount: str | None = None
    """Size or seconds, where a fault has one."""


@dataclass(frozen=True)
class Fault:
    """A named fault. ``breaks`` and ``mends`` do it, verify it, and return what they did in words."""

    name: str
    text: str
    breaks: Callable[[Target], str]
    mends: Callable[[Target], str]
