"""Progress of a job, written for whoever looks: ``STATE/transfer.json``."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any, Callable, Deque, Dict, List, Mapping, Optional, Tuple

from .files import Job, StoppedError, TransferError, as_transfer_error, status_file

PERIOD = 0.5
WINDOW = 10.0
"""Seconds over which the rate is taken."""
STANDSTILL = 1024
"""Bytes a second below which nothing is said of the time that is left."""
NAMED = 3
"""Bad files named by the last word on a full disk."""
ACTIVE = 16
"""Files shown by name at a time."""


def boot_id() -> str:
    """Of this start of the machine: a process id means nothing after a reboot."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def is_alive(status: Mapping[str, Any]) -> bool:
    """The process that wrote this status is still there."""
    return status.get("boot_id") == boot_id() and os.path.exists("/proc/%s" % status.get("pid"))


class Status:
    """Counts what happens, and writes it twice a second. Thread-safe."""

    def __init__(self, state: str, job: Job) -> None:
        self._path = os.path.join(state, status_file(job.kind))
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        """What was read first is written first: an older word does not replace the last one."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write_on, daemon=True)
        self._samples: Deque[Tuple[float, int]] = deque()
        self._document: Dict[str, Any] = {
            "version": 1, "id": job.id, "kind": job.kind, "pid": os.getpid(), "boot_id": boot_id(),
            "started_at": time.time(), "sequence": 0, "phase": "checking", "error": None,
            "source": str(job.sources[0].get("kind")) if job.sources else "",
            "from": str(job.sources[0].get("node") or "") if job.sources else "",
        }  # fmt: skip
        self._folder = job.directory
        self._files_total = len(job.files)
        self._bytes_total = sum(file.size for file in job.files)
        self._done: Dict[str, int] = {}
        self._active: Dict[str, Tuple[int, int]] = {}
        self._received = self._discarded = self._hashed = 0
        self._received_at = time.monotonic()
        self._waited_at: Optional[float] = None
        """When the source last said that it has to fetch what was asked for itself."""
        self.bad: Dict[str, str] = {}
        self.problems: List[str] = []
        self.notes: List[str] = []
        """What the user should know while it goes on."""

    def follow(self, work: Callable[[], None]) -> bool:
        """Do the work and write how it ended; False when it failed or was cancelled."""
        self.write()
        self._thread.start()
        try:
            work()
        except StoppedError:
            self.end("cancelled")
            return False
        except TransferError as error:
            self.end("failed", error)
            return False
        except OSError as error:
            self.end("failed", as_transfer_error(error, self._folder))
            return False
        except BaseException as error:
            self.end("failed", TransferError("job", "fault in the transfer program: %r" % error))
            raise
        self.end("done")
        return True

    def phase(self, name: str) -> None:
        with self._lock:
            self._document["phase"] = name
            self._samples.clear()
            self._received_at = time.monotonic()
        self.write()

    def received(self, count: int, *, discarded: bool = False) -> None:
        """Bytes came over the network; ``discarded``: they were here already."""
        with self._lock:
            self._received += count
            self._received_at = time.monotonic()
            if discarded:
                self._discarded += count

    def waits(self, waits: bool) -> None:
        """Whether the source still fetches what was asked for: how fast that comes is told there."""
        with self._lock:
            self._waited_at = time.monotonic() if waits else None

    def hashed(self, count: int) -> None:
        """Bytes on disk were read for a check."""
        with self._lock:
            self._hashed += count

    def at(self, path: str, size: int, done: int) -> None:
        """A file is at work, and this much of it is durable."""
        with self._lock:
            self._active[path] = (size, done)

    def finished(self, path: str, size: int) -> None:
        """A file is in place and verified."""
        with self._lock:
            self._active.pop(path, None)
            self._done[path] = size
            self.bad.pop(path, None)

    def dropped(self, path: str, reason: Optional[str] = None) -> None:
        """A file is no longer at work; with a reason: its bytes are wrong."""
        with self._lock:
            self._active.pop(path, None)
            self._done.pop(path, None)
            if reason is not None:
                self.bad[path] = reason

    def note(self, text: str) -> None:
        """Tell it once."""
        with self._lock:
            if text not in self.notes:
                self.notes.append(text)

    def end(self, phase: str, error: Optional[TransferError] = None) -> None:
        """The last word."""
        self._stop.set()
        with self._lock:
            self._document["phase"] = phase
            if error is not None:
                self._document["error"] = {
                    "kind": error.kind,
                    "message": error.message,
                    "remedy": error.remedy,
                }
        if not self.write():
            self._write_over()

    def document(self) -> Dict[str, Any]:
        """What `write` writes."""
        with self._lock:
            checking, fetching = (self._document["phase"] == name for name in ("checking", "fetching"))
            staged = sum(part for _, part in self._active.values())
            done = sum(self._done.values()) + staged
            rate = self._rate(self._hashed if checking else self._received)
            left = max(0, self._bytes_total - done)
            waits = fetching and left > 0 and self._is_waiting()
            rate = 0.0 if waits else rate
            silent = int(time.monotonic() - self._received_at) if fetching and left and not waits else 0
            self._document["sequence"] += 1
            shown = sorted(self._active.items())[:ACTIVE]
            return dict(
                self._document,
                updated_at=time.time(),
                files={"total": self._files_total, "done": len(self._done)},
                bytes={"total": self._bytes_total, "done": done, "staged": staged,
                       "received": self._received, "discarded": self._discarded, "hashed": self._hashed},
                rate=rate,
                silent=silent,
                waits=waits,
                remaining=left / rate if rate and not checking else None,
                active={path: {"size": size, "done": part} for path, (size, part) in shown},
                bad=dict(self.bad),
                problems=list(self.problems),
                notes=list(self.notes),
            )  # fmt: skip

    def _is_waiting(self) -> bool:
        """Also for as long as the rate is taken of seconds in which it did."""
        waited = self._waited_at
        return waited is not None and (waited >= self._received_at or time.monotonic() - waited <= WINDOW)

    def _rate(self, count: int) -> float:
        now = time.monotonic()
        self._samples.append((now, count))
        while now - self._samples[0][0] > WINDOW and len(self._samples) > 2:
            self._samples.popleft()
        since, before = self._samples[0]
        rate = (count - before) / (now - since) if now > since else 0.0
        return rate if rate >= STANDSTILL else 0.0

    def write(self) -> bool:
        """Replace the file; False when the disk does not take it. It need not survive a power cut."""
        with self._writing:
            return self._replace(json.dumps(self.document()))

    def _replace(self, data: str) -> bool:
        temporary = "%s.%d.%d.new" % (self._path, os.getpid(), threading.get_ident())
        try:
            with open(temporary, "w") as file:
                file.write(data)
            os.replace(temporary, self._path)
        except OSError:  # a full disk must not end the job that is about to say so
            if os.path.exists(temporary):
                os.unlink(temporary)
            return False
        return True

    def _write_over(self) -> None:
        """On a full disk the last word goes over the words before it: no room is needed for that. In one
        write, padded to their length, so that no moment between shows half of both."""
        shorter = dict(self.document(), active={}, bad=dict(sorted(self.bad.items())[:NAMED]), problems=[])
        with suppress(OSError):
            handle = os.open(self._path, os.O_WRONLY)
            try:
                os.write(handle, json.dumps(shorter).encode().ljust(os.fstat(handle).st_size))
            finally:
                os.close(handle)

    def _write_on(self) -> None:
        while not self._stop.wait(PERIOD):
            self.write()
