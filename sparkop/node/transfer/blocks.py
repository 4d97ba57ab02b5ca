"""A file while its bytes arrive: the staging file, which blocks of it are durable, and its running hash.

The block list is a text file: one header line (JSON), then a line per durable block, ``NNNNNNNN CCCCCCCC``
(index, CRC-32 of the index's digits). A line is written only after the block's bytes were synced; a torn or
garbled line does not count. After a crash a block is therefore either listed and on disk, or fetched again.

Bytes go past the page cache (``O_DIRECT``) where the file system can: the copy into it takes more processor
time than all else, and on a Spark its pages take memory from the model.
"""

from __future__ import annotations

import errno
import fcntl
import json
import mmap
import os
import threading
import time
import zlib
from typing import Dict, Iterable, List, NamedTuple, Optional, Set

from .files import BLOCK, Block, File, StoppedError, TransferError, blocks_of
from .hashing import FileHash, release
from .ledger import sync_folder, write_whole

ALIGN = 4096
"""Offsets, lengths and memory of direct writes are multiples of it: of the blocks of any disk."""
WRITE = 2 << 20
"""Bytes written at a time: smaller direct writes wait for the disk more often."""
REFUSED = (errno.EINVAL, errno.EOPNOTSUPP)
"""How a file system says that it has no direct writes, or none like this one."""
FRESH = 16 << 20
"""Bytes that wait for the hash in memory, and how far ahead of it they may be."""
NEAR = 256 << 20
"""Bytes by which the hash may be behind a stream that waits for it."""
FRESH_WAIT = 1.0
"""Seconds for which it does, at most, with each chunk."""


def _line(index: int) -> bytes:
    digits = b"%08d" % index
    return b"%s %08x\n" % (digits, zlib.crc32(digits))


def read_list(path: str, header: bytes, count: int) -> Set[int]:
    """Durable blocks of a list with this header; empty when the list is of another file or is not there."""
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")
    except OSError:
        return set()
    if lines[0] + b"\n" != header:
        return set()
    known = {_line(index)[:-1]: index for index in range(count)}
    return {known[line] for line in lines[1:-1] if line in known}


def is_locked(path: str) -> bool:
    """A transfer writes this staging file now."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def page_buffer(size: int) -> memoryview:
    """Memory at the beginning of a page, as direct writes need it."""
    return memoryview(mmap.mmap(-1, size))


class Buffers:
    """Memory that streams read into and the hash gives back. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._free: List[memoryview] = []
        self._lock = threading.Lock()

    def take(self) -> Optional[memoryview]:
        """One of WRITE bytes; None when all are in use."""
        with self._lock:
            if self._free:
                return self._free.pop()
            if not self._left:
                return None
            self._left -= 1
        return page_buffer(WRITE)

    def give_back(self, buffer: memoryview) -> None:
        with self._lock:
            self._free.append(buffer)


class Fresh(NamedTuple):
    """Bytes in memory that are in the file already."""

    buffer: memoryview
    length: int
    pool: Buffers

    def give_back(self) -> None:
        self.pool.give_back(self.buffer)


