"""Fetches missing files by parallel ranges.

Streams take runs of blocks, a committer makes them durable, each file is hashed while it arrives and gets its
name when the hash agrees.
"""

from __future__ import annotations

import math
import os
import queue
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from typing import Callable, Deque, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import http
from .active import Active
from .blocks import ALIGN, WRITE, Buffers, Staging, page_buffer
from .files import Block, File, Job, StoppedError, TransferError, as_transfer_error
from .http import Body, Client, ExpiredError, RetryError, SourceEndedError, WrongSizeError
from .sources import SLOW, Crew, Limiter, Pace, Source
from .status import Status

SPAN = 16
"""Blocks asked for by one request, at most."""
UNCOMMITTED = 6
"""Blocks that one stream may be ahead of the disk, the one it reads included: 48 MiB are lost by a kill."""
QUEUED = 3
"""Buffers that a stream may be ahead of its own writes: a disk takes a moment longer now and then."""
TOGETHER = 0.05
"""Seconds for which a block waits for others, to be made durable with them: writes stand still meanwhile."""
AHEAD = 24
"""Buffers that may wait in memory for the hashes of all files."""
ACTIVE = 4
"""Files of several blocks that are open at a time, beside those of one block."""
TRIES = 2
"""Times a file may arrive with wrong bytes before that is an error."""
PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before the next try, growing with failures in a row; a server's Retry-After wins."""
LONGEST_PAUSE = 300.0
WRONG = "the source sends other bytes than were published"
WRONG_WHOLE = "put together from its parts, it is not what the repository's list of hashes says"
ANOTHER = (
    "a proxy or a disk on the way changes them: mend it, or take them from elsewhere (weights.endpoint, "
    "weights.downloadOn), then run the same command again"
)
TOLD_AFTER = 10.0
"""Seconds without a byte, gone by or asked for by the source, after which is told what it answers."""
LACKING = "; when it stays so, a part is missing in the repository or its list is wrong: tell its owner"
SOURCE_GRACE = 10.0
"""Seconds for which a source may say that its transfer has ended: a new one may be about to start there."""
PENDING_GRACE = 60.0
"""The same when no transfer of it has failed: who follows it needs time to notice, or to start it."""


class _Work(NamedTuple):
    active: Active
    blocks: List[Block]


class _Desk:
    """What a stream works with: a buffer that it reads into while others are written, and how far it may be
    ahead of the disk."""

    def __init__(self, writer: ThreadPoolExecutor) -> None:
        self.buffer = page_buffer(WRITE)
        self.budget = threading.Semaphore(UNCOMMITTED)
        self._writer = writer
        self._free = [page_buffer(WRITE) for _ in range(QUEUED)]
        self._writing: "Deque[Future[memoryview]]" = deque()

    def put(self, write: Callable[[memoryview], memoryview]) -> None:
        """Have the buffer written; ``write`` returns one that is free then. Raises what one before did."""
        self._writing.append(self._writer.submit(write, self.buffer))
        if not self._free:
            self._free.append(self._writing.popleft().result())
        self.buffer = self._free.pop()

    def settle(self) -> None:
        """Until nothing is being written. Raises OSError when that failed."""
        while self._writing:
            self._free.append(self._writing.popleft().result())


