"""A guard without a machine: memory that follows a trace, a clock of its own, ranks that note their kills."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sparkop.node.memguard.engine import Rank
from sparkop.node.memguard.guard import Floors, Guard
from sparkop.node.memguard.reading import Memory

MIB = 1 << 20
GIB = 1 << 30
FLOORS = Floors(GIB, 512 * MIB, 10 * GIB)

Trace = Callable[[float], int]
"""MemAvailable at a time."""


class FakeRank(Rank):
    """Dies ``dies`` seconds after the kill; never when None."""

    def __init__(self, world: World, name: str = "x-r0", dies: float | None = 0.0) -> None:
        super().__init__(name, name, "v1:77", None, "v1:88")
        self.world = world
        self.dies = dies
        self.killed: list[tuple[float, int]] = []
        """Time and MemAvailable of each kill."""

    @property
    def ended(self) -> bool:
        gone = self.killed and self.dies is not None and self.world.now >= self.killed[0][0] + self.dies
        return bool(gone)

    def kill(self) -> bool:
        self.killed.append((self.world.now, self.world.trace(self.world.now)))
        self.world.order.append("kill")
        return True


@dataclass
class World:
    """``look`` and ``disk``: seconds that a reading and the record's way to the disk take."""

    trace: Trace
    floors: Floors = FLOORS
    look: float = 0.0002
    disk: float = 0.001
    now: float = 0.0
    looks: int = 0
    order: list[str] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    guard: Guard = field(init=False)

    def __post_init__(self) -> None:
        self.guard = Guard(self.floors, 1.0, self.read, self.write, clock=lambda: self.now)

    def read(self) -> Memory:
        value = self.trace(self.now)
        self.now += self.look
        self.looks += 1
        return Memory(value, value // 2, value // 4)

    def write(self, record: dict[str, Any], seconds: float) -> bool:
        self.now += min(self.disk, seconds)
        self.records.append(record)
        self.order.append("record")
        return self.disk <= seconds

    def rank(self, name: str = "x-r0", dies: float | None = 0.0) -> FakeRank:
        made = FakeRank(self, name, dies)
        self.guard.ranks = (*self.guard.ranks, made)
        return made

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += self.guard.tick()

    def said(self) -> list[str]:
        lines = []
        while not self.guard.said.empty():
            lines.append(self.guard.said.get_nowait())
        return lines


def line(*points: tuple[float, float]) -> Trace:
    """Straight lines between (seconds, bytes); flat before the first and after the last."""

    def at(now: float) -> int:
        for (t0, m0), (t1, m1) in itertools.pairwise(points):
            if t0 <= now < t1:
                return int(m0 + (m1 - m0) * (now - t0) / (t1 - t0))
        return int(points[0][1] if now < points[0][0] else points[-1][1])

    return at
