"""Keep a host's live figures fresh: /proc/meminfo, link speeds, InfiniBand port states and GIDs.

Usage: figures.py MEMORY_BYTES. Runs inside a lab host. What is bound over a file of the kernel (meminfo,
speed) is written in place and never gets shorter, so that a reader does not see it empty or half.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import sys
import time
from pathlib import Path

PERIOD_SECONDS = 0.04
LINKS_EVERY = 5
"""Links are read once in so many periods: each 0.2 s."""

CGROUP = Path("/sys/fs/cgroup")
FIGURES = Path("/run/figures")
SIOCGIFADDR = 0x8915
ZERO_GID = ":".join(["0000"] * 8)


def memory_figures(cgroup: Path, limit: int) -> dict[str, int]:
    """Bytes by the names of /proc/meminfo, from the host's cgroup (v1 or v2).

    Available is the limit less what cannot be given back: page cache of files and reclaimable kernel memory
    count as available, shared memory (part of the page cache) does not.
    """
    if (cgroup / "memory.current").exists():
        used = int((cgroup / "memory.current").read_text())
        stat = _stat(cgroup / "memory.stat", "")
        reclaimable = stat.get("slab_reclaimable", 0)
        cached, anonymous = stat.get("file", 0), stat.get("anon", 0)
    else:
        used = int((cgroup / "memory/memory.usage_in_bytes").read_text())
        stat = _stat(cgroup / "memory/memory.stat", "total_")
        reclaimable = 0
        cached, anonymous = stat.get("cache", 0), stat.get("rss", 0)
    files = stat.get("active_file", 0) + stat.get("inactive_file", 0)
    free = max(limit - used, 0)
    return {
        "MemTotal": limit,
        "MemFree": free,
        "MemAvailable": min(free + files + reclaimable, limit),
        "Buffers": 0,
        "Cached": cached,
        "SwapCached": 0,
        "Active": stat.get("active_anon", 0) + stat.get("active_file", 0),
        "Inactive": stat.get("inactive_anon", 0) + stat.get("inactive_file", 0),
        "SwapTotal": 0,
        "SwapFree": 0,
        "AnonPages": anonymous,
        "Shmem": stat.get("shmem", 0),
        "SReclaimable": reclaimable,
        "CmaTotal": 0,
        "CmaFree": 0,
    }


def meminfo(figures: dict[str, int]) -> bytes:
    """Text of /proc/meminfo, always of one length."""
    return "".join(f"{name + ':':<16}{value // 1024:>11} kB\n" for name, value in figures.items()).encode()


def _stat(file: Path, prefix: str) -> dict[str, int]:
    pairs = (line.split() for line in file.read_text().splitlines())
    return {name.removeprefix(prefix): int(value) for name, value in pairs if name.startswith(prefix)}


def write_in_place(file: Path, data: bytes) -> None:
    descriptor = os.open(file, os.O_WRONLY)
    try:
        os.pwrite(descriptor, data, 0)
    finally:
        os.close(descriptor)


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:  # carrier of a card that is set down
        return ""


def _ipv4(interface: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        try:
            answer = fcntl.ioctl(asker, SIOCGIFADDR, struct.pack("256s", interface.encode()))
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def refresh_speed(card: str, full: int) -> None:
    """Speed in Mbit/s as the driver tells it: -1 without a cable."""
    file = FIGURES / "speed" / card
    old, text = file.read_bytes(), str(full) if _plugged(card) else "-1"
    if old.rstrip() != text.encode():
        write_in_place(file, f"{text}\n".encode().ljust(len(old), b"\n"))


def refresh_device(device: Path) -> None:
    """Port state and GIDs of one InfiniBand device, from the network card it belongs to."""
    card = next(iter((device / "device/net").iterdir())).name
    port = device / "ports/1"
    plugged = _plugged(card)
    _replace(port / "state", "4: ACTIVE" if plugged else "1: DOWN")
    _replace(port / "phys_state", "5: LinkUp" if plugged else "3: Disabled")
    address = _ipv4(card)
    for index in ("2", "3"):
        _replace(port / "gids" / index, mapped_gid(address) if address else ZERO_GID)


def mapped_gid(address: str) -> str:
    """GID of an IPv4 address: ::ffff:a.b.c.d, written out."""
    packed = socket.inet_aton(address)
    return ":".join(["0000"] * 5 + ["ffff", packed[:2].hex(), packed[2:].hex()])


def _plugged(card: str) -> bool:
    return _read(Path("/sys/class/net", card, "carrier")) == "1"


def _replace(file: Path, text: str) -> None:
    """Write when it differs, so that a reader sees the old text or the new one."""
    if file.read_text() != f"{text}\n":
        new = file.with_name(f".{file.name}")
        new.write_text(f"{text}\n")
        new.replace(file)


def main() -> None:
    limit = int(sys.argv[1])
    speeds: dict[str, int] = json.loads(Path("/run/lab/speeds.json").read_text())
    devices = sorted(Path("/sys/class/infiniband").iterdir())
    turn = 0
    while True:
        write_in_place(FIGURES / "meminfo", meminfo(memory_figures(CGROUP, limit)))
        if turn % LINKS_EVERY == 0:
            for card, full in speeds.items():
                refresh_speed(card, full)
            for device in devices:
                refresh_device(device)
        turn += 1
        time.sleep(PERIOD_SECONDS)


if __name__ == "__main__":
    main()
