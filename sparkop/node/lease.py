"""The lease of a cluster on a node: who may write, by ``lease.json`` and a file lock in the state folder.

Stdlib-only, Python 3.8 or newer. The node never judges time: it compares and sets. A contender that has
watched the heartbeat stand still, by its own monotonic clock, names what it saw (``expected``); the lease
changes hands only when that is still what is there. Every holder has a fencing token, a number that
only grows; a released lease keeps its own. The file calls it ``epoch``: older sparkops fence by it too::

    {"version": 1, "cluster": "name", "holder": "...", "epoch": 3, "heartbeat": 17, "released": false,
     "info": {"host": "...", "command": "apply"}, "wanted": null | {"holder": "...", "info": {...}},
     "renewed": 1790000000.0, "watches": {"holder": {"info": {...}, "at": 1790000000.0}}}

``watches`` holds the signs of life of those who watch, ``renewed`` the moment of the last heartbeat, by the
node's own clock; they decide nothing.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, Optional

from . import wire

NAME = "lease.json"
LOCK = ".lock"

BREAK = "lease break"
"""The command of a human who takes the lease from whoever has it."""
PAGE = 4096
"""Bytes that one write changes as a whole."""
FORGOTTEN = 600.0
"""Seconds after which the next write drops the sign of a watch that was killed."""

Lease = Optional[Dict[str, Any]]
"""None: there was never one."""


class LeaseError(Exception):
    """The writer does not hold the lease; ``lease`` is what is there."""

    def __init__(self, message: str, lease: dict[str, Any] | None) -> None:
        super().__init__(message)
        self.lease = lease


@contextmanager
def locked(folder: str) -> Iterator[None]:
    """Hold the state folder's lock; every writer on this node takes it for each single effect."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    descriptor = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def read(folder: str) -> dict[str, Any] | None:
    """The lease; None when there was never one. Raises LeaseError when the file is damaged."""
    try:
        with wire.regular(os.path.join(folder, NAME)) as stream:
            lease = json.load(stream)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise LeaseError("%s is damaged (%s)" % (NAME, error), None) from error
    if not isinstance(lease, dict) or not isinstance(lease.get("epoch"), int):
        raise LeaseError("%s is damaged" % NAME, None)
    return lease


def write(folder: str, lease: dict[str, Any]) -> None:
    """Write it whole. On a full disk it goes over the one before, where that needs no room: a lease that
    could not be given back kept everybody waiting for a holder that was gone."""
    path, content = os.path.join(folder, NAME), json.dumps(lease, sort_keys=True).encode() + b"\n"
    try:
        replace_file(path, content, 0o600)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not _write_over(path, content):
            raise


