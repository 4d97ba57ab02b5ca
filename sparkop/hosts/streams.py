"""Streams of a node that another thread can end: who follows for days must be able to leave."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Closable(Protocol):
    """What a stream reads from."""

    def close(self) -> None: ...


Opened = Callable[[Closable], None]
"""Told by a producer of the source that it has opened."""


class Stream(Generic[T]):
    """Items as they come. ``close`` ends it, also while another thread waits for the next item."""

    def __init__(self, produce: Callable[[Opened], Iterator[T]]) -> None:
        self._closed = False
        self._source: Closable | None = None
        self._lock = threading.Lock()
        self._items = produce(self._opened)

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._closed:
            raise StopIteration
        try:
            return next(self._items)
        except StopIteration:
            raise
        except Exception:
            if self._closed:  # the source was taken from under it
                raise StopIteration from None
            raise

    def __enter__(self) -> Stream[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it; closing twice is no fault."""
        with self._lock:
            self._closed = True
            source, self._source = self._source, None
        if source is not None:
            with suppress(Exception):  # it may have ended by itself meanwhile
                source.close()

    @property
    def opened(self) -> bool:
        """Whether its source has answered: what happens from now on is in it."""
        source = self._source
        return source.opened if isinstance(source, Stream) else source is not None

    def map(self, change: Callable[[T], R]) -> Stream[R]:
        """The same stream with each item changed; closing either closes both."""

        def produce(opened: Opened) -> Iterator[R]:
            opened(self)
            return (change(item) for item in self)

        return Stream(produce)

    def _opened(self, source: Closable) -> None:
        with self._lock:
            if not self._closed:
                self._source = source
                return
        source.close()


def lines_of(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines of a stream that comes in parts."""
    rest = b""
    for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest
