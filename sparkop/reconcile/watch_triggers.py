"""What makes ``watch`` look before its next tick: an event of a node's Docker engine, and a memory guard that
says that it has killed. Nothing is decided by an event: it only wakes. A stream ends silently when its engine
or its node goes away; it is opened again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from sparkop.errors import SparkopError
from sparkop.hosts.base import Host
from sparkop.hosts.streams import Stream
from sparkop.resources.guard import guard_name
from sparkop.resources.labels import CLUSTER
from sparkop.spec.models import ClusterSpec

PAUSE = 5.0
"""Seconds before a stream that has ended is opened again."""
ACTIONS = ("die", "oom", "pause", "destroy")


KILLED = ": killed "
"""In the line that the guard writes when it has acted."""


class Triggers:
    """Follows the engines and the guards of all nodes while its block runs; sets ``wake`` for every event."""

    def __init__(self, spec: ClusterSpec, hosts: Mapping[str, Host], wake: threading.Event) -> None:
        self._filters = {"label": [f"{CLUSTER}={spec.name}"], "event": list(ACTIONS), "type": ["container"]}
        self._guard = guard_name(spec.name)
        self._hosts = hosts
        self._wake = wake
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._streams: dict[str, Stream[Any]] = {}
        self._threads = [self._thread("events", name, self._read_events) for name in hosts]
        if spec.memory.guard.enabled and not spec.memory.guard.as_unit:
            self._threads += [self._thread("guard", name, self._read_guard) for name in hosts]

    def __enter__(self) -> Triggers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with self._lock:
            streams = list(self._streams.values())
        for stream in streams:
            stream.close()
        for thread in self._threads:
            thread.join(timeout=PAUSE)

    def _thread(self, what: str, name: str, read: Callable[[str], None]) -> threading.Thread:
        def follow() -> None:
            while not self._over.is_set():
                with suppress(SparkopError, OSError):  # the node or its guard is away: the tick tells it
                    read(name)
                self._over.wait(PAUSE)

        return threading.Thread(target=follow, daemon=True, name=f"{what}-{name}")

    def _read_events(self, name: str) -> None:
        with self._open(f"events {name}", self._hosts[name].containers.events(self._filters)) as stream:
            for _ in stream:
                self._wake.set()

    def _read_guard(self, name: str) -> None:
        lines = self._hosts[name].log_lines(self._guard, tail=0, follow=True)
        with self._open(f"guard {name}", lines) as stream:
            for line in stream:
                if KILLED in line:
                    self._wake.set()

    def _open(self, key: str, stream: Stream[Any]) -> Stream[Any]:
        """The stream, closed with all others; at once when it came too late for that."""
        with self._lock:
            self._streams[key] = stream
        if self._over.is_set():
            stream.close()
        return stream
