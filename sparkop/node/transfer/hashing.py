"""Hashes of files on disk, the page cache, and what a safetensors file must look like."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from typing import Any, Callable, Dict, Optional

from .files import File, pieces_hash

CHUNK = 256 << 10
"""Bytes read at a time: they stay in a core's own cache on their way to the hash."""
MAX_HEADER = 100 << 20
"""Bytes; a safetensors header beyond this is taken for damage (readers refuse far smaller ones)."""


class FileHash:
    """The hashes by which one file is recognised, fed in order.

    ``sha256`` of the whole is always made (the ledger keeps it); beside it the git blob hash, or the hash of
    each part, where the file is known by those.
    """

    def __init__(self, file: File) -> None:
        self._file = file
        self._whole = hashlib.sha256()
        self._git = hashlib.sha1(b"blob %d\0" % file.size) if file.git and not file.sha256 else None
        self._by_parts = file.wanted[0] == "pieces"
        self._piece = 0
        self._piece_left = file.parts[0].size if self._by_parts else 0
        self._piece_hash = hashlib.sha256()
        self.bad_pieces: "list[int]" = []

    def update(self, data: memoryview) -> None:
        self._whole.update(data)
        if self._git is not None:
            self._git.update(data)
        while self._by_parts and len(data):
            part = data[: self._piece_left]
            self._piece_hash.update(part)
            self._piece_left -= len(part)
            data = data[len(part) :]
            if self._piece_left == 0:
                self._end_piece()

    def _end_piece(self) -> None:
        if self._piece_hash.hexdigest() != self._file.parts[self._piece].sha256:
            self.bad_pieces.append(self._piece)
        self._piece += 1
        if self._piece < len(self._file.parts):
            self._piece_left = self._file.parts[self._piece].size
            self._piece_hash = hashlib.sha256()

    def result(self) -> Dict[str, str]:
        """Hash name -> hex, as the ledger keeps them."""
        hashes = {"sha256": self._whole.hexdigest()}
        if self._git is not None:
            hashes["git"] = self._git.hexdigest()
        if self._by_parts and not self.bad_pieces and self._piece == len(self._file.parts):
            hashes["pieces"] = pieces_hash(self._file.parts)
        return hashes

    def matches(self) -> bool:
        """The bytes fed so far are the wanted file, whole."""
        name, value = self._file.wanted
        return self.result().get(name) == value


def hash_file(path: str, file: File, progress: Optional[Callable[[int], None]] = None) -> FileHash:
    """Hash what lies at ``path`` and release its page cache. Raises OSError."""
    result = FileHash(file)
    buffer = memoryview(bytearray(CHUNK))
    handle = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while True:
            count = os.readv(handle, [buffer])
            if not count:
                return result
            result.update(buffer[:count])
            if progress is not None:
                progress(count)
    finally:
        release(handle)
        os.close(handle)


def release(handle: int) -> None:
    """Drop the clean pages of an open file: on a Spark the page cache takes memory from the model."""
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)


def release_file(path: str) -> None:
    """The same by name; dirty pages are written first."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(handle)
        release(handle)
    finally:
        os.close(handle)


def looks_like_pointer(path: str) -> bool:
    """A git LFS pointer where the file itself should be."""
    with open(path, "rb") as file:
        return file.read(42) == b"version https://git-lfs.github.com/spec/v1"


def read_header(path: str) -> Dict[str, Any]:
    """Tensors of a safetensors file by name. Raises ValueError that says what is wrong, OSError.

    Layout: 8 bytes little-endian header length N, N bytes of JSON, data; the size is 8 + N + the largest end.
    """
    size = os.stat(path).st_size
    with open(path, "rb") as file:
        start = file.read(8)
        if len(start) < 8:
            raise ValueError("%d bytes, too short for a safetensors file" % size)
        (length,) = struct.unpack("<Q", start)
        if length > min(MAX_HEADER, size - 8):
            raise ValueError("header of %d bytes in a file of %d" % (length, size))
        try:
            header = json.loads(file.read(length))
        except ValueError:
            raise ValueError("the header is not JSON") from None
    if not isinstance(header, dict):
        raise ValueError("the header is not a mapping")
    header.pop("__metadata__", None)
    try:
        end = max([int(tensor["data_offsets"][1]) for tensor in header.values()] or [0])
    except (TypeError, KeyError, IndexError, ValueError):
        raise ValueError("the header has a tensor without offsets") from None
    if size != 8 + length + end:
        raise ValueError("%d bytes, but its header says %d" % (size, 8 + length + end))
    return header
