"""What may take its time: Docker, the log, the heartbeat, the checkpoint's pages. On threads of their own."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from typing import Any, Sequence

from . import reading, record
from .engine import Docker, Rank, hold
from .guard import LOADING, SAMPLES, STEP, Guard
from .outside import Outside
from .trouble import Troubles, reason

LOOK_EVERY = 2.0
BEAT_EVERY = 10.0
TURN = 0.1
"""Seconds between two turns while a record or a rank's end is waited for."""
REST = 1.0
"""The same otherwise: a kill wakes the watcher, and nothing else is in a hurry."""
AFTER = 3.0
"""Seconds after the record in which killed ranks have given their memory back."""
CHUNK = 256 << 20
"""Bytes that are released in one call: some milliseconds."""
LARGE_FILE = 64 << 20
RELEASE_UNDER = 12 << 30
"""MemFree: CUDA on these machines takes what is free, and counts page cache as used."""
RELEASE_PART = 4
"""Release only while MemFree is under this part of all memory, too: small machines."""
WORTH = 1 << 30
"""Page cache under which there is nothing to gain."""


class Watcher:
    """Keeps ``guard.ranks`` right and carries out what the guard has put into its queues."""

    def __init__(self, cluster: str, guard: Guard, docker: Docker, trip: record.TripFile, state: str) -> None:
        self.cluster = cluster
        self.guard = guard
        self.docker = docker
        self.trip = trip
        self.state = state
        self.log = record.Log(state)
        self.facts: dict[str, Any] = {}
        """What the start has found: whether memory is locked, how long a kill took."""
        self.retired: list[Rank] = []
        self.silent = False
        self.troubles = Troubles(self.log.write)
        self._outside = Outside(int(SAMPLES * STEP / BEAT_EVERY))
        self._told_after: float | None = None
        self._looked = self._beat = self._retried = -1e9

    def start(self) -> None:
        threading.Thread(target=self._run, name="watcher", daemon=True).start()

    def turn(self, now: float) -> None:
        """Records, log, ranks, heartbeat; only Docker can make it slow. What fails keeps nothing else from
        being done."""
        attempt = self.troubles.attempt
        self._publish(now)
        if now - self._retried >= record.RETRY_EVERY:
            self._retried = now
            attempt("the space of a trip's record", self._retry)
        if self._told_after is not None and now >= self._told_after:
            attempt("the end of the trip's record", self._tell_after)
        attempt("the log", self._speak)
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            attempt("the ranks", self.look)
        if now - self._beat >= BEAT_EVERY and self.guard.beat >= 0:
            self._beat = now
            attempt("the heartbeat", self.heartbeat)

    @property
    def busy(self) -> bool:
        """Whether a kill has something to follow: its record, its lines in the log, what it brought."""
        return (
            self._told_after is not None
            or self.trip.pending
            or any(rank.killed_at is not None for rank in self.guard.ranks)
        )

    def carry_out(self, seconds: float) -> bool:
        """Wait so long for a kill that Docker has to do, and do all there are: no kill waits for a turn. The
        record comes first: Docker may take its time. True: it has waited, or done them all."""
        try:
            rank = self.guard.kills.get(timeout=seconds)
            self._publish(time.monotonic())
            while True:
                self._kill(rank)
                rank = self.guard.kills.get_nowait()
        except queue.Empty:
            return True

    def look(self) -> None:
        """Ask Docker which ranks run. When it does not answer, those that were known stay known."""
        try:
            found = self.docker.ranks(self.cluster)
            known = {rank.identifier: rank for rank in self.guard.ranks if not rank.ended}
            ranks = tuple(known.get(each["Id"]) or self._rank(each) for each in found)
        except Exception as error:  # whatever it is that something on that socket answers
            if not self.silent:
                self.log.write("Docker does not answer: %s" % reason(error))
            self.silent = True
            return
        if self.silent:
            self.log.write("Docker answers again")
        self.silent = False
        for rank in self.retired:  # one look later: the guard may just have used it
            rank.close()
        self.retired = [rank for rank in self.guard.ranks if rank not in ranks]
        if ranks != self.guard.ranks:
            self.guard.ranks = ranks

    def recall(self) -> None:
        """While Docker is frozen from the start: the ranks of the last heartbeat that still are the same."""
        found = []
        for known in record.last_ranks(self.state):
            held = hold(known["id"], known["pid"])
            if held is not None:
                found.append(
                    Rank(known["id"], known["name"], known["stamp"], held, known["numbers"], known["pid"])
                )
        self.guard.ranks = tuple(found)
        self.log.write("known from before: %s" % (", ".join(rank.name for rank in found) or "no rank"))

    def heartbeat(self) -> None:
        """Who reads it knows that memory is read, and sees the last minutes. Raises OSError."""
        guard = self.guard
        held = self._look_at_processes(guard.ranks)
        document = {
            "version": 1,
            "at": guard.looked_at,
            "up": guard.looked_up,
            "phase": guard.phase,
            "available": guard.last.available,
            "free": guard.last.free,
            "cached": guard.last.cached,
            "large_blocks": reading.large_blocks(),
            "pressure": reading.pressure(),
            "lowest": guard.lowest,
            "floors": guard.floors._asdict(),
            "containers": [{"name": name, "rss": size} for name, size in held.items()],
            "ranks": [rank.known() for rank in guard.ranks],
            "docker": not self.silent,
            "samples": guard.samples(),
            **self.facts,
        }
        record.write_heartbeat(self.state, document)

    def _look_at_processes(self, ranks: Sequence[Rank]) -> dict[str, int]:
        """Who holds memory now; resident bytes of each rank's container."""
        found = reading.processes({rank.name: rank.identifier for rank in ranks})
        self.guard.largest, self.guard.outside = found.largest, self._outside.look(found.outside)
        return found.containers

    def _rank(self, found: dict[str, Any]) -> Rank:
        identifier = str(found["Id"])
        name = (found.get("Names") or ["/" + identifier[:12]])[0].lstrip("/")
        labels = found.get("Labels") or {}
        pid = self.docker.pid(identifier)
        held = hold(identifier, pid)
        how = "killed by the kernel when need be" if held is not None else "only Docker can kill it"
        self.log.write("%s runs; %s" % (name, how))
        return Rank(
            identifier, name, labels.get("sparkop.hash", ""), held, labels.get("sparkop.memory", ""), pid
        )

    def _kill(self, rank: Rank) -> None:
        try:
            answer = self.docker.kill(rank.identifier)
        except (OSError, ValueError) as error:
            self.log.write("Docker could not kill %s: %s" % (rank.name, error))
            return
        if answer not in (204, 404, 409):
            self.log.write("Docker answered %d to the kill of %s" % (answer, rank.name))

    def _publish(self, now: float) -> None:
        if self.trip.written.is_set():
            self.trip.written.clear()
            self.troubles.attempt("the record of the trip", self._published, now)

    def _published(self, now: float) -> None:
        if self.trip.problem:
            raise OSError(self.trip.problem)
        self.trip.publish()
        self._told_after = now + AFTER
        self.trip.prepare()

    def _tell_after(self) -> None:
        """What the kill has brought: who has the memory now was not killed."""
        self._told_after = None
        guard = self.guard
        self._look_at_processes((*guard.ranks, *self.retired))  # those that were killed may still be ending
        more = {"after": guard.largest, "outside_after": guard.outside}
        self.trip.add({**more, "available_after": guard.last.available})

    def _retry(self) -> None:
        with contextlib.suppress(OSError):  # it was told the first time
            self.trip.retry()

    def _speak(self) -> None:
        while True:
            try:
                self.log.write(self.guard.said.get_nowait())
            except queue.Empty:
                return

    def _run(self) -> None:
        while True:
            self.troubles.attempt("a turn of the watcher", self.turn, time.monotonic())
            seconds = TURN if self.busy else REST
            if not self.troubles.attempt("Docker's kills", self.carry_out, seconds):
                time.sleep(TURN)


