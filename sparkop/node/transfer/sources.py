"""Where bytes come from, and how fast they may and do come."""

from __future__ import annotations

import threading
import time
import urllib.parse
from typing import Mapping

from . import http
from .files import File
from .http import Reader, RetryError

FIRST = 2
"""Streams that begin."""
FAST = 250e6
"""Bytes a second of a stream from which on more streams are not worth it."""
GROW_AFTER = 0.1
"""Seconds between two looks at whether more streams are needed."""
SLOWEST = 64 << 10
"""Bytes in `http.TIMEOUT` seconds under which a connection counts as stalled."""


class Source:
    """A place that has the files. ``hub`` knows pieces, peers know whole files."""

    def __init__(self, document: Mapping[str, object], secrets: Mapping[str, str]) -> None:
        self.kind = str(document["kind"])
        command = document.get("command")
        self.command = [str(word) for word in command] if isinstance(command, (list, tuple)) else None
        self._base = str(document.get("base", "http://peer/"))
        self._token = secrets.get(self.kind, "")

    @property
    def by_piece(self) -> bool:
        """Offsets are counted in pieces, not in the whole file."""
        return self.kind == "hub"

    def reader(self, file: File, piece: int) -> Reader:
        """For one piece of the file, or for the file."""
        if self.by_piece:
            part = file.pieces[piece]
            name, size, hashes = part.path, part.size, (part.sha256,) if part.sha256 else ()
        else:
            name, size, hashes = file.path, file.size, ()
        url = self._base + urllib.parse.quote(name)
        return Reader(url, name, size, tuple(hashes), self._token, peer=not self.by_piece)


class Crew:
    """How many streams work: few while each is fast, all when each is slow. Called under one lock.

    More streams than the line needs cost time: they share this node's cores with the hash.
    """

    def __init__(self, most: int, *, fast: float = FAST) -> None:
        self._most = most
        self._fast = fast
        self.size = min(FIRST, most)
        self._since = time.monotonic()
        self._count = 0

    def tune(self, count: int) -> bool:
        """``count`` bytes have come in all; True when the crew has just grown."""
        now = time.monotonic()
        if self.size >= self._most or now - self._since < GROW_AFTER:
            return False
        slow = (count - self._count) / (now - self._since) < self._fast * self.size
        self._since, self._count = now, count
        if slow:
            self.size = min(self._most, 2 * self.size)
        return slow


class Limiter:
    """At most ``rate`` bytes a second in all; 0 is no limit."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._free_at = time.monotonic()

    def take(self, count: int, stop: threading.Event) -> None:
        """Wait until this many bytes may pass."""
        if not self._rate:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + count / self._rate
            pause = self._free_at - now
        stop.wait(pause)


class Pace:
    """Notices a connection that sends next to nothing."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._count = 0

    def check(self, count: int, *, limited: bool) -> float:
        """After each read; returns the time. Raises RetryError."""
        now = time.monotonic()
        self._count += count
        if now - self._since > http.TIMEOUT:
            if self._count < SLOWEST and not limited:
                raise RetryError("the connection sends next to nothing")
            self._since, self._count = now, 0
        return now
