"""Rebuilds a file from parts that lie beside it (``X.part00``, ``X.part01``, ...) without room for both.

Each part is taken from its end: a run of its blocks is copied into the staging file, made durable there, and
then the part is cut shorter by them. At every moment a byte is in at least one of the two, durable; after a
crash a part that is shorter than published is used when all that it lacks is durable in the staging file.
"""

from __future__ import annotations

import os
import threading
from typing import Callable, List, Set

from .blocks import ALIGN, WRITE, Staging, page_buffer
from .files import Block, File, StoppedError
from .hashing import release_file
from .place import Place

RUN = 4
"""Blocks that are copied before they are synced and cut off: the extra room that is needed."""

Verified = Callable[[str, File], bool]


def take_parts(
    staging: Staging, place: Place, verified: Verified, *, keep: bool, stop: threading.Event
) -> None:
    """Move what the local parts hold into the open staging file.

    ``verified(path, file)`` judges a whole part. With ``keep`` the parts are read and left alone. Raises
    OSError, StoppedError.
    """
    for number, piece in enumerate(staging.file.parts):
        path = place.part(piece)
        if path is None:
            continue
        missing = {block.index for block in staging.missing()}
        blocks = [block for block in staging.blocks if block.piece == number]
        size = os.stat(path).st_size
        if size == piece.size:
            usable = verified(path, File(piece.path, piece.size, piece.sha256))
        else:
            usable = not keep and _is_ours(blocks, missing, size)
        if usable:
            _drain(staging, path, blocks, missing, size, keep, stop)
            if not keep:
                place.remove_part(piece)


def _is_ours(blocks: List[Block], missing: Set[int], size: int) -> bool:
    """The part was cut by us: it ends at a block, and everything behind is in the staging file."""
    behind = [block for block in blocks if block.piece_offset >= size]
    return any(block.piece_offset == size for block in behind) and not missing & {
        block.index for block in behind
    }


def _drain(
    staging: Staging,
    path: str,
    blocks: List[Block],
    missing: Set[int],
    size: int,
    keep: bool,
    stop: threading.Event,
) -> None:
    todo = [block for block in blocks if block.piece_offset + block.length <= size]
    handle = os.open(path, os.O_RDONLY if keep else os.O_RDWR)
    try:
        while todo:
            if stop.is_set():
                raise StoppedError
            run, todo = todo[-RUN:], todo[:-RUN]
            fresh = [block for block in run if block.index in missing]
            for block in fresh:
                _copy(staging, handle, block)
                staging.written(block.index)
            if fresh:
                staging.commit([block.index for block in fresh])
            if not keep:
                os.ftruncate(handle, run[0].piece_offset)
                os.fsync(handle)
    finally:
        os.close(handle)
        if keep:
            release_file(path)


def _copy(staging: Staging, handle: int, block: Block) -> None:
    buffer = page_buffer(WRITE)
    done = 0
    while done < block.length:
        limit = min(block.length - done, -(block.offset + done) % ALIGN or WRITE)
        count = os.preadv(handle, [buffer[:limit]], block.piece_offset + done)
        if not count:
            raise OSError("a part became shorter while it was read")
        staging.write(block.offset + done, buffer[:count])
        done += count
