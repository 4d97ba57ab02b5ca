"""Lets one node read another's share over ssh: a key of sparkop's own that can do nothing else."""

from __future__ import annotations

import fcntl
import glob
import os
import shlex
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional

from .files import TransferError
from .ledger import write_whole

COMMENT = "sparkop:"
"""How the comment of every key begins that a sparkop has made (resources/peers.py)."""


def make_key(state: str, comment: str) -> Dict[str, Any]:
    """This node's key pair, made when it is not there; returns the public half."""
    path = os.path.join(state, "transfer", "id_ed25519")
    with _one_at_a_time(state):
        if not os.path.exists(path + ".pub"):
            if os.path.exists(path):
                os.unlink(path)
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path]
            try:
                subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)
            except (OSError, subprocess.CalledProcessError) as error:
                raise TransferError(
                    "place", "ssh-keygen failed: %s" % error, "install the OpenSSH client"
                ) from None
    with open(path + ".pub") as file:
        return {"public": file.read().strip(), "path": path}


def remove_key(state: str) -> None:
    for name in ("id_ed25519", "id_ed25519.pub", "known_hosts"):
        path = os.path.join(state, "transfer", name)
        if os.path.exists(path):
            os.unlink(path)


def host_keys() -> List[str]:
    """Public keys of this node's sshd, as ``type base64``."""
    keys = []
    for path in sorted(glob.glob("/etc/ssh/ssh_host_*_key.pub")):
        try:
            with open(path) as file:
                keys.append(" ".join(file.read().split()[:2]))
        except OSError:
            continue
    return keys


def know_hosts(state: str, lines: List[str]) -> None:
    """The keys by which this node recognises the one that it copies from; others stay known."""
    path = os.path.join(state, "transfer", "known_hosts")
    names = {line.split(" ")[0] for line in lines}
    with _one_at_a_time(state):
        try:
            with open(path, encoding="utf-8") as file:
                before = file.read().splitlines()
        except FileNotFoundError:
            before = []
        kept = [line for line in before if line.split(" ")[0] not in names]
        write_whole(path, "".join(line + "\n" for line in kept + lines).encode())


@contextmanager
def _one_at_a_time(state: str) -> Iterator[None]:
    """Weights and an image may be on their way to this node at once."""
    with open(os.path.join(state, "transfer", "peers.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def check_route(address: str, expected: str, interface: str = "") -> None:
    """Packets to the address must leave from our own ``expected``, by ``interface``: the fabric's.

    Nothing is asked without ``expected``. Raises TransferError.
    """
    if not expected:
        return
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))  # sends nothing: it only chooses the way
            leaves = probe.getsockname()[0]
        except OSError as error:
            raise TransferError(
                "network", "no way to %s: %s" % (address, error), "check the fabric link"
            ) from None
    taken = _interface_to(address)
    known = bool(taken) and os.path.exists("/sys/class/net/%s" % (interface or "."))
    if leaves != expected or (interface and known and taken != interface):
        raise TransferError(
            "place",
            "the way to %s leaves the fabric: by %s from %s, not by %s from %s"
            % (address, taken or "another interface", leaves, interface or "the fabric's own", expected),
            "ip route get %s, and take the route away that leads there; or set fabric.otherRoutes: true"
            % address,
        )


def check_ways(sources: Iterable[Mapping[str, Any]]) -> None:
    """The way to each node that a job reads from. Raises TransferError."""
    for source in sources:
        if source.get("address"):
            check_route(
                str(source["address"]), str(source.get("from") or ""), str(source.get("interface") or "")
            )


def _interface_to(address: str) -> str:
    """Name of the interface by which packets to the address leave; empty when it is not told."""
    try:
        told = subprocess.run(
            ["ip", "-o", "route", "get", address], stdin=subprocess.DEVNULL, capture_output=True, text=True
        ).stdout.split()
    except OSError:
        return ""
    return told[told.index("dev") + 1] if "dev" in told[:-1] else ""


def authorise(state: str, public: str) -> None:
    """Let the owner of the key read this node's share, and nothing else. Repeating it changes nothing."""
    program = os.path.realpath(sys.argv[0])
    command = "%s -I -S %s pipe %s" % tuple(shlex.quote(word) for word in (sys.executable, program, state))
    escaped = command.replace("\\", "\\\\").replace('"', '\\"')
    comment = public.split()[2]
    _edit(lambda old: old == comment, 'restrict,command="%s" %s' % (escaped, public))


def forbid(prefix: str) -> None:
    """Take back what `authorise` gave to all keys whose comment begins so."""
    _edit(lambda old: old.startswith(prefix), None)


def _edit(ours: Callable[[str], bool], line: Optional[str]) -> None:
    """Replace the lines of authorized_keys whose comment is ours, the others untouched. With the last key of
    a sparkop, whichever cluster's, the lock goes too."""
    folder = os.path.expanduser("~/.ssh")
    if line is None and not os.path.isdir(folder):
        return
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.realpath(os.path.join(folder, "authorized_keys"))
    lock = os.path.join(folder, ".sparkop.lock")
    with _locked(lock):
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                before = file.read()
        except FileNotFoundError:
            before = ""
        kept = [old for old in before.splitlines() if not ours(_comment(old))]
        lines = kept + ([line] if line else [])
        after = "".join(old + "\n" for old in lines)
        if after != before:
            write_whole(path, after.encode("utf-8", "surrogateescape"), mode=0o600)
        if not any(_comment(each).startswith(COMMENT) for each in lines):
            os.unlink(lock)


def _comment(line: str) -> str:
    return line.rpartition(" ")[2]


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Held by its name: who has waited for a lock that was removed meanwhile takes the one that is there."""
    while True:
        with open(path, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_at(path, lock.fileno()):
                continue
            yield
            return


def _is_at(path: str, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False