def _write_over(path: str, content: bytes) -> bool:
    """In one write, at most a page, padded to the old length: no moment between shows half a lease."""
    if not os.path.exists(path):
        return False
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        there = os.fstat(descriptor)
        if max(len(content), there.st_size) > min(PAGE, there.st_blocks * 512):
            return False
        os.pwrite(descriptor, content.ljust(there.st_size), 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True


def perform(folder: str, step: str, fence: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """One step of `STEPS` on the lease of a folder whose lock is held; the lease afterwards."""
    try:
        before = read(folder)
    except LeaseError:
        if not arguments.get("force"):
            raise
        before = None
    after = STEPS[step](before, fence, arguments)
    if after is not None and after != before:
        now = time.time()
        after = without_old_signs(after, now)
        if step in ("lease.acquire", "lease.renew"):
            after = {**after, "renewed": now}
        write(folder, after)
    return after or {}


def check(lease: Lease, fence: dict[str, Any]) -> dict[str, Any]:
    """The lease, when the fence has its holder and its token. Raises LeaseError."""
    if lease is None:
        raise LeaseError("nobody holds the lease", None)
    if lease.get("cluster") != fence["cluster"]:
        raise LeaseError("the state folder belongs to cluster %s" % lease.get("cluster"), lease)
    if lease.get("holder") != fence["holder"] or lease["epoch"] != fence["token"] or lease.get("released"):
        raise LeaseError(describe(lease, fence["holder"]), lease)
    return lease


def acquire(lease: Lease, fence: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Take a lease that is free, or that still is what ``expected`` says. Taking it twice is success."""
    if lease is not None:
        mine = lease.get("holder") == fence["holder"]
        if lease.get("cluster") != fence["cluster"]:
            raise LeaseError("the state folder belongs to cluster %s" % lease.get("cluster"), lease)
        if mine and lease["epoch"] == fence["token"] and not lease.get("released"):
            return lease
        if fence["token"] <= lease["epoch"]:
            raise LeaseError("token %d is past: %s" % (fence["token"], describe(lease)), lease)
        free = mine or lease.get("released") or arguments.get("force")
        if not free and not is_expected(lease, arguments.get("expected")):
            raise LeaseError(describe(lease), lease)
    watches = lease.get("watches") if lease is not None else None
    return {
        **({"watches": watches} if watches else {}),
        "version": 1,
        "cluster": fence["cluster"],
        "holder": fence["holder"],
        "epoch": fence["token"],
        "heartbeat": 0,
        "released": False,
        "info": arguments.get("info") or {},
        "wanted": None,
    }


def renew(lease: Lease, fence: dict[str, Any], _: dict[str, Any]) -> dict[str, Any]:
    """Count the heartbeat on. The answer's ``wanted`` tells of somebody who asks for the lease."""
    held = check(lease, fence)
    return {**held, "heartbeat": int(held.get("heartbeat") or 0) + 1}


def release(lease: Lease, fence: dict[str, Any], _: dict[str, Any]) -> dict[str, Any]:
    """Give it back; done by this holder before is success."""
    if lease is not None and lease.get("released") and lease.get("holder") == fence["holder"]:
        return lease
    return {**check(lease, fence), "released": True, "wanted": None}


def ask(lease: Lease, fence: dict[str, Any], arguments: dict[str, Any]) -> Lease:
    """Ask the holder to yield; it sees that when it renews. Nothing to ask for when the lease is free."""
    if lease is None or lease.get("released") or lease.get("holder") == fence["holder"]:
        return lease
    return {**lease, "wanted": {"holder": fence["holder"], "info": arguments.get("info") or {}}}


def watching(lease: Lease, fence: dict[str, Any], arguments: dict[str, Any]) -> Lease:
    """A watch says that it lives, or (``over``) that it ends, and who is ``dead``. Changes nothing of who may
    write."""
    if lease is None:
        return None
    now, holder = time.time(), fence["holder"]
    signs = lease.get("watches")
    if not isinstance(signs, dict):
        signs = {}
    dead = arguments.get("dead")
    ended = (holder, *dead) if isinstance(dead, list) else (holder,)
    kept = {name: sign for name, sign in signs.items() if name not in ended}
    if not arguments.get("over"):
        kept[holder] = {"info": arguments.get("info") or {}, "at": now}
    return {**{key: value for key, value in lease.items() if key != "watches"}, "watches": kept}


def without_old_signs(lease: dict[str, Any], now: float) -> dict[str, Any]:
    signs = lease.get("watches")
    if not isinstance(signs, dict):
        return lease
    return {**lease, "watches": {name: sign for name, sign in signs.items() if fresh(sign, now)}}


def fresh(sign: Any, now: float) -> bool:
    at = sign.get("at") if isinstance(sign, dict) else None
    return isinstance(at, (int, float)) and abs(now - at) < FORGOTTEN


STEPS: dict[str, Callable[[Lease, dict[str, Any], dict[str, Any]], Lease]] = {
    "lease.acquire": acquire,
    "lease.renew": renew,
    "lease.release": release,
    "lease.check": lambda lease, fence, _: check(lease, fence),
    "lease.ask": ask,
    "lease.watching": watching,
}
"""The pure part: lease, fence and arguments to the lease afterwards."""


def is_expected(lease: dict[str, Any], expected: Any) -> bool:
    """Whether the lease has not moved since a contender read it."""
    keys = ("holder", "epoch", "heartbeat")
    return isinstance(expected, dict) and all(lease.get(key) == expected.get(key) for key in keys)


def describe(lease: dict[str, Any], asks: Any = None) -> str:
    """Who has it, or had it last; and why, where it was taken from another. ``asks``: the holder that asks,
    who did not give back what another has given back."""
    info = lease.get("info")
    known: dict[str, Any] = info if isinstance(info, dict) else {}
    who, command, silent = known.get("who") or lease.get("holder"), known.get("command"), known.get("silent")
    told = "%s%s, token %d" % (who, " (%s)" % command if command else "", lease["epoch"])
    if command == BREAK:
        told = "%s ran sparkop %s" % (who, BREAK)
    elif isinstance(silent, (int, float)):
        told = "taken over by %s, because nothing was heard of the holder before for %d s" % (told, silent)
    elif lease.get("released") and asks not in (None, lease.get("holder")):
        told = "another sparkop has had it since: %s" % told
    elif lease.get("released"):
        return "the lease of token %d was given back" % lease["epoch"]
    else:
        told = "held by %s" % told
    return told + ("; the lease was given back" if lease.get("released") else "")


def replace_file(path: str, content: bytes, mode: int) -> None:
    """Write a file whole: draft beside it, fsync, rename. The draft has one name, so none is left over."""
    folder, name = os.path.split(path)
    draft = os.path.join(folder, ".%s.draft" % name)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(descriptor, mode)
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(draft, path)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