class Fetch:
    """One run over a list of files.

    ``place(file)`` is the staging of a file; ``done(file, staging, hashes)`` gives a verified one its name.
    """

    def __init__(
        self, job: Job, status: Status, stop: threading.Event, place: Callable[[File], Staging],
        done: Callable[[File, Staging, Mapping[str, str]], None],
    ) -> None:  # fmt: skip
        self._job = job
        self._status = status
        self._stop = stop
        self._place = place
        self._done = done
        self._sources = [Source(document, job.secrets) for document in job.sources]
        self._changed = threading.Condition()
        self._queue: Deque[File] = deque()
        self._active: List[Active] = []
        self._tries: Dict[str, int] = {}
        self._wrong: Dict[str, str] = {}
        """Files of this run that no source has as published: what else is bad on the node is not its word."""
        self._error: Optional[TransferError] = None
        self._arrived = 0
        self._alive_at = time.monotonic()
        self._ended_at: Optional[float] = None
        """Since when the source says that it has given up."""
        self._limiter = Limiter(job.rate)
        self._buffers = Buffers(AHEAD)
        through_ssh = any(source.command for source in self._sources)
        cores = os.cpu_count() or 1
        most = (
            min(job.streams, max(1, cores // 2)) if through_ssh else job.streams
        )  # ssh takes one, we the other
        self._crew = Crew(most, slow=math.inf if through_ssh else SLOW)
        self._commits: "queue.Queue[Optional[Tuple[Active, Block, threading.Semaphore]]]" = queue.Queue()
        self._finishers: List[threading.Thread] = []

    def run(self, files: Sequence[File]) -> None:
        """Fetch all. Raises TransferError, StoppedError."""
        if not files:
            return
        if not self._sources:
            raise TransferError("job", "files are missing and the job names no source")
        self._queue.extend(files)
        streams = [
            threading.Thread(target=self._guard, args=(self._stream, number))
            for number in range(self._job.streams)
        ]
        committer = threading.Thread(target=self._guard, args=(self._commit_on,))
        for thread in [committer, *streams]:
            thread.start()
        for thread in streams:
            thread.join()
        for thread in self._finishers:
            thread.join()
        self._commits.put(None)
        committer.join()
        for active in self._active:
            active.staging.close()
        if self._error is not None:
            raise self._error
        if self._stop.is_set():
            raise StoppedError
        if self._wrong:
            names = ", ".join(sorted(self._wrong)[:3])
            remedy = ANOTHER + LACKING if WRONG_WHOLE in self._wrong.values() else ANOTHER
            raise TransferError("content", "wrong bytes came twice for %s" % names, remedy)

    def _guard(self, target: Callable[..., None], *arguments: object) -> None:
        """Run a thread's work; its failure ends the job."""
        try:
            target(*arguments)
        except StoppedError:
            pass
        except TransferError as error:
            self._fail(error)
        except OSError as error:
            self._fail(as_transfer_error(error, self._job.directory))
        except BaseException as error:
            self._fail(TransferError("job", "fault in the transfer program: %r" % error))
            raise

    def _fail(self, error: TransferError) -> None:
        with self._changed:
            self._error = self._error or error
            self._stop.set()
            self._changed.notify_all()

    # What is handed out

    def _next(self, number: int) -> Optional[_Work]:
        """Blocks for a stream; None when everything is fetched."""
        with self._changed:
            while not self._stop.is_set():
                if number >= self._crew.size and (self._queue or self._active):
                    self._changed.wait(0.5)
                    self._crew.tune(self._arrived)  # also when nothing comes at all
                    continue
                for active in self._active:
                    blocks = active.take(self._span(active))
                    if blocks:
                        return _Work(active, blocks)
                if self._may_open():
                    self._open(self._queue.popleft())
                elif not self._queue and not self._active:
                    return None
                else:
                    self._changed.wait(0.5)
            raise StoppedError

    def _span(self, active: Active) -> int:
        share = -(-len(active.pending) // (2 * self._crew.expected))
        return max(1, min(SPAN, share))

    def _may_open(self) -> bool:
        large = sum(not active.single for active in self._active)
        return bool(self._queue) and large < ACTIVE and len(self._active) < ACTIVE + 2 * self._job.streams

    def _open(self, file: File) -> None:
        staging = self._place(file)
        staging.open()
        active = Active(staging)
        self._active.append(active)
        self._status.at(file.path, file.size, active.durable)
        thread = threading.Thread(target=self._guard, args=(self._finish, active))
        self._finishers.append(thread)
        thread.start()

    # One stream

    def _stream(self, number: int) -> None:
        with ThreadPoolExecutor(1) as writer:
            self._work(number, _Desk(writer))

    def _work(self, number: int, desk: _Desk) -> None:
        failures, expired = 0, False
        turn = number
        client = self._sources[turn % len(self._sources)].client()
        try:
            while True:
                work = self._next(number)
                if work is None:
                    return
                which = turn % len(self._sources)
                try:
                    self._fetch(number, which, client, work, desk)
                    failures, expired = 0, False
                    continue
                except RetryError as again:
                    renewing = isinstance(again, ExpiredError) and not expired
                    expired = isinstance(again, ExpiredError)
                    if not renewing:  # else the next request asks for a new address, at once
                        self._check_patience(again)
                        if self._may_stay_so(again):
                            self._status.note("%s; asked again for %d s" % (again, self._job.patience))
                        pause = PAUSES[min(failures, len(PAUSES) - 1)]
                        self._pause(min(pause if again.after is None else again.after, LONGEST_PAUSE))
                failures += 1
                turn += 1
                client.close()
                client = self._sources[turn % len(self._sources)].client()
        finally:
            client.close()

    def _pause(self, seconds: float) -> None:
        """Before the next try; over at once when the others have fetched all."""
        until = time.monotonic() + seconds
        with self._changed:
            while (self._queue or self._active) and not self._stop.is_set():
                left = until - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(min(0.5, left))

    def _may_stay_so(self, again: RetryError) -> bool:
        """What is told while it is asked again: standing still for a quarter of an hour needs a reason."""
        if isinstance(again, (ExpiredError, WrongSizeError)):
            return True
        still = max(time.monotonic() - self._alive_at, again.after or 0.0) > TOLD_AFTER
        return still and not isinstance(again, SourceEndedError)

    def _check_patience(self, again: RetryError) -> None:
        """Raise TransferError when there is no hope any more."""
        self._status.waits(again.alive)
        if isinstance(again, SourceEndedError):
            self._ended_at = self._ended_at or time.monotonic()
            grace = PENDING_GRACE if again.pending else SOURCE_GRACE
            if time.monotonic() - self._ended_at > grace:
                raise TransferError(
                    "source", str(again),
                    "see to that node first, then run the same command again: what is here is kept",
                )  # fmt: skip
        elif again.alive:
            self._ended_at = None
        silent = time.monotonic() - self._alive_at
        if silent > self._job.patience:
            if isinstance(again, ExpiredError):
                raise TransferError(
                    "network", "the hub's store refuses each new address that the hub gives: %s" % again,
                    "see whether a proxy or a firewall on the node's way there answers in its place, then "
                    "run the same command again: what is here is kept",
                )  # fmt: skip
            if isinstance(again, WrongSizeError):
                raise TransferError("content", str(again))
            raise TransferError(
                "network", "no byte came for %d s; last: %s" % (silent, again),
                "check the network and the source, then run the same command again: what is here is kept",
            )  # fmt: skip

    def _fetch(self, number: int, which: int, client: Client, work: _Work, desk: _Desk) -> None:
        """Get the blocks of one piece of work; what is not got is given back."""
        active, needed = work.active, deque(work.blocks)
        piece = needed[0].piece
        source = self._sources[which]
        try:
            with self._changed:
                key = (which, piece if source.by_piece else 0)
                reader = active.readers.get(key) or source.reader(active.file, piece)
                active.readers[key] = reader
            shift = 0 if source.by_piece else needed[0].offset - needed[0].piece_offset
            begun = active.begun.get(needed[0].index, 0)
            start = needed[0].piece_offset + shift + begun
            length = sum(block.length for block in needed) - begun
            try:
                url, body = reader.open(client, start, length)
            except RetryError as again:
                if again.alive:
                    self._alive_at = time.monotonic()
                raise
            except (OSError, HTTPException) as error:
                raise RetryError("%s: %r" % (http.place_of(reader.url), error)) from None
            try:
                whole = body.start != start or not reader.ranges
                if whole and not self._read_whole(number, active, piece, needed):
                    return
                self._receive(active, body, shift, needed, desk)
            finally:
                body.close()
                if not body.whole:
                    client.drop(url)
        finally:
            try:
                desk.settle()  # before another stream takes the rest of a block
            finally:
                with self._changed:
                    active.give_back(list(needed))
                    if active.whole.get(piece) == number:
                        del active.whole[piece]
                    self._changed.notify_all()

    def _read_whole(self, number: int, active: Active, piece: int, needed: Deque[Block]) -> bool:
        """The server sends a piece from its beginning only: one stream takes all of it, the others let go."""
        with self._changed:
            if active.whole.setdefault(piece, number) != number:
                return False
            merged = sorted([*needed, *active.take_piece(piece, 0)], key=lambda block: block.index)
            needed.clear()
            needed.extend(merged)
            return True

    def _receive(self, active: Active, body: Body, shift: int, needed: Deque[Block], desk: _Desk) -> None:
        """Write what comes to its blocks. Ends when they are there or the answer ends where it said."""
        position = body.start - shift
        pace = Pace(body.whose)
        while needed:
            block = needed[0]
            while position < block.piece_offset + active.begun.get(block.index, 0):
                begin = block.piece_offset + active.begun.get(block.index, 0)
                count = self._read(body, desk.buffer[: begin - position], pace)
                if not count:
                    return
                self._status.received(count, discarded=True)
                position += count
            self._claim(desk.budget)
            try:
                while active.begun.get(block.index, 0) < block.length:
                    if not self._gather(active, block, body, desk, pace):
                        return
            finally:
                if active.begun.get(block.index, 0) < block.length:
                    desk.budget.release()
            position = block.piece_offset + block.length
            needed.popleft()

    def _gather(self, active: Active, block: Block, body: Body, desk: _Desk, pace: Pace) -> bool:
        """As much of a block as is written at once; what had come when the answer breaks off is written too.

        False: the answer has ended.
        """
        begun = active.begun.get(block.index, 0)
        offset = block.offset + begun
        wanted = min(block.length - begun, -offset % ALIGN or WRITE)
        filled = 0
        try:
            while filled < wanted:
                count = self._read(body, desk.buffer[filled : min(wanted, filled + pace.portion)], pace)
                if not count:
                    return False
                self._status.received(count)
                filled += count
            return True
        finally:
            if filled:
                active.begun[block.index] = begun + filled
                desk.put(partial(self._put, active, block, desk.budget, begun, filled))

    def _put(
        self, active: Active, block: Block, budget: threading.Semaphore, begun: int, count: int,
        buffer: memoryview,
    ) -> memoryview:  # fmt: skip
        """Write what lies in a buffer, let the hash have it while it is in memory; returns a free one."""
        staging, offset = active.staging, block.offset + begun
        staging.write(offset, buffer[:count])
        spare = self._buffers.take()
        if spare is not None:
            alone = self._crew.size == 1
            if staging.hand_over(offset, buffer, count, self._buffers, alone=alone):
                buffer = spare
            else:
                self._buffers.give_back(spare)
        if begun + count == block.length:
            staging.written(block.index)
            self._commits.put((active, block, budget))
        return buffer

    def _claim(self, budget: threading.Semaphore) -> None:
        while not budget.acquire(timeout=0.5):
            if self._stop.is_set():
                raise StoppedError

    def _read(self, body: Body, buffer: memoryview, pace: "Pace") -> int:
        count = None
        while count is None:
            if self._stop.is_set():
                raise StoppedError
            count = body.read_into(buffer)
        self._limiter.take(count, self._stop)
        self._ended_at = None
        with self._changed:
            self._arrived += count
            if self._crew.tune(self._arrived):
                self._changed.notify_all()
        self._alive_at = pace.check(count, limited=bool(self._job.rate))
        return count

    # Durable, verified, in place

    def _commit_on(self) -> None:
        """Make written blocks durable, all that wait for it at once."""
        while True:
            batch = [self._commits.get()]
            until = time.monotonic() + TOGETHER
            with suppress(queue.Empty):
                while batch[-1] is not None:
                    left = until - time.monotonic() if len(batch) < UNCOMMITTED // 2 else 0.0
                    batch.append(self._commits.get(left > 0, max(left, 0.0)))
            grouped: Dict[int, Tuple[Active, List[Block]]] = {}
            for item in batch:
                if item is not None:
                    grouped.setdefault(id(item[0]), (item[0], []))[1].append(item[1])
            for active, blocks in grouped.values():
                active.staging.commit([block.index for block in blocks])
                active.durable += sum(block.length for block in blocks)
                self._status.at(active.file.path, active.file.size, active.durable)
            for item in batch:
                if item is None:
                    return
                item[2].release()

    def _finish(self, active: Active) -> None:
        """Follow one file to its end: hash it as it arrives, publish it or throw it away."""
        staging, file = active.staging, active.file
        result = staging.hash_along(self._stop)
        staging.wait_durable(self._stop)
        if result.matches():
            self._done(file, staging, result.result())
            self._status.finished(file.path, file.size)
        else:
            staging.discard()
        staging.close()
        with self._changed:
            self._active.remove(active)
            if not result.matches():
                self._retry(file)
            self._changed.notify_all()

    def _retry(self, file: File) -> None:
        self._tries[file.path] = self._tries.get(file.path, 0) + 1
        if self._tries[file.path] < TRIES:
            self._status.dropped(file.path)
            self._queue.append(file)
            return
        self._wrong[file.path] = WRONG_WHOLE if file.parts and file.sha256 else WRONG
        self._status.dropped(file.path, self._wrong[file.path])
