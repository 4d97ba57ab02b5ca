"""Work beside the caller that never holds it up at the end: daemon threads.

``concurrent.futures`` joins its threads when a pool or the interpreter ends, so that a second Ctrl-C would
wait for whatever a node still does.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

MOST = 64
"""Threads that work at the same time."""


class AnyOf(threading.Event):
    """Set when one of several events is, or ``asked`` says so. For ``is_set`` only: nobody may wait."""

    def __init__(self, *events: threading.Event, asked: Callable[[], bool] = lambda: False) -> None:
        super().__init__()
        self._events = events
        self._asked = asked

    def is_set(self) -> bool:
        return any(each.is_set() for each in self._events) or self._asked()


class Later(Generic[R]):
    """A call that runs in a thread of its own; what it raises is told to whoever asks for the result."""

    def __init__(self, call: Callable[[], R], name: str) -> None:
        self._result: R
        self._error: BaseException | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, args=(call,), daemon=True, name=name).start()

    def _run(self, call: Callable[[], R]) -> None:
        try:
            self._result = call()
        except BaseException as error:
            self._error = error
        self._done.set()

    def ended(self, timeout: float) -> bool:
        """Whether the call has ended, after ``timeout`` seconds at most."""
        return self._done.wait(timeout)

    def result(self, timeout: float | None = None) -> R:
        """What the call returned or raised. TimeoutError when it has not ended in ``timeout`` seconds."""
        if not self._done.wait(timeout):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._result


def side_by_side(call: Callable[[T], R], items: Iterable[T], name: str, *, at_once: int = MOST) -> list[R]:
    """The results in the order of ``items``. Raises what the first of them raised, after all have ended."""
    work = list(items)
    waiting: queue.SimpleQueue[tuple[int, T]] = queue.SimpleQueue()
    for pair in enumerate(work):
        waiting.put(pair)
    results: dict[int, R] = {}
    errors: dict[int, BaseException] = {}

    def worker() -> None:
        while True:
            try:
                number, item = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                results[number] = call(item)
            except BaseException as error:
                errors[number] = error

    if len(work) == 1:
        worker()
    else:
        for thread in [Later(worker, f"{name}-{n}") for n in range(min(at_once, len(work)))]:
            thread.result()
    if errors:
        raise errors[min(errors)]
    return [results[number] for number in range(len(work))]
