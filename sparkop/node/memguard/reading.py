"""Memory as the kernel tells it: files opened once, read into a buffer that is there already."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

PAGE = os.sysconf("SC_PAGE_SIZE")
MOST = 1 << 62
"""Bytes that no machine has: a figure of so many is none."""
LARGE_ORDER = 9
"""Blocks of 2 MiB and more with pages of 4 KiB: what the GPU's driver asks for."""


class Memory(NamedTuple):
    """Bytes."""

    available: int
    free: int
    cached: int


class Meminfo:
    """``/proc/meminfo``, kept open."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.buffer = bytearray(8192)
        self.parts = [memoryview(self.buffer)]

    def read(self) -> Memory:
        """Raises OSError, and ValueError when a figure is missing, told twice, or none that memory can have:
        that is no zero, zero would kill."""
        end = os.preadv(self.descriptor, self.parts, 0)
        return Memory(
            self._figure(b"MemAvailable:", end),
            self._figure(b"MemFree:", end),
            self._figure(b"\nCached:", end),
        )

    def _figure(self, name: bytes, end: int) -> int:
        start = self.buffer.find(name, 0, end)
        if start < 0:
            raise ValueError("no %s in %s" % (name.decode().strip("\n:"), self.path))
        start += len(name)
        figure = int(self.buffer[start : self.buffer.index(b"k", start, end)]) * 1024
        if not 0 <= figure < MOST or self.buffer.find(name, start, end) >= 0:
            raise ValueError("no believable %s in %s" % (name.decode().strip("\n:"), self.path))
        return figure


def pressure(proc: str = "/proc") -> str:
    """The kernel's measure of tasks that wait for memory; empty where it has none."""
    try:
        with open(proc + "/pressure/memory", encoding="ascii") as stream:
            return stream.readline().strip()
    except (OSError, ValueError):
        return ""


def large_blocks(proc: str = "/proc") -> int | None:
    """Bytes that are free in blocks of a large order; None where the kernel does not say, or not so that it
    can be understood."""
    try:
        with open(proc + "/buddyinfo", encoding="ascii") as stream:
            counts = [line.split()[4:] for line in stream.read().splitlines()]
        return sum(
            (int(count) << order) * PAGE
            for line in counts
            for order, count in enumerate(line)
            if order >= LARGE_ORDER
        )
    except (OSError, ValueError):
        return None


SMALL = 1 << 20
"""Resident bytes under which a process is not looked at any closer: a node has hundreds of them."""


class Held(NamedTuple):
    """Who holds memory. Bytes."""

    largest: list[dict[str, Any]]
    """The three processes with the most resident memory."""
    containers: dict[str, int]
    """Resident bytes of each container."""
    outside: dict[int, int]
    """Of each process in none of them, what no file lies behind."""


def processes(identifiers: dict[str, str], proc: str = "/proc") -> Held:
    """Looks at all of them.

    ``identifiers``: name of a container -> its id, found in the processes' cgroups. One file a process, and
    a second one of those that hold something: this is most of what the guard costs far from the floor.
    None of them where the kernel does not list them.
    """
    found: list[tuple[int, int]] = []
    held = dict.fromkeys(identifiers, 0)
    outside: dict[int, int] = {}
    try:
        listed = os.listdir(proc)
    except OSError:
        listed = []
    for pid in listed:
        if not pid.isdigit():
            continue
        try:
            pages = _content("%s/%s/statm" % (proc, pid)).split(None, 3)
            resident, shared = int(pages[1]) * PAGE, int(pages[2]) * PAGE
            if resident < SMALL:
                continue  # or a thread of the kernel
            group = cgroup(int(pid), proc) if identifiers else ""
        except (OSError, ValueError, IndexError):
            continue
        found.append((resident, int(pid)))
        inside = [container for container, identifier in identifiers.items() if identifier in group]
        for container in inside:
            held[container] += resident
        if not inside:
            outside[int(pid)] = resident - shared
    return Held(named(sorted(found, reverse=True), proc), held, outside)


def named(found: list[tuple[int, int]], proc: str = "/proc", most: int = 3) -> list[dict[str, Any]]:
    """The first of them that are still there, with their names."""
    named: list[dict[str, Any]] = []
    for resident, pid in found:
        if len(named) == most:
            break
        try:
            name = _content("%s/%d/comm" % (proc, pid)).decode(errors="replace").strip()
        except OSError:
            continue
        named.append({"pid": pid, "name": name, "rss": resident})
    return named


def cgroup(pid: int, proc: str = "/proc") -> str:
    """The groups of a process, as the kernel lists them. Raises OSError."""
    return _content("%s/%d/cgroup" % (proc, pid)).decode(errors="replace")


def _content(path: str) -> bytes:
    """A small file of the kernel, in three calls. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 1 << 14)
    finally:
        os.close(descriptor)
