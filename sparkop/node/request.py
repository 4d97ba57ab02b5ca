"""One request for an effect on the node: what is asked for, by whom, and the lock under which it happens.

Stdlib-only, Python 3.8 or newer.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import Any, Iterator

from . import lease, wire


class ArgumentsError(Exception):
    """The request asks for something that this program does not do."""


class Request:
    """``action``, ``arguments`` and ``fence`` as they came; ``folder``: the cluster's state folder."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.action = str(document["action"])
        self.arguments: dict[str, Any] = document.get("arguments") or {}
        self.fence: dict[str, Any] = document["fence"]
        self.folder = os.path.abspath(os.path.expanduser(self.fence["directory"]))
        seconds = float(document.get("timeout") or 60.0)
        self.engine = wire.Engine(timeout=seconds)
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds until who asked waits no more. What waits before it asks Docker gives it these only: else
        the node would be called silent for its Docker."""
        return max(1.0, self._end - time.monotonic())

    @contextmanager
    def fenced(self) -> Iterator[None]:
        """Nobody can take the lease away while this is held."""
        with lease.locked(self.folder):
            lease.check(lease.read(self.folder), self.fence)
            yield

    def argument(self, name: str) -> Any:
        try:
            return self.arguments[name]
        except KeyError:
            raise ArgumentsError("%s needs %s" % (self.action, name)) from None

    def path(self, name: str = "path") -> str:
        return os.path.abspath(wire.expand(str(self.argument(name)), self.folder))
