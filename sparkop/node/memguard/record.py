"""What the guard leaves in the state folder: trip record, heartbeat, log, and who it is."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import sys
import threading
import time
from typing import Any, Callable

from .trouble import reason

LOG_LIMIT = 4 << 20
"""Bytes of memguard.log after which it is started anew (the old one is kept once)."""
TRIP_BYTES = 16 << 10
BEAT_BYTES = 8 << 10
IDENTITY_BYTES = 256
SHORTEST_ID = 12
"""Of a container: a shorter one could be part of any control group's name."""
RETRY_EVERY = 5.0
"""Seconds between two tries to write what a full or broken disk did not take."""
RENAME_EXCHANGE = 2
HERE = -100
"""AT_FDCWD: paths as they are."""


class TripFile:
    """The record of a trip, in space that is taken beforehand: also a full disk has room for it.

    The draft becomes ``trip.json`` after the kill; one that a power cut has left does so at the next start.
    A disk that took neither space nor record is tried again (`retry`): the kill never waits for that.
    """

    def __init__(self, state: str) -> None:
        self.path = os.path.join(state, "trip.json")
        self.draft = os.path.join(state, "trip.draft")
        self.descriptor: int | None = None
        self.written = threading.Event()
        self._wanted = threading.Semaphore(0)
        self._content = b""
        self._asked = False
        self._own = threading.Lock()
        """Of the draft and its descriptor; whoever holds it waits for nothing but the disk."""
        self.problem = ""

    @property
    def pending(self) -> bool:
        """A record is on its way to the disk, or has reached it and is not published yet."""
        return self._asked and not self.problem

    def prepare(self) -> None:
        """Keep what an earlier guard left, and take the space for the next. Raises OSError."""
        with self._own:
            if self.in_place:
                return
            self._close()
            if self._left_behind():
                self._publish()
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
        """Write and sync; False when that has not ended well within ``seconds`` (it goes on)."""
        self._content = fitting(record)
        self._asked = True
        self.written.clear()
        self._wanted.release()
        return self.written.wait(seconds) and not self.problem

    def retry(self) -> bool:
        """Try again what was not written, or take the space that there was not; False: nothing was due."""
        if self.problem:
            self.written.clear()
            self._wanted.release()
        elif not self.in_place:
            self.prepare()
        else:
            return False
        return True

    def add(self, more: dict[str, Any]) -> None:
        """Put what is known only after the kill into the published record. Raises OSError, ValueError."""
        with open(self.path, encoding="utf-8") as stream:
            record = json.load(stream)
        replace_synced(self.path, json.dumps({**record, **more}).encode() + b"\n")

    def publish(self) -> None:
        """The draft becomes the record. Raises OSError."""
        self._asked = False
        with self._own:
            self._publish()

    @property
    def in_place(self) -> bool:
        """The draft is the file that we hold: else somebody has removed it, or put something in its place."""
        try:
            return self.descriptor is not None and os.path.samestat(
                os.fstat(self.descriptor), os.stat(self.draft)
            )
        except OSError:
            return False

    def _close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def _publish(self) -> None:
        self._close()
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
                with self._own:
                    if self.descriptor is None or not self.in_place:
                        self._close()
                        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                        self.descriptor = os.open(self.draft, flags, 0o644)
                    os.pwrite(self.descriptor, self._content, 0)
                    os.fdatasync(self.descriptor)
                self.problem = ""
            except Exception as error:  # this thread never ends: the next record is its business, too
                self.problem = reason(error)
            self.written.set()


def fitting(record: dict[str, Any]) -> bytes:
    """As JSON of exactly `TRIP_BYTES`: with very many ranks only the last of each list is told."""
    content = b""
    for most in (1000, 20, 1):
        short = {key: value[-most:] if isinstance(value, list) else value for key, value in record.items()}
        content = json.dumps(short).encode()
        if len(content) < TRIP_BYTES:
            break
    return content.ljust(TRIP_BYTES - 1) + b"\n"


class Log:
    """Lines on stdout and in memguard.log; a full disk loses the line, not the guard."""

    def __init__(self, state: str) -> None:
        self.path = os.path.join(state, "memguard.log")

    def write(self, text: str) -> None:
        line = "%s %s\n" % (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), text)
        with contextlib.suppress(OSError, ValueError):  # closed, or a name that has no letters
            sys.stdout.write(line)
            sys.stdout.flush()
        try:
            if os.path.exists(self.path) and os.path.getsize(self.path) > LOG_LIMIT:
                os.replace(self.path, self.path + ".1")
            with open(self.path, "a", encoding="utf-8", errors="backslashreplace") as stream:
                stream.write(line)
        except OSError:
            pass


def write_heartbeat(state: str, document: dict[str, Any]) -> None:
    """Whole or not at all; not synced: after a power cut nobody wants the old one. Raises OSError.

    Two files change places, so that a full disk, where a new one could not be written, does not make a
    guard look silent.
    """
    path = os.path.join(state, "memguard.json")
    draft = path + ".draft"
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        content = json.dumps(document).encode().ljust(BEAT_BYTES - 1) + b"\n"
        os.pwrite(descriptor, content, 0)
        os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)
    exchange(draft, path)


def last_ranks(state: str) -> list[dict[str, Any]]:
    """The ranks of the last heartbeat, as `Rank.known` told them; none when it can't be understood."""
    try:
        with open(os.path.join(state, "memguard.json"), encoding="utf-8") as stream:
            return [
                {
                    **{key: str(each[key]) for key in ("id", "name", "stamp", "numbers")},
                    "pid": int(each["pid"]),
                }
                for each in json.load(stream)["ranks"]
                if len(each["id"]) >= SHORTEST_ID
            ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def exchange(draft: str, path: str) -> None:
    """Each file gets the other's name; where the system can't do that, the draft replaces the other."""
    try:
        swap = ctypes.CDLL(None).renameat2
        if swap(HERE, os.fsencode(draft), HERE, os.fsencode(path), RENAME_EXCHANGE) == 0:
            return
    except AttributeError:
        pass
    os.replace(draft, path)


def write_identity(path: str) -> None:
    """Which process this is, beyond doubt (node/units.py reads it). In place. Raises OSError."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as stream:
        started = int(stream.read().rpartition(")")[2].split()[19])
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
        boot = stream.read().strip()
    content = json.dumps({"pid": os.getpid(), "started": started, "boot": boot}).encode()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.pwrite(descriptor, content.ljust(IDENTITY_BYTES - 1) + b"\n", 0)
    finally:
        os.close(descriptor)


def write_next(state: str) -> None:
    """Say that this guard is ready to relieve another one. Raises OSError."""
    content = {"version": 1, "pid": os.getpid(), "up": time.clock_gettime(time.CLOCK_BOOTTIME)}
    replace_synced(os.path.join(state, "memguard.next.json"), json.dumps(content).encode() + b"\n")


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


def lock(state: str, told: Callable[[], None]) -> int:
    """Be the one guard of this cluster here, until this process ends; wait for another one's end.

    ``told``: called when there is another one. Raises OSError when that can't be known.
    """
    path = os.path.join(state, "memguard.lock")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:  # full or read-only: one that is there will do
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        told()
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor
