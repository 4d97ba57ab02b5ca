"""What makes ``watch`` look before its next tick: an event of a node's Docker engine, the end of that
engine, and the record that a memory guard leaves when it kills (also while Docker hangs). Nothing is decided
by an event: it only wakes. A stream that has ended is opened again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from sparkop.engines.paths import state_directory
from sparkop.errors import SparkopError
from sparkop.hosts.base import Host
from sparkop.hosts.streams import Stream
from sparkop.resources.labels import CLUSTER
from sparkop.resources.trip import FILE
from sparkop.spec.models import ClusterSpec

PAUSE = 5.0
"""Seconds before a stream that has ended is opened again."""
LEAVING = 1.0
"""Seconds that the threads get to end; those that a node holds up are left behind."""
ACTIONS = ("die", "oom", "pause", "destroy")


AWAITED = 300.0
"""Seconds for which a node is asked to wait for a record of its guard, until it is asked anew."""


class Triggers:
    """Follows the engines and the guards of all nodes while its block runs; sets ``wake`` for every event."""

    def __init__(self, spec: ClusterSpec, hosts: Mapping[str, Host], wake: threading.Event) -> None:
        self._filters = {"label": [f"{CLUSTER}={spec.name}"], "event": list(ACTIONS), "type": ["container"]}
        self._states = {node.name: state_directory(spec, node) for node in spec.nodes}
        self._hosts = hosts
        self._wake = wake
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._streams: dict[str, Stream[Any]] = {}
        self._threads = [self._thread("events", name, self._read_events) for name in hosts]
        guarded = hosts if spec.memory.guard.enabled else ()
        self._awaiting = [self._thread("guard", name, self._await_record) for name in guarded]

    def __enter__(self) -> Triggers:
        for thread in (*self._threads, *self._awaiting):
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with self._lock:
            streams = list(self._streams.values())
        for stream in streams:
            stream.close()
        until = time.monotonic() + LEAVING
        for thread in self._threads:  # those that await a record end with the connections
            thread.join(timeout=max(0.0, until - time.monotonic()))

    def _thread(self, what: str, name: str, read: Callable[[str], None]) -> threading.Thread:
        def follow() -> None:
            while not self._over.is_set():
                with suppress(SparkopError, OSError):  # the node or its guard is away: the tick tells it
                    read(name)
                self._over.wait(PAUSE)

        return threading.Thread(target=follow, daemon=True, name=f"{what}-{name}")

    def _read_events(self, name: str) -> None:
        stream = self._hosts[name].containers.events(self._filters)
        with self._lock:
            self._streams[name] = stream
        with stream:
            if self._over.is_set():
                return
            try:
                for _ in stream:
                    self._wake.set()
            finally:
                if stream.opened and not self._over.is_set():
                    self._wake.set()  # an engine that ends and comes back is told as the cause of dead ranks

    def _await_record(self, name: str) -> None:
        seen, seconds = None, 0.0
        while not self._over.is_set():
            asked = {"path": FILE, "seen": seen, "seconds": seconds}
            request = {"sections": ["changed"], "state": self._states[name], "changed": asked}
            document = self._hosts[name].probe(request, timeout=seconds + 30.0)
            if "changed" not in document:
                return
            stamp = document["changed"]["stamp"]
            if seconds and stamp not in (seen, None):
                self._wake.set()
            seen, seconds = stamp, AWAITED
