"""What the guard leaves in the state folder: trip record, heartbeat, log."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import threading
import time
from typing import Any

LOG_LIMIT = 4 << 20
"""Bytes of memguard.log after which it is started anew (the old one is kept once)."""
TRIP_BYTES = 16 << 10


class TripFile:
    """The record of a trip, in space that is taken beforehand: also a full disk has room for it.

    The draft becomes ``trip.json`` after the kill; one that a power cut has left does so at the next start.
    """

    def __init__(self, state: str) -> None:
        self.path = os.path.join(state, "trip.json")
        self.draft = os.path.join(state, "trip.draft")
        self.descriptor: int | None = None
        self.written = threading.Event()
        self._wanted = threading.Semaphore(0)
        self._content = b""
        self.problem = ""

    def prepare(self) -> None:
        """Keep what an earlier guard left, and take the space for the next. Raises OSError."""
        if self._left_behind():
            self.publish()
        descriptor = os.open(self.draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, b"\0" * TRIP_BYTES, 0)
            os.ftruncate(descriptor, TRIP_BYTES)
            os.fsync(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        self.descriptor = descriptor

    def start(self) -> None:
        """The thread that syncs, so that a slow disk delays the kill by no more than the guard grants it."""
        threading.Thread(target=self._serve, name="trip", daemon=True).start()

    def write(self, record: dict[str, Any], seconds: float) -> bool:
        """Write and sync; False when that has not ended within ``seconds`` (it goes on)."""
        self._content = json.dumps(record).encode().ljust(TRIP_BYTES - 1)[: TRIP_BYTES - 1] + b"\n"
        self.written.clear()
        self._wanted.release()
        return self.written.wait(seconds)

    def add(self, more: dict[str, Any]) -> None:
        """Put what is known only after the kill into the published record. Raises OSError, ValueError."""
        with open(self.path, encoding="utf-8") as stream:
            record = json.load(stream)
        replace_synced(self.path, json.dumps({**record, **more}).encode() + b"\n")

    def publish(self) -> None:
        """The draft becomes the record. Raises OSError."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
        os.replace(self.draft, self.path)
        sync_folder(self.path)

    def _left_behind(self) -> bool:
        try:
            with open(self.draft, "rb") as stream:
                return isinstance(json.loads(stream.read().decode()), dict)
        except (OSError, ValueError):
            return False

    def _serve(self) -> None:
        while True:
            self._wanted.acquire()
            try:
                if self.descriptor is None:
                    self.descriptor = os.open(self.draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                os.pwrite(self.descriptor, self._content, 0)
                os.fdatasync(self.descriptor)
                self.problem = ""
            except OSError as error:
                self.problem = str(error)
            self.written.set()


class Log:
    """Lines on stdout and in memguard.log; a full disk loses the line, not the guard."""

    def __init__(self, state: str) -> None:
        self.path = os.path.join(state, "memguard.log")

    def write(self, text: str) -> None:
        line = "%s %s\n" % (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), text)
        with contextlib.suppress(OSError):
            sys.stdout.write(line)
            sys.stdout.flush()
        try:
            if os.path.exists(self.path) and os.path.getsize(self.path) > LOG_LIMIT:
                os.replace(self.path, self.path + ".1")
            with open(self.path, "a", encoding="utf-8") as stream:
                stream.write(line)
        except OSError:
            pass


def write_heartbeat(state: str, document: dict[str, Any]) -> None:
    """Whole or not at all; not synced: after a power cut nobody wants the old one. Raises OSError."""
    path = os.path.join(state, "memguard.json")
    draft = path + ".draft"
    with open(draft, "w", encoding="utf-8") as stream:
        json.dump(document, stream)
    os.replace(draft, path)


def replace_synced(path: str, content: bytes) -> None:
    """Whole and on the disk. Raises OSError."""
    draft = path + ".draft"
    with open(draft, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(draft, path)
    sync_folder(path)


def sync_folder(path: str) -> None:
    """So that a power cut does not undo a rename. Raises OSError."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def lock(state: str) -> int | None:
    """Be the one guard of this cluster here, until this process ends; None when another one is."""
    descriptor = os.open(os.path.join(state, "memguard.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
