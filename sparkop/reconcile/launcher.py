"""The launcher's log: what commands that write (``apply``, ``watch``, ``stop``, ...) told on this machine.

Owner-only, masked, two files of at most 4 MiB a cluster. A convenience: what can't be written is lost, and
nothing waits for it.
"""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime
from pathlib import Path

from sparkop.reconcile.remembered import state_directory
from sparkop.resources.masking import mask

LARGEST = 4 << 20
"""Bytes of a file; the one before it is kept as ``.1``."""


def launcher_file(cluster: str) -> Path:
    """Where the cluster's lines are, on this machine."""
    return state_directory() / "logs" / f"{cluster}.log"


class LauncherLog:
    """Takes lines. Threads may share it."""

    def __init__(self, cluster: str) -> None:
        self._path = launcher_file(cluster)
        self._lock = threading.Lock()

    def write(self, text: str) -> None:
        """Append, with the time; a text of several lines is several lines."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        data = "".join(f"{now} {mask(line)}\n" for line in text.splitlines()).encode()
        try:
            with self._lock:
                self._append(data)
        except OSError:
            return

    def _append(self, data: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self._path.exists() and self._path.stat().st_size + len(data) > LARGEST:
            self._path.replace(self._path.with_suffix(".log.1"))
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)


def launcher_lines(cluster: str, tail: int) -> list[str]:
    """The last lines; empty when nothing was told here."""
    path = launcher_file(cluster)
    lines: list[str] = []
    for each in (path, path.with_suffix(".log.1")):
        if len(lines) < tail:
            try:
                lines = [*each.read_text(encoding="utf-8", errors="replace").splitlines(), *lines]
            except OSError:
                continue
    return lines[len(lines) - tail :] if tail < len(lines) else lines
