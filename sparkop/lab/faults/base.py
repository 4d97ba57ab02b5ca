"""What a fault is, and what it is aimed at."""

from __future__ import annotations

import math
from collections.abc import Callable

from sparkop.errors import UsageError
from sparkop.lab.host import Host
from sparkop.lab.lab import Lab, parse_size
from sparkop.records import dataclass


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

    def size(self, otherwise: int) -> int:
        """``amount`` in bytes. Raises UsageError for what is no size."""
        try:
            return parse_size(self.amount) if self.amount else otherwise
        except ValueError:
            remedy = "use 512m, 4g, 256 KiB or bytes"
            raise UsageError(f"--amount {self.amount}: no size", remedy=remedy) from None

    def seconds(self, otherwise: float) -> float:
        """``amount`` in seconds. Raises UsageError for what is no number."""
        try:
            seconds = float(self.amount) if self.amount else otherwise
        except ValueError:
            seconds = math.nan
        if not math.isfinite(seconds):
            raise UsageError(f"--amount {self.amount}: no number of seconds")
        return seconds


@dataclass(frozen=True)
class Fault:
    """A named fault. ``breaks`` and ``mends`` do it, verify it, and return what they did in words."""

    name: str
    text: str
    breaks: Callable[[Target], str]
    mends: Callable[[Target], str]
