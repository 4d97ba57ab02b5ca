"""A power cut at any write or fsync, on real files: what was not synced is lost, torn, or there."""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

EFFECTS = ("write", "pwrite", "fsync", "fdatasync", "replace", "unlink", "ftruncate")


class PowerCut(BaseException):
    """The machine is off."""


class Machine:
    """Watches one folder. Use `running`, then `cut` to make the disk what it may be after the cut.

    A file has the content of its last fsync; a folder has the names of its last fsync. What came later may
    have reached the disk or not: dice decide for each file and folder.
    """

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.folder = folder
        self._dice = dice
        self._shadow = folder.parent / f"{folder.name}.shadow"
        self._shadow.mkdir()
        self._content: dict[int, bytes] = {}
        self._names: dict[str, int] = {}
        self.count = 0
        self.sync_all()

    def sync_all(self) -> None:
        """Everything is on disk, as after a clean shutdown."""
        for path in self.folder.iterdir():
            self._content[path.stat().st_ino] = path.read_bytes()
        self._sync_names()

    def _sync_names(self) -> None:
        self._names = {path.name: path.stat().st_ino for path in self.folder.iterdir()}
        for name, inode in self._names.items():
            link = self._shadow / str(inode)
            if not link.exists():
                os.link(self.folder / name, link)

    @contextmanager
    def running(self, cut_at: int) -> Iterator[None]:
        """Raises PowerCut instead of the effect number ``cut_at`` (from 0)."""
        before = {name: getattr(os, name) for name in EFFECTS}
        self.count = 0

        def watched(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
            def effect(*arguments: Any, **more: Any) -> Any:
                if self.count == cut_at:
                    self._restore(before)
                    raise PowerCut
                self.count += 1
                result = real(*arguments, **more)
                if name in ("fsync", "fdatasync"):
                    self._synced(arguments[0])
                return result

            return effect

        for name, real in before.items():
            setattr(os, name, watched(name, real))
        try:
            yield
        finally:
            self._restore(before)

    @staticmethod
    def _restore(before: dict[str, Callable[..., Any]]) -> None:
        for name, real in before.items():
            setattr(os, name, real)

    def _synced(self, handle: int) -> None:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            self._sync_names()
        else:
            self._content[status.st_ino] = Path(f"/proc/self/fd/{handle}").read_bytes()

    def cut(self) -> None:
        """The disk after the cut."""
        if self._dice.random() < 0.5:
            for path in list(self.folder.iterdir()):
                if path.name not in self._names or path.stat().st_ino != self._names[path.name]:
                    path.unlink()
            for name, inode in self._names.items():
                if not (self.folder / name).exists():
                    os.link(self._shadow / str(inode), self.folder / name)
        for path in self.folder.iterdir():
            now, synced = path.read_bytes(), self._content.get(path.stat().st_ino, b"")
            if now != synced:
                handle = os.open(path, os.O_WRONLY)
                data = self._dice.choice((now, synced, self._torn(now, synced)))
                os.ftruncate(handle, 0)
                os.pwrite(handle, data, 0)
                os.close(handle)
        self.sync_all()

    def _torn(self, now: bytes, synced: bytes) -> bytes:
        """Each byte is the new one or the old one; a part of what was appended is zeros."""
        long = max(len(now), len(synced))
        old, new = synced.ljust(long, b"\0"), now.ljust(long, b"\0")
        mixed = bytes(self._dice.choice(pair) for pair in zip(old, new, strict=True))
        return mixed[: len(now)]

    def remove(self) -> None:
        shutil.rmtree(self._shadow)
