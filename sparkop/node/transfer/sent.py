"""Lets go of the page cache of what was sent: on a Spark it takes memory from the model.

Some way behind what is sent, so that a second peer that follows closely still finds it there; the whole of
every file when nobody asks any more. What is not in its place yet is left to who writes it.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import suppress
from typing import Deque, Set, Tuple

WINDOW = 256 << 20
"""Bytes that stay for those that follow."""


class Sent:
    """What one process has sent and not let go of yet. For several threads."""

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._lock = threading.Lock()
        self._ranges: Deque[Tuple[str, int, int]] = deque()
        self._bytes = 0
        self._paths: Set[str] = set()

    def add(self, path: str, start: int, end: int) -> None:
        """A range of a file was sent; the oldest ones beyond the window are let go."""
        over = []
        with self._lock:
            self._paths.add(path)
            self._ranges.append((path, start, end))
            self._bytes += end - start
            while self._bytes > self._window:
                over.append(self._ranges.popleft())
                self._bytes -= over[-1][2] - over[-1][1]
        for each in over:
            _let_go(*each)

    def let_go(self) -> None:
        """All of every file: what was read ahead of a range, or was still on its way, as well."""
        with self._lock:
            paths, self._paths, self._bytes = self._paths, set(), 0
            self._ranges.clear()
        for path in sorted(paths):
            _let_go(path, 0, 0)


def _let_go(path: str, start: int, end: int) -> None:
    with suppress(OSError):  # gone meanwhile, and its pages with it
        handle = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(handle, start, end - start, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)
