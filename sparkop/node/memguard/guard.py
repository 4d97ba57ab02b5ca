"""Reads, decides, kills. Waits for nothing but the next reading, and at most `patience` for the disk."""

from __future__ import annotations

import queue
import time
from array import array
from typing import Any, Callable, NamedTuple, Sequence

from .engine import Rank
from .reading import Memory

RATE = 6 << 30
"""Bytes a second: the fastest growth that was measured while a model loads."""
GATE, LOADING, SERVING = "gate", "loading", "serving"
FASTEST = {GATE: 0.05, LOADING: 0.004, SERVING: 0.01}
"""Seconds between two readings at the floor. With no rank there is nothing to kill."""
MARGIN = 64 << 20
"""Bytes between action and hard floor, at least: what the fastest growth eats in one poll while serving."""
PATIENCE = 0.02
"""Seconds that the record's way to the disk may delay the kill, at most."""
AGAIN = 5.0
"""Seconds after which a rank that was killed and is still there is killed again."""
TELL_EVERY = 60.0
STEP = 2.0
SAMPLES = 150
"""Five minutes: the lowest available memory of each step."""
SETTLED_SECONDS = 120.0
SETTLED_BYTES = 256 << 20
"""A group has loaded when available memory moved by less than this for so long."""


class Floors(NamedTuple):
    """Bytes of MemAvailable. ``action`` kills; ``hard`` must never be reached; ``soft`` is told."""

    action: int
    hard: int
    soft: int


