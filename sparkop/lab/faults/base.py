"""What a fault is, and what it is aimed at."""

from __future__ import annotations

import math
from collections.abc import Callable

from sparkop.errors import UsageError
from sparkop.lab.host import Host
from sparkop.lab.lab import Lab, parse_size
from sparkop.node.transfer.files import size_text
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

    def size(self, otherwise: int, whole: int, what: str) -> int:
        """``amount`` in bytes. Raises UsageError for no size, and for more than the ``whole`` of ``what``."""
        if not self.amount:
            return otherwise
        try:
            size = parse_size(self.amount)
        except ValueError:
            remedy = "use 512m, 4g, 256 KiB or bytes"
            raise UsageError(f"--amount {self.amount}: no size", remedy=remedy) from None
        if size > whole:
            raise UsageError(
                f"--amount {self.amount}: the {what} of {self.host.name} has {size_text(whole)}",
                remedy="give what is to stay free of it, for example 256m",
            )
        return size

    def seconds(self, otherwise: float, least: float = 0.0) -> float:
        """``amount`` in seconds. Raises UsageError for what is no number, and for less than the ``least``."""
        try:
            seconds = float(self.amount) if self.amount else otherwise
        except ValueError:
            seconds = math.nan
        if not math.isfinite(seconds):
            raise UsageError(f"--amount {self.amount}: no number of seconds")
        if seconds < least:
            raise UsageError(f"--amount {self.amount}: at least {least:g} s")
        return seconds


@dataclass(frozen=True)
class Fault:
    """A named fault. ``breaks`` and ``mends`` do it, verify it, and return what they did in words."""

    name: str
    text: str
    breaks: Callable[[Target], str]
    mends: Callable[[Target], str]