class Releaser:
    """Gives the page cache of the checkpoint back while a group loads and free memory is short.

    CUDA's free memory on a GB10 is MemFree, so clean pages of files that were read already starve the
    loader. Pages that are mapped stay; those that are needed again are read again.
    """

    def __init__(self, guard: Guard, folder: str, total: int) -> None:
        self.guard = guard
        self.folder = folder
        self.low = min(RELEASE_UNDER, total // RELEASE_PART)
        self.files: list[tuple[int, int]] = []
        self.troubles = Troubles(guard.said.put)
        self._next = (0, 0)

    def start(self) -> None:
        threading.Thread(target=self._run, name="releaser", daemon=True).start()

    def turn(self) -> bool:
        """Release one chunk; whether there was need."""
        if self.guard.phase != LOADING:
            for descriptor, _ in self.files:
                os.close(descriptor)
            self.files = []
            return False
        memory = self.guard.last
        if memory.free >= self.low or memory.cached < WORTH:
            return False
        if not self.files:
            self.files = opened(self.folder)
        if not self.files:
            return False
        index, offset = self._next if self._next[0] < len(self.files) else (0, 0)
        descriptor, size = self.files[index]
        os.posix_fadvise(descriptor, offset, CHUNK, os.POSIX_FADV_DONTNEED)
        offset += CHUNK
        self._next = (index, offset) if offset < size else (index + 1, 0)
        return True

    def _run(self) -> None:
        while True:
            needed = self.troubles.attempt("the release of page cache", self.turn)
            time.sleep(0.02 if needed else 0.5 if self.guard.phase == LOADING else LOOK_EVERY)


def opened(folder: str, most: int = 512) -> list[tuple[int, int]]:
    """Descriptor and size of the large files below a folder."""
    found: list[tuple[int, int]] = []
    for place, _, files in os.walk(folder):
        for name in sorted(files):
            try:
                descriptor = os.open(os.path.join(place, name), os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            size = os.fstat(descriptor).st_size
            if size >= LARGE_FILE and len(found) < most:
                found.append((descriptor, size))
            else:
                os.close(descriptor)
    return found