class Staging:
    """One wanted file in the making, in the folder of its final place. Thread-safe."""

    def __init__(self, target: str, file: File, block_size: int = BLOCK) -> None:
        folder = os.path.dirname(target)
        self.file = file
        self.target = target
        self.partial = os.path.join(folder, ".sparkop-%s.partial" % file.key)
        self.list = os.path.join(folder, ".sparkop-%s.blocks" % file.key)
        self.blocks: List[Block] = []
        """Cut when it is opened."""
        self._size = block_size
        self._changed = threading.Condition()
        self._written: Set[int] = set()
        self._durable: Set[int] = set()
        self._fresh: Dict[int, Fresh] = {}
        """Offset -> bytes that were just written and wait for the hash."""
        self._hashed = 0
        """Bytes that the hash has seen."""
        self._starved = False
        """The hash waits for bytes."""
        self._handle = -1
        self._direct_handle = -1
        self._direct = False
        """The file system has taken every direct write so far."""
        self._list_handle = -1

    def open(self) -> None:
        """Take up what an earlier run left, or begin. Raises OSError, TransferError when another works on it.

        Two clusters may share a folder: only one transfer at a time writes a file.
        """
        self.blocks = blocks_of(self.file, self._size)
        self._handle = self._lock()
        self._open_direct()
        status = os.fstat(self._handle)
        header = self._header(status.st_ino)
        found = set()
        if status.st_size == self.file.size:
            found = read_list(self.list, header, len(self.blocks))
        if not found:
            os.ftruncate(self._handle, 0)
            os.ftruncate(self._handle, self.file.size)
        # Good lines only, so that what is appended never joins a torn one. In one step: parts may have been
        # cut short for the blocks of this list.
        write_whole(self.list, header + b"".join(_line(index) for index in sorted(found)))
        self._list_handle = os.open(self.list, os.O_WRONLY | os.O_APPEND)
        self._written = set(found)
        self._durable = set(found)

    def _lock(self) -> int:
        """The open staging file, whose lock this process holds until it closes it."""
        while True:
            handle = os.open(self.partial, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(handle)
                raise TransferError(
                    "busy", "another transfer on this node fetches %s into the same folder" % self.file.path,
                    "wait for it to end and run the same command again: what it has fetched is used",
                ) from None  # fmt: skip
            try:
                if os.path.samestat(os.fstat(handle), os.stat(self.partial)):
                    return handle
            except FileNotFoundError:
                pass
            os.close(handle)  # the other one has just given it its name

    def _open_direct(self) -> None:
        """A second way to the same file, past the page cache, where the file system has one."""
        try:
            self._direct_handle = os.open(self.partial, os.O_RDWR | os.O_DIRECT)
        except OSError as error:
            if error.errno not in REFUSED:
                raise
        self._direct = self._direct_handle >= 0

    def durable(self, inode: int) -> Set[int]:
        """What is durable in the staging file with this inode, whoever works on it."""
        self.blocks = self.blocks or blocks_of(self.file, self._size)
        return read_list(self.list, self._header(inode), len(self.blocks))

    def _header(self, inode: int) -> bytes:
        name, value = self.file.wanted
        fields = {"version": 1, "hash": name, "value": value, "size": self.file.size, "block": self._size}
        return json.dumps(dict(fields, inode=inode), sort_keys=True).encode() + b"\n"

    def missing(self) -> List[Block]:
        """Blocks that are not written yet, in order."""
        with self._changed:
            return [block for block in self.blocks if block.index not in self._written]

    def durable_bytes(self) -> int:
        """Bytes in durable blocks."""
        with self._changed:
            return sum(self.blocks[index].length for index in self._durable)

    def write(self, offset: int, data: memoryview) -> None:
        """Put bytes at their place. Raises OSError (a full disk).

        From memory of `page_buffer`, at an offset that is a multiple of ALIGN, they go past the page cache,
        but for what is less than ALIGN at their end.
        """
        while len(data):
            count = self._write_direct(offset, data) or os.pwrite(self._handle, data, offset)
            offset += count
            data = data[count:]

    def _write_direct(self, offset: int, data: memoryview) -> int:
        """Bytes that were put there past the page cache; 0 when that can't be."""
        whole = self._whole_pages(offset, len(data))
        try:
            return os.pwrite(self._direct_handle, data[:whole], offset) if whole else 0
        except OSError as error:
            if error.errno not in REFUSED:
                raise
        self._direct = False
        return 0

    def _whole_pages(self, offset: int, length: int) -> int:
        """How much of it can be written or read past the page cache."""
        return length - length % ALIGN if self._direct and not offset % ALIGN else 0

    def _read(self, offset: int, buffer: memoryview) -> int:
        """Bytes that were written, into memory of `page_buffer`; 0 at the end of the file.

        The kernel keeps both ways to a file coherent.
        """
        limit = -offset % ALIGN or len(buffer)
        whole = self._whole_pages(offset, len(buffer))
        try:
            if whole:
                return os.preadv(self._direct_handle, [buffer[:whole]], offset)
        except OSError as error:
            if error.errno not in REFUSED:
                raise
        return os.preadv(self._handle, [buffer[:limit]], offset)

    def hand_over(self, offset: int, buffer: memoryview, count: int, pool: Buffers, *, alone: bool) -> bool:
        """Let the hash have bytes that were just written, so that it need not read them back.

        False: it has no use for them, the buffer stays the caller's. Bytes must not be written twice.
        ``alone``: no other stream works. Then it waits for a hash that has fallen behind: one that
        has to read back what is written would never catch up.
        """
        deadline = time.monotonic() + FRESH_WAIT
        with self._changed:
            while not self._starved and FRESH <= self._ahead(offset) < NEAR:
                if not alone or time.monotonic() > deadline:
                    return False
                self._changed.wait(0.1)
            if not 0 <= self._ahead(offset) < FRESH:
                return False
            self._fresh[offset] = Fresh(buffer, count, pool)
            self._changed.notify_all()
            return True

    def _ahead(self, offset: int) -> int:
        """Bytes between the hash and these."""
        return offset - self._hashed

    def written(self, index: int) -> None:
        """All bytes of the block were given to `write`."""
        with self._changed:
            self._written.add(index)
            self._changed.notify_all()

    def commit(self, indexes: Iterable[int]) -> None:
        """Make blocks durable: the bytes first, then their lines."""
        os.fdatasync(self._handle)
        os.write(self._list_handle, b"".join(_line(index) for index in indexes))
        os.fdatasync(self._list_handle)
        with self._changed:
            self._durable.update(indexes)
            self._changed.notify_all()

    def hash_along(self, stop: threading.Event) -> FileHash:
        """Hash the file in order: what is handed over, and for the rest each block once it is written.

        Raises StoppedError.
        """
        result = FileHash(self.file)
        buffer = page_buffer(WRITE)
        for block in self.blocks:
            offset, end = block.offset, block.offset + block.length
            while offset < end:
                fresh = self._next_fresh(offset, block.index, stop)
                if fresh is not None:
                    result.update(fresh.buffer[: fresh.length])
                    fresh.give_back()
                    offset += fresh.length
                    continue
                count = self._read(offset, buffer[: end - offset])
                if not count:
                    raise TransferError("content", "%s was cut short while it was fetched" % self.file.path)
                result.update(buffer[:count])
                offset += count
        return result

    def _next_fresh(self, offset: int, index: int, stop: threading.Event) -> "Optional[Fresh]":
        """Bytes from this offset on; None when they are to be read from the file. Raises StoppedError."""
        with self._changed:
            self._hashed = offset
            for passed in [start for start in self._fresh if start < offset]:
                self._fresh.pop(passed).give_back()
            self._changed.notify_all()
            while offset not in self._fresh and index not in self._written:
                if stop.is_set():
                    raise StoppedError
                self._starved = True
                self._changed.wait(0.5)
            self._starved = False
            return self._fresh.pop(offset, None)

    def wait_durable(self, stop: threading.Event) -> None:
        """Until every block is durable. Raises StoppedError."""
        for block in self.blocks:
            self._wait(block.index, self._durable, stop)

    def _wait(self, index: int, among: Set[int], stop: threading.Event) -> None:
        with self._changed:
            while index not in among:
                if stop.is_set():
                    raise StoppedError
                self._changed.wait(0.5)

    def publish(self) -> os.stat_result:
        """Give the file its name; returns its stat. All blocks are durable and the hash agreed."""
        os.fsync(self._handle)
        release(self._handle)
        os.replace(self.partial, self.target)
        folder = os.path.dirname(self.target)
        sync_folder(folder)
        os.unlink(self.list)
        sync_folder(folder)
        return os.fstat(self._handle)

    def discard(self) -> None:
        """Wrong bytes: nothing of them is used again."""
        os.unlink(self.list)
        os.unlink(self.partial)

    def close(self) -> None:
        for handle in (self._handle, self._direct_handle, self._list_handle):
            if handle >= 0:
                os.close(handle)
        self._handle = self._direct_handle = self._list_handle = -1
