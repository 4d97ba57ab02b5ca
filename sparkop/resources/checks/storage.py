"""Checks of disks, of the checkpoint on them, and of the hub that it comes from."""

from __future__ import annotations

from collections.abc import Iterator

from sparkop.engines.paths import cache_directory, state_directory
from sparkop.hosts.document import Disk as DiskFacts
from sparkop.resources.checks.model import DISK, TABLE, Check, Finding, Look, fail, ok, unknown, warn
from sparkop.resources.compare import MIB, human_bytes
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Blocker
from sparkop.resources.weights.resource import WeightFiles, state_of

DOCKER_ROOT = "/var/lib/docker"
"""Asked for before the engine's own answer is known; the usual place."""
TEMPORARY = "/tmp"  # noqa: S108 - the place that is looked at, not used
LEAST = 64 * MIB
"""What the state folder needs for logs, plans and records."""
LEAST_INODES = 256
NAMED = 3


def _disk(look: Look) -> Iterator[Finding]:
    disks = look.document.disk or {}
    own = dict.fromkeys((state_directory(look.spec, look.node), cache_directory(look.spec, look.node)))
    room = []
    full: list[int] = []
    for path in [*own, DOCKER_ROOT, TEMPORARY]:
        found = disks.get(path)
        if found is None:
            reason = look.document.error("disk", path)
            if path in own:
                told = reason or "not in the node's answer"
                yield unknown(f"{path}: {told}", error=reason is not None)
        elif _short(found):
            if found.device not in full:  # one file system is told of once
                yield _full(look.name, path, found.free, found.inodes_free, holds=path in own)
            full.append(found.device)
        else:
            room.append(f"{path} {human_bytes(found.free)}")
    if room:
        yield ok("free: " + ", ".join(room))


def _short(found: DiskFacts) -> bool:
    return found.free < LEAST or 0 < found.inodes_free < LEAST_INODES


def _full(node: str, path: str, free: int, inodes: int, *, holds: bool) -> Finding:
    inodes_short = free >= LEAST
    return fail(
        f"{path}.{'inodes' if inodes_short else 'free'}",
        str(inodes) if inodes_short else human_bytes(free),
        f"at least {LEAST_INODES if inodes_short else human_bytes(LEAST)}",
        f"make room on {node}: du -xh --max-depth=2 ~ | sort -h | tail; docker system df",
        holds=holds,
    )


def _weights_blockers(look: Look, field: str) -> list[Blocker]:
    """What holds the download or copy up, as ``apply`` sees it."""
    found = WeightFiles().diff(look.desired, Observed(look.documents), History())
    return [b for b in found.blockers if b.node == look.name and b.cause.field == field]


def _weights(look: Look) -> Iterator[Finding]:
    weights = look.document.weights
    if weights is None:
        return
    blockers = _weights_blockers(look, "disk")
    for each in blockers:
        yield fail(each.cause.field, each.cause.observed, each.cause.desired, each.remedy)
    if blockers:
        return
    total = weights.verified + len(weights.missing) + len(weights.wrong) + len(weights.unverified)
    if weights.complete:
        yield ok(f"{weights.verified} files verified, {human_bytes(weights.verified_bytes)}")
    elif not weights.bytes:
        yield ok(f"absent: sparkop apply fetches {total} files")
    else:
        yield warn(
            "weights",
            state_of(weights, total),
            "all verified",
            "sparkop apply (or sparkop download) fetches and hashes only these",
        )


def _listed(look: Look) -> bool:
    """Whether the checkpoint's files were asked for at all: not on recorded facts."""
    return look.document.weights is not None or "weights" in look.desired.outside


def _hub(look: Look) -> Iterator[Finding]:
    for each in _weights_blockers(look, "weights.repository"):
        yield fail("hub", each.cause.observed, each.cause.desired, each.remedy)
        return
    yield ok(f"lists the files of {look.spec.weights.repository}")


def _asked_hub(look: Look) -> bool:
    return look.head and "weights" in look.desired.outside


CHECKS = (
    Check(
        id="disk",
        reads="bytes and inodes free for state, caches, Docker and temporary files",
        bad="under 64 MiB or 256 inodes: fail",
        source=TABLE,
        find=_disk,
        sections=("disk",),
        kind=DISK,
    ),
    Check(
        id="weights",
        reads="size and hash of every file of the checkpoint, by the node's ledger; room for what is to come",
        bad="no room: fail; some files missing, wrong or never hashed: warn (apply mends it). None at all is "
        "a node before its first apply",
        source=TABLE,
        find=_weights,
        sections=("weights",),
        applies=_listed,
    ),
    Check(
        id="hub",
        reads="the hub's list of the checkpoint's files",
        bad="401, 403 or no answer, and no list from before: fail",
        source=TABLE,
        find=_hub,
        applies=_asked_hub,
    ),
)
