"""Checks of memory: CPU and GPU share it, and at zero a Spark stops answering."""

from __future__ import annotations

from collections.abc import Iterator

from sparkop.engines.budget.budget import budget
from sparkop.engines.budget.lines import Basis, Part
from sparkop.engines.budget.machine import NodeMemory
from sparkop.hosts.document import Document
from sparkop.resources.checks.model import PREREQUISITES, TABLE, Check, Finding, Look, fail, ok, or_ok, warn
from sparkop.resources.compare import GIB, human_bytes
from sparkop.resources.labels import CLUSTER, ROLE_RANK, ours

LARGE = 4 * GIB
"""Resident memory from which a process beside the ranks is worth a warning."""
RAISED = 1 * GIB
"""vm.min_free_kbytes that the kernel never sets by itself on such a machine (it stops at 256 MiB)."""
ENGINE_NAMES = ("VLLM::", "vllm", "sglang", "ray::")
FITTED_DOUBT = 10
"""Lines of a budget that were fitted to others' figures may be out by one part in so many."""
NAMED = 3


def _total(look: Look) -> Iterator[Finding]:
    wanted, memory = look.spec.memory.minimum_total, look.document.memory
    if memory is None:
        return
    if wanted is not None and memory.total < wanted:
        yield fail(
            "memory.total",
            human_bytes(memory.total),
            f"at least {human_bytes(wanted)}",
            "use a node with more memory, or lower memory.minimumTotal if the model fits",
        )
    else:
        yield ok(human_bytes(memory.total))


def _available(look: Look) -> Iterator[Finding]:
    memory = look.document.memory
    if memory is None:
        return
    if any(c.running for c, _ in ours(look.document, look.spec.name, ROLE_RANK)):
        yield ok(f"{human_bytes(memory.available)} available while a rank runs")
        return
    needed, doubt = _needed(look)
    told = f"{human_bytes(memory.available)} available"
    short = needed - memory.available
    cache = memory.cached + memory.buffers
    if short > 0:
        make = fail if short > doubt else warn
        yield make(
            "memory",
            f"{told}; {_eaters(look.document)}",
            f"{human_bytes(needed)} for the rank and the guard's floor",
            _make_room(look.name, needed > memory.total),
        )
    elif look.gpus and memory.free < needed <= memory.free + cache:
        yield warn(
            "free memory",
            f"{human_bytes(memory.free)}, page cache {human_bytes(cache)}",
            f"{human_bytes(needed)}: CUDA counts the page cache as used",
            "sync; echo 1 | sudo tee /proc/sys/vm/drop_caches",
        )
    else:
        yield ok(f"{told}, {human_bytes(needed)} needed")


def _make_room(node: str, more_than_all: bool) -> str:
    if more_than_all:
        return f"{node} has less memory in all: use more nodes, or ask for less: sparkop budget"
    return f"end what holds it on {node} (ps aux --sort=-rss | head), or ask for less: sparkop budget"


def _needed(look: Look) -> tuple[int, int]:
    """Bytes that a rank takes at its worst moment, with what must be left; and how far that may be out."""
    guard = look.spec.memory.guard
    floor = int(guard.action_floor if guard.enabled else guard.hard_floor)
    memory = look.document.memory
    read = {look.name: NodeMemory(memory.total, memory.available)} if memory else None
    made = budget(look.spec, memory=read)
    if made is None:
        return int(look.spec.memory.kv_cache or 0) + floor, 0
    rank = next(rank for rank in made.ranks if rank.node == look.name)
    own = [line for line in rank.lines if line.counts and line.part is not Part.SYSTEM]
    fitted = sum(line.size for line in own if line.basis is Basis.FITTED)
    return sum(line.size for line in own) + rank.floor, fitted // FITTED_DOUBT


def _eaters(document: Document) -> str:
    health, memory = document.health, document.memory
    named = [f"{p.name} {human_bytes(p.rss_bytes)}" for p in ((health.processes if health else None) or ())]
    cache = memory.cached + memory.buffers if memory else 0
    return f"page cache {human_bytes(cache)}" + (f", {', '.join(named[:NAMED])}" if named else "")


