"""What makes ``watch`` look before its next tick: an event of a node's Docker engine. Nothing is decided by
an event: it only wakes. A stream ends silently when its engine or its node goes away; it is opened again."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress

from sparkop.errors import SparkopError
from sparkop.hosts.base import Host, Json
from sparkop.hosts.streams import Stream
from sparkop.resources.labels import CLUSTER

PAUSE = 5.0
"""Seconds before a stream that has ended is opened again."""
ACTIONS = ("die", "oom", "pause", "destroy")


class Triggers:
    """Follows the engines of all nodes while its block runs; sets ``wake`` for every event."""

    def __init__(self, cluster: str, hosts: Mapping[str, Host], wake: threading.Event) -> None:
        self._filters = {"label": [f"{CLUSTER}={cluster}"], "event": list(ACTIONS), "type": ["container"]}
        self._hosts = hosts
        self._wake = wake
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._streams: dict[str, Stream[Json]] = {}
        self._threads = [
            threading.Thread(target=self._follow, args=(name,), daemon=True, name=f"events-{name}")
            for name in hosts
        ]

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

    def _follow(self, name: str) -> None:
        while not self._over.is_set():
            with suppress(SparkopError, OSError):  # the node is away: the tick tells it
                self._read(name)
            self._over.wait(PAUSE)

    def _read(self, name: str) -> None:
        stream = self._hosts[name].containers.events(self._filters)
        with self._lock:
            self._streams[name] = stream
        with stream:
            if self._over.is_set():
                return
            for _ in stream:
                self._wake.set()
