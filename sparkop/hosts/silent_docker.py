"""Why a node's Docker engine gave no answer, in words, and what mends it. Pure.

A reason is an error as ``node/wire.py`` describes it: ``ConnectionRefusedError: Connection refused``.
"""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from sparkop.errors import UnreachableError

if TYPE_CHECKING:
    from sparkop.hosts.document import Document

START = "sudo systemctl start docker; systemctl status docker  # says why it ended"
RESTART = "sudo systemctl restart docker  # running containers end, unless live-restore is set"
_STOPPED = ("FileNotFoundError", "ConnectionRefusedError")
_ENDED = ("ConnectionError", "ConnectionResetError", "BrokenPipeError")
"""It went away in the middle, and may be back: to end what runs there by a restart would be too much."""


def silent_engine(reason: str, *, node: str) -> UnreachableError:
    """The error of a Docker engine that gave no answer: what it was told may be done, or not."""
    return UnreachableError(
        "The node's Docker engine does not answer.",
        node=node,
        cause=_told(reason),
        remedy=f"{_mends(reason, '$USER')}; then the same command again",
    )


def is_stopped(document: Document) -> bool:
    """Nobody listens on its socket: that is known, and no silence."""
    return _reason(document).startswith(_STOPPED)


def is_refused(document: Document) -> bool:
    """It listens, and not to this user."""
    return _refuses(_reason(document))


def why(document: Document) -> str:
    """One phrase; of a document whose ``docker`` was not read."""
    told = _told(_reason(document))
    return f"Docker {'refuses this user' if is_refused(document) else 'does not answer'}: {told}"


def remedy(document: Document) -> str:
    """What to type on the node."""
    machine = document.machine
    user = quote(machine.user) if machine else "$USER"
    if is_refused(document) and machine is not None and "docker" in machine.pending_groups:
        again = "log out and in again (or restart the node)"
        return f"{user} is in the group docker, but not in this login: {again}"
    return _mends(_reason(document), user)


def _mends(reason: str, user: str) -> str:
    if _refuses(reason):
        return f"sudo usermod -aG docker {user}  # then log out and in again"
    return START if reason.startswith((*_STOPPED, *_ENDED)) else RESTART


def _refuses(reason: str) -> bool:
    return "permission denied" in reason.lower()


def _told(reason: str) -> str:
    if reason.startswith("FileNotFoundError") or reason.endswith("No such file or directory"):
        return "there is no /var/run/docker.sock"
    return reason.partition(": ")[2] or reason or "it is missing from the node's answer"


def _reason(document: Document) -> str:
    return document.error("docker") or ""
