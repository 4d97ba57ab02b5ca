"""Lets one node read another's share over ssh: a key of sparkop's own that can do nothing else."""

from __future__ import annotations

import fcntl
import glob
import os
import shlex
import subprocess
import sys
from typing import Any, Dict, List

from .files import TransferError
from .ledger import write_whole


def make_key(state: str, comment: str) -> Dict[str, Any]:
    """This node's key pair, made when it is not there; returns the public half."""
    path = os.path.join(state, "transfer", "id_ed25519")
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
    """The keys by which this node recognises the one that it copies from."""
    write_whole(
        os.path.join(state, "transfer", "known_hosts"), "".join(line + "\n" for line in lines).encode()
    )


def authorise(state: str, public: str) -> None:
    """Let the owner of the key read this node's share, and nothing else. Repeating it changes nothing."""
    program = os.path.realpath(sys.argv[0])
    command = "%s -I -S %s pipe %s" % tuple(shlex.quote(word) for word in (sys.executable, program, state))
    escaped = command.replace("\\", "\\\\").replace('"', '\\"')
    _edit(public.split()[2], 'restrict,command="%s" %s' % (escaped, public))


def forbid(comment: str) -> None:
    """Take back what `authorise` gave to keys with this comment."""
    _edit(comment, None)


def _edit(comment: str, line: "str | None") -> None:
    """Replace the lines of authorized_keys that end in the comment, the others untouched."""
    folder = os.path.expanduser("~/.ssh")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.realpath(os.path.join(folder, "authorized_keys"))
    with open(os.path.join(folder, ".sparkop.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                before = file.read()
        except FileNotFoundError:
            before = ""
        kept = [
            old for old in before.splitlines() if not (old.endswith(" " + comment) and "sparkop" in comment)
        ]
        after = "".join(old + "\n" for old in kept + ([line] if line else []))
        if after != before:
            write_whole(path, after.encode("utf-8", "surrogateescape"), mode=0o600)