class Guard:
    """One look is one `tick`. Reader, writer of the record and clock are given by who runs it.

    ``ranks``, ``largest`` and ``outside`` are set by the watcher; ``said`` and ``kills`` are what it has to
    do: lines of the log, and ranks that Docker is to kill as well.
    """

    def __init__(
        self,
        floors: Floors,
        interval: float,
        read: Callable[[], Memory],
        write: Callable[[dict[str, Any], float], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.floors = floors
        self.interval = interval
        self.read = read
        self.write = write
        self.clock = clock
        margin = floors.action - floors.hard
        self.patience = min(PATIENCE, margin / RATE / 2)
        self.quickest = max(0.0005, margin / RATE / 4)
        self.ranks: tuple[Rank, ...] = ()
        self.largest: list[dict[str, Any]] = []
        self.outside: dict[str, Any] = {}
        self.said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.kills: queue.SimpleQueue[Rank] = queue.SimpleQueue()
        self.phase = GATE
        self.last = Memory(0, 0, 0)
        self.beat = -1.0
        self.looked_at = 0.0
        """When memory was read last, seconds since 1970; the heartbeat tells it."""
        self.looked_up = 0.0
        """The same since the boot: its clock is never set."""
        self.lowest = 1 << 62
        self._ring = array("q", [0] * SAMPLES)
        self._count = 0
        self._step_ends = 0.0
        self._told = -1e9
        self._told_empty = -1e9
        self._group: tuple[Rank, ...] = ()
        self._mark, self._marked_at = 0, 0.0

    def tick(self) -> float:
        """One look; seconds until the next. Raises OSError, ValueError when memory can't be read."""
        now = self.clock()
        memory = self.read()
        rate = (self.last.available - memory.available) / (now - self.beat) if now > self.beat >= 0 else 0.0
        self.last, self.beat, self.looked_at = memory, now, time.time()
        self.looked_up = time.clock_gettime(time.CLOCK_BOOTTIME)
        self.lowest = min(self.lowest, memory.available)
        self._keep(memory.available, now)
        self._set_phase(memory.available, now)
        if memory.available < self.floors.action:
            again = self.read()
            if again.available < self.floors.action:
                self.act(again, now)
        elif memory.available < self.floors.soft and now - self._told >= TELL_EVERY:
            self._told = now
            self.said.put(
                "available %d MiB, under the soft floor of %d MiB; %s"
                % (memory.available >> 20, self.floors.soft >> 20, names(self.largest))
            )
        return self.pause(memory.available, rate)

    def pause(self, available: int, rate: float = 0.0) -> float:
        """Half of the time in which memory could fall to the floor, at the fastest growth or the one seen."""
        left = max(0, available - self.floors.action) / max(RATE, rate) / 2
        return max(min(FASTEST[self.phase], self.quickest), min(self.interval, 1.0, left))

    def act(self, memory: Memory, now: float) -> None:
        """Under the floor: write the record, then kill; what is killed already gets its time to end."""
        alive = [rank for rank in self.ranks if not rank.ended]
        if not alive:
            self._nothing_to_kill(memory, now)
            return
        fresh = [rank for rank in alive if rank.killed_at is None]
        if fresh:
            patience = self.patience if memory.available >= self.floors.hard else 0.0
            synced = self._write(memory, fresh, patience)
            for rank in fresh:
                self._kill(rank, now)
            told = "" if synced else "; the record was not on the disk by then"
            self.said.put(
                "available %d MiB < %d MiB: killed %s%s"
                % (memory.available >> 20, self.floors.action >> 20, ", ".join(r.name for r in fresh), told)
            )
        for rank in alive:
            if rank.killed_at is not None and now - rank.killed_at >= AGAIN:
                self.said.put("%s was killed and is still there; again" % rank.name)
                self._kill(rank, now)

    def _write(self, memory: Memory, ranks: Sequence[Rank], patience: float) -> bool:
        """Whether the record is on the disk. Whatever goes wrong with it, the kill follows."""
        try:
            return self.write(self.record(memory, ranks), patience)
        except Exception as error:
            self.said.put("the record of the trip: %r" % error)
            return False

    def record(self, memory: Memory, ranks: Sequence[Rank]) -> dict[str, Any]:
        """What is worth knowing afterwards. Bytes; ``samples``: MiB, oldest first, one each ``step``."""
        return {
            "version": 1,
            "at": time.time(),
            "available": memory.available,
            "free": memory.free,
            "cached": memory.cached,
            "floor": self.floors.action,
            "hard": self.floors.hard,
            "phase": self.phase,
            "hashes": [rank.stamp for rank in ranks],
            "numbers": [rank.numbers for rank in ranks],
            "containers": [rank.name for rank in ranks],
            "largest": self.largest,
            "outside": self.outside,
            "step": STEP,
            "samples": [*self.samples(), memory.available >> 20],
        }

    def samples(self) -> list[int]:
        """MiB, oldest first."""
        if self._count <= SAMPLES:
            kept = self._ring[: self._count].tolist()
        else:
            start = self._count % SAMPLES
            kept = (self._ring[start:] + self._ring[:start]).tolist()
        return [each >> 20 for each in kept]

    def _kill(self, rank: Rank, now: float) -> None:
        rank.killed_at = now
        if not rank.kill():
            self.said.put("the kernel did not take the kill of %s; Docker is asked" % rank.name)
        self.kills.put(rank)

    def _nothing_to_kill(self, memory: Memory, now: float) -> None:
        if now - self._told_empty < TELL_EVERY:
            return
        self._told_empty = now
        self.said.put(
            "available %d MiB, under the floor, but no rank runs; %s"
            % (memory.available >> 20, names(self.largest))
        )

    def _keep(self, available: int, now: float) -> None:
        if now >= self._step_ends:
            self._ring[self._count % SAMPLES] = available
            self._count += 1
            self._step_ends = now + STEP
        else:
            place = (self._count - 1) % SAMPLES
            self._ring[place] = min(self._ring[place], available)

    def _set_phase(self, available: int, now: float) -> None:
        group = self.ranks
        moved = abs(available - self._mark) >= SETTLED_BYTES
        if group is not self._group:
            new = any(rank not in self._group for rank in group)
            self._group = group
            if not group:
                self.phase = GATE
            elif new:
                self.phase = LOADING
                moved = True
        if moved:
            self._mark, self._marked_at = available, now
        elif self.phase == LOADING and now - self._marked_at >= SETTLED_SECONDS:
            self.phase = SERVING


def names(processes: Sequence[dict[str, Any]]) -> str:
    """``python3 (12) 4096 MiB, ...``."""
    return ", ".join("%s (%d) %d MiB" % (p["name"], p["pid"], p["rss"] >> 20) for p in processes)
