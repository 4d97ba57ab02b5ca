"""Is there enough memory to begin with? Asked before ranks are started; a refusal has its figures. Pure."""

from __future__ import annotations

from sparkop.hosts.document import Document, Memory
from sparkop.resources.compare import GIB, human_bytes
from sparkop.resources.desired import Desired
from sparkop.resources.group import ended_ago
from sparkop.resources.labels import ROLE_RANK, ours
from sparkop.resources.operations import Blocker, Cause
from sparkop.spec.models import ClusterSpec

RESOURCE = "memguard/gate"
SETTLED = 60.0
"""Seconds after a rank's end in which its memory may still be on its way back; `wait rank/all` waits, and
refuses itself when it does not come."""
BACK_WITHIN = 10.0
"""Seconds for which available memory may stand still below what a start needs, once no rank is left."""
FRAGMENTED = 0.25
"""Part of free memory in blocks of 2 MiB and more, under which it is called fragmented."""
WORTH = 16 * GIB
"""Free memory that is worth to be looked at for that."""
FREE_IT = (
    "see what takes it (sparkop memory); page cache alone is given back by: sudo sysctl vm.drop_caches=3"
)


def needed(spec: ClusterSpec, total: int) -> tuple[int, str]:
    """Bytes of MemAvailable without which no rank can start, and why.

    vLLM refuses to start with less than ``gpuFraction`` of all memory available, even when the size of the
    cache is given (0.33: ``request_memory``). SGLang's fraction is one of what is available.
    """
    memory = spec.memory
    floor = int(memory.guard.action_floor) if memory.guard.enabled else 0
    cache = int(memory.kv_cache or 0)
    least = (cache + floor, "memory.kvCache and the guard's floor")
    if memory.gpu_fraction is not None and spec.engine.kind == "vllm":
        return max(
            least, (int(total * memory.gpu_fraction), f"memory.gpuFraction {memory.gpu_fraction:g} of all")
        )
    return least


def closed(desired: Desired, node: str, document: Document) -> Blocker | None:
    """Why no rank may be started on the node now; None when it may, when one runs, or when it is not known.

    More than the node has in all is the budget's business (rules_budget), which says what to lower.
    """
    memory = document.memory
    if memory is None or not desired.ranks or not _empty(desired, document):
        return None
    cause = short(desired.spec, memory)
    return Blocker(node, RESOURCE, cause, FREE_IT) if cause else None


def short(spec: ClusterSpec, memory: Memory) -> Cause | None:
    """What is missing for a start; None when it is enough, or more than the node has in all."""
    least, why = needed(spec, memory.total)
    if memory.available >= least or least > memory.total:
        return None
    return Cause("memory available", human_bytes(memory.available), f"{human_bytes(least)} at least: {why}")


def fragmented(desired: Desired, node: str, document: Document, large_blocks: object) -> str | None:
    """A warning before a start; ``large_blocks``: bytes, from the guard's heartbeat."""
    memory = document.memory
    if memory is None or not isinstance(large_blocks, int) or not _empty(desired, document):
        return None
    if memory.free < WORTH or large_blocks >= FRAGMENTED * memory.free:
        return None
    return (
        f"{node}: only {human_bytes(large_blocks)} of {human_bytes(memory.free)} free memory is in blocks of "
        "2 MiB and more: a load may be slow or fail; sudo sysctl vm.compact_memory=1"
    )


def _empty(desired: Desired, document: Document) -> bool:
    """No rank of this cluster runs there, nor did a moment ago."""
    found = [container for container, _ in ours(document, desired.spec.name, ROLE_RANK)]
    return all(not each.running and (ended_ago(each, document) or 0.0) > SETTLED for each in found)
