"""Run programs as the lab's controller: in the lab's network namespace, all else as it was.

The program keeps its pid namespace, working folder and environment. In a mount namespace of its own it sees
the lab's ~/.ssh (configuration, key, known hosts) and /etc/hosts, so that ssh and libraries find the hosts.
A process can also go inside itself (``join``), which saves starting it a second time.
"""

from __future__ import annotations

import ctypes
import os
import pwd
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NoReturn

from sparkop.errors import UnreachableError
from sparkop.inside import INSIDE_VARIABLE, inside
from sparkop.lab.layout import (
    MAX_HOSTS,
    LabError,
    LabNameError,
    LabPaths,
    host_addresses,
    host_names,
    lab_name,
)
from sparkop.lab.present import present

CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18

_ENTER = """
set -e
mount --bind "$1/hosts" /etc/hosts
shift_to="$1/ssh"; shift
while [ "$1" != -- ]; do mount --bind "$shift_to" "$1"; shift; done
shift
exec "$@"
"""


def lab_of(names: Collection[str], addresses: Collection[str]) -> str | None:
    """The lab that a spec's nodes belong to; None for nodes that are no lab's. Cheap when they are none.

    addresses: what ssh is to connect to, for each node. They decide: a user's own machine may be called
    spark-1, but not spark-1.lab. Raises UnreachableError when they are a lab's and that lab is not up.
    """
    if not addresses or not set(addresses) <= _lab_addresses():
        return None
    name = inside() or lab_name()
    paths = LabPaths.of(name)
    if not paths.config.exists():
        raise UnreachableError(
            f"{', '.join(sorted(names))}: hosts of lab {name!r}, which is not up", remedy="sparkop lab up"
        )
    return name


def join(lab: str) -> None:
    """Bring the calling thread, and the threads and processes that it starts from now on, inside the lab.

    Threads that run already stay where they are. Raises UnreachableError when the lab is not up, and LabError
    when this is not root or may not enter namespaces.
    """
    try:
        running = present(lab)
    except LabNameError as error:  # the user has named a spec, and its nodes are away
        raise UnreachableError(error.message, remedy=error.remedy) from None
    folders = _ssh_folders()
    try:
        target = os.open(f"/proc/{running.pid}/ns/net", os.O_RDONLY)
        try:
            _call("unshare", CLONE_NEWNS)
            _mount("none", "/", MS_REC | MS_PRIVATE)
            _mount(str(running.paths.controller / "hosts"), "/etc/hosts", MS_BIND)
            for folder in folders:
                _mount(str(running.paths.controller / "ssh"), str(folder), MS_BIND)
            _call("setns", target, CLONE_NEWNET)
        finally:
            os.close(target)
    except OSError as error:
        raise LabError(f"lab {lab!r} can't be entered", cause=str(error)) from error
    os.environ[INSIDE_VARIABLE] = running.inside


def enter(lab: str, argv: Sequence[str]) -> NoReturn:
    """Become ``argv`` inside the lab. Raises LabNameError when the lab is not up."""
    command = command_inside(lab, argv)
    os.execvpe(command[0], command, environment(lab))


def environment(lab: str) -> dict[str, str]:
    """The environment of programs inside the lab: this one's, and the mark that they are inside."""
    return {**os.environ, INSIDE_VARIABLE: present(lab).inside}


def command_inside(lab: str, argv: Sequence[str]) -> list[str]:
    """``argv`` wrapped to run inside; to be run with ``environment``."""
    running = present(lab)
    return [
        "nsenter", "-t", str(running.pid), "-n", "--", "unshare", "-m", "--propagation", "private", "--",
        "sh", "-c", _ENTER, "sh", str(running.paths.controller), *map(str, _ssh_folders()), "--", *argv,
    ]  # fmt: skip


def _ssh_folders() -> list[Path]:
    """Where programs look for their SSH configuration; the folders are there then."""
    homes = {str(Path.home()), pwd.getpwuid(os.getuid()).pw_dir}  # ssh asks passwd, libraries ask HOME
    folders = [Path(home, ".ssh") for home in sorted(homes)]
    for folder in folders:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folders


def _mount(source: str, target: str, flags: int) -> None:
    _call("mount", source.encode(), target.encode(), None, ctypes.c_ulong(flags), None)


def _call(name: str, *arguments: object) -> None:
    """A system call of the C library. Raises OSError."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _lab_addresses() -> set[str]:
    known = {address for host in host_names(MAX_HOSTS) for address in host_addresses(host).values()}
    return known | {f"{host}.lab" for host in host_names(MAX_HOSTS)}
