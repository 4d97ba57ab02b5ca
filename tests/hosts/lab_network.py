"""The lab's network for a test's own thread and what it starts; the lab itself is brought up once."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

from sparkop.hosts.connect import Target
from sparkop.lab.lab import Lab, LabConfig, down, up
from sparkop.lab.layout import host_addresses

LAB = "tests-hosts"
_CLONE_NEWNET = 0x40000000


@contextlib.contextmanager
def running_lab() -> Iterator[Lab]:
    """Two hosts, gone at the end."""
    lab = up(LAB, LabConfig(hosts=2))
    try:
        yield lab
    finally:
        down(LAB)


@contextlib.contextmanager
def inside(lab: Lab) -> Iterator[None]:
    """Move this thread into the lab's network namespace; threads and processes it starts are there too."""
    libc = ctypes.CDLL(None, use_errno=True)
    with (
        Path("/proc/thread-self/ns/net").open() as home,
        Path(f"/proc/{lab.running()}/ns/net").open() as there,
    ):
        for_setns(libc, there.fileno())
        try:
            yield
        finally:
            for_setns(libc, home.fileno())


def for_setns(libc: ctypes.CDLL, descriptor: int) -> None:
    if libc.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def target(lab: Lab, host: str, folder: Path, *, port: int = 22) -> Target:
    """A node of the lab, with a client configuration in ``folder``."""
    ssh = lab.paths.controller / "ssh"
    address = next(iter(host_addresses(host).values()))
    config = folder / f"config-{host}-{port}"
    config.write_text(
        f"Host {host}\nHostName {address}\nPort {port}\nUser root\nIdentityFile {ssh}/id_ed25519\n"
        f"IdentityAgent none\nHostKeyAlias {address}\n"
        f"UserKnownHostsFile {ssh}/known_hosts\nGlobalKnownHostsFile none\n"
    )
    return Target(name=host, host=host, config_file=str(config))
