"""A stream that one thread reads and another ends."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator

import pytest

from sparkop.hosts.streams import Opened, Stream


class Source:
    """Gives what is put into it; waits for more until it is closed, and breaks then as a socket does."""

    def __init__(self) -> None:
        self.items: queue.Queue[int | None] = queue.Queue()
        self.closed = 0

    def produce(self, opened: Opened) -> Iterator[int]:
        opened(self)
        while (item := self.items.get(timeout=10)) is not None:
            yield item
        raise OSError("the source was closed")

    def close(self) -> None:
        self.closed += 1
        self.items.put(None)


def test_closing_ends_a_reader_that_waits() -> None:
    source = Source()
    got: list[int] = []
    stream = Stream(source.produce).map(lambda number: number * 2)
    source.items.put(4)
    reader = threading.Thread(target=lambda: [got.append(item) for item in stream], daemon=True)
    reader.start()
    end = time.monotonic() + 5
    while not got and time.monotonic() < end:
        time.sleep(0.01)
    stream.close()
    reader.join(timeout=5)
    assert not reader.is_alive()
    assert got == [8]
    assert source.closed == 1
    stream.close()
    assert source.closed == 1


def test_a_stream_that_was_closed_before_it_opened_closes_its_source() -> None:
    source = Source()
    stream = Stream(source.produce)
    stream.close()
    assert list(stream) == []


def test_a_failure_that_nobody_asked_for_is_told() -> None:
    source = Source()
    source.items.put(None)
    with Stream(source.produce) as stream, pytest.raises(OSError, match="was closed"):
        list(stream)
    assert source.closed == 1
