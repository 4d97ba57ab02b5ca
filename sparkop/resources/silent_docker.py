"""Why a node's Docker engine was not read, in words, and what mends it. Pure."""

from __future__ import annotations

from shlex import quote

from sparkop.hosts.document import Document

START = "sudo systemctl start docker; systemctl status docker  # says why it ended"
RESTART = "sudo systemctl restart docker  # running containers end, unless live-restore is set"
_STOPPED = ("FileNotFoundError", "ConnectionRefusedError")


def is_stopped(document: Document) -> bool:
    """Nobody listens on its socket: that is known, and no silence."""
    return _reason(document).startswith(_STOPPED)


def is_refused(document: Document) -> bool:
    """It listens, and not to this user."""
    return "permission denied" in _reason(document).lower()


def why(document: Document) -> str:
    """One phrase; of a document whose ``docker`` was not read."""
    reason = _reason(document)
    told = reason.partition(": ")[2] or reason or "it is missing from the node's answer"
    if reason.startswith("FileNotFoundError"):
        told = "there is no /var/run/docker.sock"
    return f"Docker {'refuses this user' if is_refused(document) else 'does not answer'}: {told}"


def remedy(document: Document) -> str:
    """What to type on the node."""
    if is_stopped(document):
        return START
    if not is_refused(document):
        return RESTART
    machine = document.machine
    user = quote(machine.user) if machine else "$USER"
    if machine is not None and "docker" in machine.pending_groups:
        again = "log out and in again (or restart the node)"
        return f"{user} is in the group docker, but not in this login: {again}"
    return f"sudo usermod -aG docker {user}  # then log out and in again"


def _reason(document: Document) -> str:
    return document.error("docker") or ""
