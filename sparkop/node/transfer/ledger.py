"""The ledger of verified files: a full hash once, a stat from then on."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from contextlib import contextmanager
from typing import Any, Dict, Iterator, Mapping, Optional

from .files import File

VERSION = 1
"""Of the ledger's layout. What another sparkop wrote in another one proves nothing: it is hashed again."""
_STAT = (
    ("inode", "st_ino"),
    ("size", "st_size"),
    ("mtime_ns", "st_mtime_ns"),
    ("ctime_ns", "st_ctime_ns"),
)
"""Not the device: its number can be another one after each boot, and all would be hashed again."""


def sync_folder(path: str) -> None:
    """Make the names in a folder durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(path: str, data: bytes, mode: int = 0o644) -> None:
    """Replace a file so that after any crash it holds the old bytes or the new ones."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, ".%s.%d.new" % (name, os.getpid()))
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(temporary, path)
    sync_folder(folder)


def read_json(path: str) -> Dict[str, Any]:
    """A JSON mapping; empty when the file is absent, torn (it was not written by `write_whole`) or a FIFO."""
    if not os.path.isfile(path):
        return {}
    try:
        with open(path, "rb") as file:
            document = json.load(file)
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


class Ledger:
    """``STATE/ledger/weights.json``, for several processes: each change reads it anew, under a lock."""

    def __init__(self, state: str, folder: str = "ledger") -> None:
        self._path = os.path.join(state, folder, "weights.json")
        self._mutex = threading.Lock()

    def entry(self, path: str) -> Optional[Mapping[str, Any]]:
        """What was verified at this place, if its stat is still the same."""
        real = os.path.realpath(path)
        entry = self.snapshot().get(real)
        return entry if entry and _same(real, entry) else None

    def snapshot(self) -> Dict[str, Any]:
        """All entries, unchecked; none of a ledger that is damaged or of another version."""
        document = read_json(self._path)
        files = document.get("files") if document.get("version") == VERSION else None
        if not isinstance(files, dict):
            return {}
        return {path: entry for path, entry in files.items() if isinstance(entry, dict)}

    def record(self, path: str, status: os.stat_result, hashes: Mapping[str, str]) -> None:
        """The bytes at ``path`` have these hashes; ``status`` is its stat from before they were read."""
        real = os.path.realpath(path)
        entry: Dict[str, Any] = {name: getattr(status, attribute) for name, attribute in _STAT}
        entry.update(hashes)
        with self._change() as files:
            files[real] = entry

    def forget(self, path: str) -> None:
        """The bytes at ``path`` are not to be trusted."""
        with self._change() as files:
            files.pop(os.path.realpath(path), None)

    @contextmanager
    def _change(self) -> Iterator[Dict[str, Any]]:
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        with self._mutex, open(self._path + ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            files = self.snapshot()
            yield files
            write_whole(self._path, json.dumps({"version": VERSION, "files": files}).encode())


def agrees(path: str, entry: Optional[Mapping[str, Any]], file: File) -> bool:
    """The ledger's entry speaks of the file that lies there now, and of the bytes that are wanted."""
    name, value = file.wanted
    return bool(entry) and entry is not None and entry.get(name) == value and _same(path, entry)


def _same(path: str, entry: Mapping[str, Any]) -> bool:
    try:
        status = os.stat(path)
    except OSError:
        return False
    return all(getattr(status, attribute) == entry.get(name) for name, attribute in _STAT)
