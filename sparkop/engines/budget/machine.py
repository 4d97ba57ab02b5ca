"""The memory of a node: what the kernel gives, and what was taken before the rank came."""

from __future__ import annotations

from sparkop.engines.budget.lines import Basis, Line, Part, Where
from sparkop.records import dataclass

GIB = 1 << 30
SPARK_TOTAL = 130_663_165_952
"""MemTotal of a recorded Spark (GB10), 121.7 GiB."""
SPARK_AVAILABLE = 125_182_583_383
"""Available before the load: recipe B's 95.6 GiB at a fraction of 0.82, 116.6 GiB."""
LEAST_SYSTEM = 1 * GIB


@dataclass(frozen=True)
class NodeMemory:
    """Figures of a node in bytes. ``available`` only when no rank ran while it was read."""

    total: int
    available: int | None = None
    cached: int | None = None


def total_line(memory: NodeMemory | None) -> Line:
    """All of the node's memory."""
    if memory is not None:
        return Line(
            Part.SYSTEM, "memory in all", memory.total, Basis.READ, "/proc/meminfo MemTotal", Where.HOST
        )
    return Line(
        Part.SYSTEM, "memory in all", SPARK_TOTAL, Basis.QUOTED, "MemTotal of a recorded GB10", Where.HOST
    )


def system_line(memory: NodeMemory | None) -> Line:
    """What the kernel and everything else on the node takes."""
    name = "system and other processes"
    if memory is not None and memory.available is not None:
        return Line(
            Part.SYSTEM,
            name,
            max(0, memory.total - memory.available),
            Basis.READ,
            "MemTotal - MemAvailable while no rank runs",
            Where.HOST,
        )
    total = memory.total if memory is not None else SPARK_TOTAL
    if total < SPARK_TOTAL * 0.95:
        return Line(Part.SYSTEM, name, total // 20, Basis.FITTED, "5 % of the memory, a guess", Where.HOST)
    return Line(
        Part.SYSTEM,
        name,
        max(LEAST_SYSTEM, total - SPARK_AVAILABLE),
        Basis.FITTED,
        "total less the 116.6 GiB that recipe B had before the load (95.6 at 0.82, read as GiB)",
        Where.HOST,
    )


def page_cache_line(memory: NodeMemory | None) -> Line:
    """Files that the kernel keeps in memory as long as nobody else wants it."""
    note = (
        "given back on demand: MemAvailable counts it as free, cudaMemGetInfo (engines before 2026) as used"
    )
    if memory is None or memory.cached is None:
        return Line(Part.PAGE_CACHE, "page cache (not read)", 0, Basis.QUOTED, note, Where.HOST)
    return Line(Part.PAGE_CACHE, "page cache", memory.cached, Basis.READ, note, Where.HOST)