def _holders(look: Look) -> Iterator[Finding]:
    yield from or_ok(_foreign_holders(look), "no large process beside the ranks")


def _foreign_holders(look: Look) -> Iterator[Finding]:
    health, docker, gpu = look.document.health, look.document.docker, look.document.gpu
    processes = (health.processes if health else None) or ()
    own = {c.id for c in (docker.containers if docker else ()) if CLUSTER in c.labels}
    inside = {process.pid for process in processes if process.container in own}
    seen = set()
    for process in processes:
        engine = process.name.startswith(ENGINE_NAMES)
        if process.container in own or not (engine or process.rss_bytes >= LARGE):
            continue
        seen.add(process.pid)
        where = f"in container {process.container[:12]}" if process.container else f"of uid {process.uid}"
        what = "an engine without its container" if engine and not process.container else "not ours"
        yield warn(
            f"{process.name} (pid {process.pid})",
            f"{human_bytes(process.rss_bytes)}, {where}, {what}",
            "gone before a rank starts",
            f"docker stop {process.container[:12]}"
            if process.container
            else f"kill {process.pid}, if you may",
        )
    for user in gpu.processes if gpu else ():
        if user.pid in inside | seen or (user.used_bytes or 0) < GIB or _ranks_run(look):
            continue
        yield warn(
            f"{user.name} (pid {user.pid})",
            f"{human_bytes(user.used_bytes or 0)} of GPU memory",
            "none while no rank of ours runs",
            f"end it: kill {user.pid}",
        )


def _ranks_run(look: Look) -> bool:
    return any(c.running for c, _ in ours(look.document, look.spec.name, ROLE_RANK))


def _earlyoom(look: Look) -> Iterator[Finding]:
    health = look.document.health
    running = [p for p in (health.processes if health else None) or () if p.name == "earlyoom"]
    if running and look.spec.memory.guard.enabled:
        yield warn(
            "earlyoom",
            f"runs (pid {running[0].pid}), beside sparkop's memory guard",
            "one of them: two guards with two thresholds",
            "sudo systemctl disable --now earlyoom  # or memory.guard.enabled: false",
        )
    else:
        yield ok("runs, and the spec wants no guard" if running else "does not run")


def _min_free(look: Look) -> Iterator[Finding]:
    health = look.document.health
    value = (health.min_free_bytes if health else None) or 0
    if value <= RAISED:
        yield ok(human_bytes(value))
    else:
        yield warn(
            "vm.min_free_kbytes",
            str(value // 1024),
            "the kernel's own: engines that read MemAvailable refuse to start",
            "sudo sysctl vm.min_free_kbytes=67584  # and take it out of /etc/sysctl.d",
        )


CHECKS = (
    Check(
        id="memory.total",
        reads="MemTotal",
        bad="less than memory.minimumTotal: fail",
        source="recipe B",
        find=_total,
        sections=("memory",),
        kind=PREREQUISITES,
    ),
    Check(
        id="memory.available",
        reads="MemAvailable, MemFree, page cache, largest processes",
        bad="less than the budget of a rank and the guard's floor: fail (warn where its estimates may be "
        "out); only the page cache is in the way: warn",
        source=TABLE,
        find=_available,
        sections=("memory",),
    ),
    Check(
        id="memory.holders",
        reads="resident memory, GPU processes, engines without a container",
        bad="a holder that is not ours: warn. An empty list of GPU processes proves nothing, and is fine",
        source=TABLE,
        find=_holders,
        sections=("docker", "health.processes"),
    ),
    Check(
        id="memory.earlyoom",
        reads="whether earlyoom runs",
        bad="beside the spec's own guard: warn",
        source=TABLE,
        find=_earlyoom,
        sections=("health.processes",),
    ),
    Check(
        id="memory.min_free",
        reads="vm.min_free_kbytes",
        bad="raised over 1 GiB: warn",
        source=TABLE,
        find=_min_free,
        sections=("health.min_free_bytes",),
    ),
)
