"""Staging files are written past the page cache where the file system can, and are right where it can't."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkop.node.transfer.active import Active
from sparkop.node.transfer.blocks import ALIGN, WRITE, Staging, page_buffer
from sparkop.node.transfer.files import Block, File, Piece
from sparkop.node.transfer.place import Place
from sparkop.node.transfer.rebuild import take_parts
from tests.node.hub_standin import Hub, running, sha256
from tests.node.transfer_world import Node

MIB = 1 << 20
LARGE = random.Random(3).randbytes(25 * MIB + 4097)


def is_direct(handle: int) -> bool:
    return bool(fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_DIRECT)


def resident(path: Path) -> int:
    """Bytes of a file in the page cache."""
    size = path.stat().st_size
    with path.open("rb") as file, closing(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)) as mapped:
        pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(mapped)
        done = ctypes.CDLL(None, use_errno=True).mincore(ctypes.byref(start), ctypes.c_size_t(size), pages)
        del start
        assert done == 0, os.strerror(ctypes.get_errno())
    return sum(page & 1 for page in pages) * mmap.PAGESIZE


def bypasses(folder: Path) -> bool:
    """Whether a file system has direct writes, and they leave nothing in the page cache (tmpfs: they do)."""
    path = folder / "probe"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
    except OSError:
        return False
    try:
        os.pwrite(handle, page_buffer(ALIGN), 0)
        return resident(path) == 0
    except OSError:
        return False
    finally:
        os.close(handle)
        path.unlink()


@contextmanager
def refused_at_open() -> Iterator[None]:
    """A file system that does not know O_DIRECT."""
    real = os.open

    def opened(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        return real(path, flags, *more, **named)

    with mock.patch.object(os, "open", opened):
        yield


@contextmanager
def pwrites(instead: Callable[[Callable[..., int], int, memoryview, int], int]) -> Iterator[None]:
    """``instead(real, handle, data, offset)`` for each write at a place."""
    real = os.pwrite

    def pwrite(handle: int, data: memoryview, offset: int) -> int:
        return instead(real, handle, data, offset)

    with mock.patch.object(os, "pwrite", pwrite):
        yield


@contextmanager
def refused_at_writing() -> Iterator[None]:
    """One that takes the flag and then no write."""

    def refuse(real: Callable[..., int], handle: int, data: memoryview, offset: int) -> int:
        if is_direct(handle):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(handle, data, offset)

    with pwrites(refuse):
        yield


@contextmanager
def short() -> Iterator[None]:
    """One that takes less than it is given, now and then not a whole page."""
    dice = random.Random(5)

    def some(real: Callable[..., int], handle: int, data: memoryview, offset: int) -> int:
        unit = 512 if is_direct(handle) else 1
        return real(handle, data[: unit * dice.randint(1, max(1, len(data) // unit))], offset)

    with pwrites(some):
        yield


@contextmanager
def as_it_is() -> Iterator[None]:
    yield


WAYS = pytest.mark.parametrize("way", [as_it_is, refused_at_open, refused_at_writing, short])


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running(Hub("org/name", "c" * 40, {"model.bin": LARGE})) as hub:
        yield hub


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "n")


def put(staging: Staging, offset: int, data: bytes) -> None:
    """As a stream does: from memory that begins at a page."""
    buffer = page_buffer(len(data))
    buffer[:] = data
    staging.write(offset, buffer)


@WAYS
@settings(deadline=None, max_examples=25)
@given(
    size=st.integers(1, 9 * ALIGN + 7),
    cuts=st.lists(st.one_of(st.integers(1, 10 * ALIGN), st.integers(1, 9).map(lambda n: n * ALIGN))),
    dice=st.randoms(use_true_random=False),
)
def test_bytes_in_any_portions_and_order_are_the_file(
    tmp_path_factory: pytest.TempPathFactory, way: Any, size: int, cuts: list[int], dice: random.Random
) -> None:
    data = LARGE[:size]
    target = tmp_path_factory.mktemp("disk") / "x"
    ends = sorted({0, size, *(cut for cut in cuts if cut < size)})
    portions = list(pairwise(ends))
    dice.shuffle(portions)
    with way(), closing(Staging(str(target), File("x", size, sha256(data)), 2 * ALIGN)) as staging:
        staging.open()
        for start, end in portions:
            put(staging, start, data[start:end])
        for block in staging.blocks:
            staging.written(block.index)
        staging.commit([block.index for block in staging.blocks])
        assert staging.hash_along(threading.Event()).matches()
        staging.publish()
    assert target.read_bytes() == data


@WAYS
@pytest.mark.parametrize("streams", [1, 3])
def test_answers_that_break_off_at_odd_places_are_carried_on_there(
    node: Node, hub: Hub, way: Any, streams: int
) -> None:
    """Nothing comes twice: what had come before an answer broke off is in the file."""
    hub.faults.cut = 4
    with way():
        status = node.run(node.job(hub.job_files(), hub, streams=streams))
    assert (status["phase"], status["error"]) == ("done", None)
    assert (node.weights / "model.bin").read_bytes() == LARGE
    assert status["bytes"]["received"] == len(LARGE)
    assert status["bytes"]["discarded"] == 0


@WAYS
@pytest.mark.parametrize("keep", [True, False])
def test_parts_of_odd_sizes_are_put_together(tmp_path: Path, way: Any, keep: bool) -> None:
    ends = (0, 9 * MIB + 1, 17 * MIB + 4095, len(LARGE))
    parts = []
    for number, (start, end) in enumerate(pairwise(ends)):
        parts.append(Piece(f"x.part{number:02}", end - start, sha256(LARGE[start:end])))
        (tmp_path / parts[-1].path).write_bytes(LARGE[start:end])
    file = File("x", len(LARGE), None, None, tuple(parts))
    with way(), closing(Staging(str(tmp_path / "x"), file)) as staging:
        staging.open()
        take_parts(staging, Place(str(tmp_path), None), lambda *_: True, keep=keep, stop=threading.Event())
        assert staging.missing() == []
        assert staging.hash_along(threading.Event()).matches()
        staging.publish()
    assert (tmp_path / "x").read_bytes() == LARGE


def test_what_is_staged_is_not_in_the_page_cache(tmp_path: Path) -> None:
    """On a Spark it would take memory from the model. Only what is less than a page goes through it."""
    size = 4 * WRITE + 100
    with closing(Staging(str(tmp_path / "x"), File("x", size, sha256(LARGE[:size])))) as staging:
        staging.open()
        for offset in range(0, size, WRITE):
            put(staging, offset, LARGE[offset : min(offset + WRITE, size)])
        staging.commit([block.index for block in staging.blocks])
        there = resident(Path(staging.partial))
    assert there == (mmap.PAGESIZE if bypasses(tmp_path) else -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)


@pytest.mark.parametrize("cut", [0, 3])
def test_a_stream_gives_whole_aligned_buffers_to_the_disk(node: Node, hub: Hub, cut: int) -> None:
    """Also after an answer that broke off: all but the ends of what came goes past the page cache."""
    hub.faults.cut = cut
    past, through = [], []

    def watch(real: Callable[..., int], handle: int, data: memoryview, offset: int) -> int:
        count = real(handle, data, offset)
        (past if is_direct(handle) else through).append(count)
        return count

    node.weights.mkdir(parents=True)
    with pwrites(watch):
        assert node.run(node.job(hub.job_files(), hub, streams=1))["phase"] == "done"
    if not bypasses(node.weights):
        assert sum(past) + sum(through) == len(LARGE)
        return
    assert sum(through) <= (1 + 2 * cut) * ALIGN
    assert sum(past) == len(LARGE) - sum(through)
    assert len(past) <= -(-len(LARGE) // WRITE) + 3 * (1 + cut), "large ones"


def test_a_block_is_given_to_others_when_what_came_of_it_is_written(
    node: Node, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be made durable when they have written the rest."""
    hub.faults.cut = 4
    written: list[tuple[int, int]] = []
    given: list[int] = []
    real = Active.give_back

    def slow(real: Callable[..., int], handle: int, data: memoryview, offset: int) -> int:
        time.sleep(0.02)
        count = real(handle, data, offset)
        written.append((offset, count))
        return count

    def give_back(active: Active, blocks: Sequence[Block]) -> None:
        for block in blocks:
            inside = range(block.offset, block.offset + block.length)
            there = sum(count for offset, count in written if offset in inside)
            assert there == active.begun.get(block.index, 0)
            given.append(there)
        real(active, blocks)

    monkeypatch.setattr(Active, "give_back", give_back)
    with pwrites(slow):
        status = node.run(node.job(hub.job_files(), hub, streams=1))
    assert (status["phase"], status["error"]) == ("done", None)
    assert any(given), "a block had begun"
