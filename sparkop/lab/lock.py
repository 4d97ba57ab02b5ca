"""One at a time makes, changes or removes a lab: ``up`` with its engines, ``boot``, ``down``."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

from sparkop.lab.layout import LabError, LabPaths

LOCK_SECONDS = 180.0


@contextlib.contextmanager
def locked(paths: LabPaths) -> Iterator[None]:
    """Hold the lab's lock; the file goes when no lab is left behind.

    Raises LabError when another holds it for LOCK_SECONDS, or when the state folder cannot be written.
    """
    file = _acquire(paths)
    try:
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        if not paths.root.exists():
            paths.lock.unlink(missing_ok=True)
        os.close(file)


def _acquire(paths: LabPaths) -> int:
    end = time.monotonic() + LOCK_SECONDS
    while True:
        file = _open(paths)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(file, paths):
                return file
        except BlockingIOError:
            if time.monotonic() > end:
                holder = os.pread(file, 32, 0).decode().strip()
                os.close(file)
                raise LabError(
                    f"lab {paths.name!r}: another up, boot or down (pid {holder}) does not end"
                ) from None
            time.sleep(0.1)
        os.close(file)


def _open(paths: LabPaths) -> int:
    try:
        paths.state_root.mkdir(parents=True, exist_ok=True)
        return os.open(paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LabError(
            f"cannot write {paths.state_root}: {error.strerror}", remedy="run it as root"
        ) from None


def _is_at(file: int, paths: LabPaths) -> bool:
    """Whether the path still leads to the opened file: its last holder may have removed it."""
    try:
        return os.path.samestat(os.fstat(file), paths.lock.stat())
    except FileNotFoundError:
        return False
