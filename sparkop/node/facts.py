"""What a node says of itself: who it is, its tools, memory and disks, and single files of it."""

from __future__ import annotations

import os
import stat
import sys
import time
from binascii import b2a_base64

from . import wire
from .wire import maybe, read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO

LARGEST_FILE = 64 << 20
"""Bytes; no hash or content is read of a larger one."""
TOOLS = ("docker", "nvidia-smi", "nvidia-ctk", "rsync", "openssl", "ssh", "python3")
"""Looked for where no others are asked for."""
MORE_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def machine() -> dict[str, Any]:
    """Who the node is, who is logged in there, and by which groups."""
    import pwd

    uid = os.getuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    groups = _groups()
    system = os.uname()
    release = dict(
        line.split("=", 1) for line in (maybe("/etc/os-release") or "").splitlines() if "=" in line
    )
    product = maybe("/sys/class/dmi/id/product_name") or maybe("/proc/device-tree/model")
    return {
        "hostname": system.nodename,
        "machine_id": read_text("/etc/machine-id").strip(),
        "boot_id": read_text("/proc/sys/kernel/random/boot_id").strip(),
        "arch": system.machine,
        "kernel": system.release,
        "os": release.get("PRETTY_NAME", "").strip('"') or None,
        "cmdline": maybe("/proc/cmdline"),
        "uptime_s": float(read_text("/proc/uptime").split()[0]),
        "time_s": time.time(),
        "home": os.path.expanduser("~"),
        "user": user,
        "uid": uid,
        "groups": groups,
        "pending_groups": sorted(_listed_groups(user) - set(groups)),
        "cpu_count": len(os.sched_getaffinity(0)),
        "product": product.rstrip("\0") if product else None,
        "reboot_required": os.path.exists("/var/run/reboot-required"),
    }


def _groups() -> list[str]:
    """Of this login."""
    import grp

    groups = []
    for gid in sorted({os.getegid(), *os.getgroups()}):
        try:
            groups.append(grp.getgrgid(gid).gr_name)
        except KeyError:
            groups.append(str(gid))
    return groups


def _listed_groups(user: str) -> set[str]:
    """Those that /etc/group gives the user; a login that began before has fewer."""
    lines = [line.split(":") for line in (maybe("/etc/group") or "").splitlines()]
    return {fields[0] for fields in lines if len(fields) == 4 and user in fields[3].split(",")}


def tools(names: Any) -> dict[str, str | None]:
    """The path of each program, or None; ``python`` is the version of this Python."""
    folders = [f for f in os.environ.get("PATH", "").split(os.pathsep) if f]
    folders += [f for f in MORE_PATH if f not in folders]
    found: dict[str, str | None] = {"python": "%d.%d.%d" % sys.version_info[:3]}
    for name in names:
        candidates = (os.path.join(folder, name) for folder in folders)
        found[name] = next((c for c in candidates if os.path.isfile(c) and os.access(c, os.X_OK)), None)
    return found


def memory() -> dict[str, int | None]:
    """Bytes, of /proc/meminfo."""
    figures = {}
    for line in read_text("/proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if rest.strip():
            figures[name] = int(rest.split()[0]) * 1024
    return {
        "total": figures["MemTotal"],
        "available": figures["MemAvailable"],
        "free": figures["MemFree"],
        "buffers": figures.get("Buffers", 0),
        "cached": figures.get("Cached", 0),
        "swap_total": figures.get("SwapTotal", 0),
        "swap_free": figures.get("SwapFree", 0),
        "cma_total": figures.get("CmaTotal"),
        "cma_free": figures.get("CmaFree"),
    }


def disk(path: str) -> dict[str, Any]:
    """The file system of the path, or of its nearest folder that exists."""
    place = os.path.realpath(wire.expand(path))
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    figures = os.statvfs(place)
    return {
        "path": place,
        "total": figures.f_blocks * figures.f_frsize,
        "free": figures.f_bavail * figures.f_frsize,
        "inodes_free": figures.f_favail,
        "device": os.stat(place).st_dev,
    }


def file(path: str) -> dict[str, Any] | None:
    """Its hash up to LARGEST_FILE; None when there is none."""
    import hashlib

    try:
        with wire.regular(path) as stream:
            found = os.fstat(stream.fileno())
            return {
                "size": found.st_size,
                "mode": stat.S_IMODE(found.st_mode),
                "uid": found.st_uid,
                "sha256": hashlib.sha256(_whole(stream, path, found.st_size)).hexdigest()
                if found.st_size <= LARGEST_FILE
                else None,
            }
    except (FileNotFoundError, NotADirectoryError):
        return None


def contents(path: str) -> str | None:
    """In base64; None when there is no such file. Raises ValueError for a file larger than LARGEST_FILE."""
    try:
        with wire.regular(path) as stream:
            return b2a_base64(_whole(stream, path, os.fstat(stream.fileno()).st_size), newline=False).decode()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _whole(stream: BinaryIO, path: str, size: int) -> bytes:
    if size > LARGEST_FILE:
        raise ValueError("%s is larger than %d MiB" % (path, LARGEST_FILE >> 20))
    return stream.read(LARGEST_FILE)
