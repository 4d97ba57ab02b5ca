"""Looks beside what is carried out: a start is waited for for minutes, a download for hours, and what breaks
meanwhile is told at once. Nothing is decided by it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from sparkop.errors import SparkopError
from sparkop.reconcile.watch.say import Teller
from sparkop.reconcile.watch.story import Fault
from sparkop.threads import Later


class Beside:
    """Looks while its block runs, ``every`` so many seconds. A look that a node holds up is left behind."""

    def __init__(
        self, look: Callable[[Mapping[str, Fault]], Mapping[str, Fault]], teller: Teller, every: float
    ) -> None:
        self.seen: dict[str, Fault] = {}
        """All that was there meanwhile, by name, as it was seen first."""
        self._now: Mapping[str, Fault] = {}
        self._look = look
        self._teller = teller
        self._every = every
        self._over = threading.Event()
        self._telling = threading.Lock()

    def __enter__(self) -> Beside:
        Later(self._run, "beside")
        return self

    def __exit__(self, *_: object) -> None:
        with self._telling:
            self._over.set()

    def _run(self) -> None:
        while not self._over.wait(self._every):
            try:
                faults = self._look(self._now)
            except SparkopError:
                continue  # what is carried out tells it
            with self._telling:
                if not self._over.is_set():
                    self._teller.faults(faults, over=[what for what in self._now if what not in faults])
                    self.seen, self._now = {**faults, **self.seen}, faults
