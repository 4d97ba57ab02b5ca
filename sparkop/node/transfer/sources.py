"""Where bytes come from, and how fast they may and do come."""

from __future__ import annotations

import threading
import time
import urllib.parse
from typing import Dict, Mapping, Tuple

from . import http
from .blocks import WRITE
from .files import File
from .hashing import CHUNK
from .http import Client, Reader, RetryError

SLOW = 100e6
"""Bytes a second of a stream below which the network is the limit, and more streams are."""
GROW_AFTER = 0.1
"""Seconds between two looks at whether streams are slow."""
TRIAL = 3.0
"""Seconds for which a number of streams is watched before it is judged."""
GAIN = 1.2
"""Twice the streams have to be so much faster to be kept."""
QUICK = 16e6
"""Bytes a second of a connection from which on it is read in large portions."""
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
        self.node = str(document.get("node") or "the node that we copy from")

    @property
    def by_piece(self) -> bool:
        """Offsets are counted in pieces, not in the whole file."""
        return self.kind == "hub"

    def client(self) -> Client:
        """Connections of one stream to it."""
        return Client(self.command, "" if self.by_piece else self.node)

    def address(self, name: str) -> Tuple[str, Dict[str, str]]:
        """Of something that is no file of the checkpoint: URL and headers."""
        headers = {"Authorization": "Bearer " + self._token} if self._token else {}
        return self._base + urllib.parse.quote(name), headers

    def reader(self, file: File, piece: int) -> Reader:
        """For one piece of the file, or for the file."""
        if self.by_piece:
            part = file.pieces[piece]
            name, size, hashes = part.path, part.size, (part.sha256,) if part.sha256 else ()
        else:
            name, size, hashes = file.path, file.size, ()
        url = self._base + urllib.parse.quote(name)
        return Reader(url, name, size, tuple(hashes), self._token, peer="" if self.by_piece else self.node)


class Crew:
    """How many streams work: one while it is fast, all when each is slow. Called under one lock.

    More streams than the line needs cost time: they share this node's cores with the hash, and it has to read
    back what does not come in order. Between slow and fast it is tried whether twice as many gain anything.
    """

    def __init__(self, most: int, *, slow: float = SLOW) -> None:
        self._most = most
        self._slow = slow
        self.size = 1
        self.expected = most
        """Streams that will work, as far as it is known: the work is cut for so many."""
        self._since = time.monotonic()
        self._count = 0
        self._rate = 0.0
        """Bytes a second of half the streams, while twice as many are tried."""
        self._settled = False

    def tune(self, count: int) -> bool:
        """``count`` bytes have come in all; True when the crew has just grown."""
        now = time.monotonic()
        elapsed = now - self._since
        if elapsed < GROW_AFTER or (self.size >= self._most and not self._rate):
            return False
        rate = (count - self._count) / elapsed
        slow = not self._rate and rate < self._slow * self.size
        self.expected = self._most if slow else self.size
        if not slow and elapsed < TRIAL:
            return False
        before = self.size
        self._judge(rate, slow=slow)
        self._since, self._count = now, count
        return self.size > before

    def _judge(self, rate: float, *, slow: bool) -> None:
        if self._rate:
            self._settled = rate < GAIN * self._rate
            self._rate = 0.0
            if self._settled:
                self.size = (self.size + 1) // 2
        elif slow or not self._settled:
            self._rate = 0.0 if slow else rate
            self.size = min(self._most, 2 * self.size)


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
    """Notices a connection that sends next to nothing, and one that fills large buffers at once."""

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._since = self._read_at = time.monotonic()
        self._count = 0
        self.portion = CHUNK
        """Bytes to ask for by the next read: progress and a word to stop wait for no longer than a moment."""

    def check(self, count: int, *, limited: bool) -> float:
        """After each read; returns the time. Raises RetryError."""
        now = time.monotonic()
        self.portion = WRITE if count > QUICK * (now - self._read_at) else CHUNK
        self._read_at = now
        self._count += count
        if now - self._since > http.TIMEOUT:
            if self._count < SLOWEST and not limited:
                raise RetryError("%s sends next to nothing" % self._whose)
            self._since, self._count = now, 0
        return now
