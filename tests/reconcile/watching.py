"""A watch over the simulated cluster, tick by tick; time passes as the watch itself would let it pass."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import pytest

from sparkop.hosts.simulated_node import Answer
from sparkop.reconcile.restrain import Asked, By
from sparkop.reconcile.watch.loop import Tick, Watch
from sparkop.serving.canary import EndpointState
from tests.reconcile.simulation import SIMULATED, Cluster


class AtOnce:
    """A generation that has ended before anybody asks for its result."""

    def __init__(self, call: Callable[[], EndpointState], _name: str) -> None:
        self._answer = call()

    def result(self, timeout: float | None = None) -> EndpointState:
        return self._answer


Story = Iterable[tuple[float, Callable[[], None]]]
"""What happens, and after how many seconds."""


class Signal(threading.Event):
    """Waiting for it lets simulated time pass, and happen what is due."""

    def __init__(self, cluster: Cluster, story: list[tuple[float, Callable[[], None]]]) -> None:
        super().__init__()
        self._clock, self._story = cluster.clock, story

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        until = self._clock.now + timeout
        while not self.is_set() and self._clock.now < until:
            due = self._story[0][0] if self._story else until
            self._clock.now = max(self._clock.now, min(due, until))
            while self._story and self._story[0][0] <= self._clock.now:
                self._story.pop(0)[1]()
        return self.is_set()


class Watching:
    """``said`` holds every structured event as (name, fields); ``acts`` when it began to act, ``looks`` when
    it looked."""

    def __init__(self, cluster: Cluster, **options: Any) -> None:
        self.cluster = cluster
        self.said: list[tuple[str, dict[str, Any]]] = []
        self.acts: list[float] = []
        self.looks: list[float] = []
        usual = {"asked": Asked(By.WATCH), "begin": AtOnce, "steps_aside": True, "resources": SIMULATED}
        self.watch = Watch(
            cluster.spec, cluster.hosts(), self._say, clock=cluster.clock, **{**usual, **options}
        )

    def _say(self, event: str, **fields: Any) -> None:
        self.said.append((event, fields))
        if event == "acting":
            self.acts.append(self.cluster.clock.now)

    def ticks(self, count: int) -> list[Tick]:
        """Tick, and let the pause of each tick pass."""
        return [self._tick() for _ in range(count)]

    def minutes(self, minutes: float) -> list[Tick]:
        """Tick for so long."""
        until, ticks = self.cluster.clock.now + 60 * minutes, []
        while self.cluster.clock.now < until:
            ticks.append(self._tick())
        return ticks

    def run(self, minutes: float, story: Story = ()) -> None:
        """The loop itself for so long, with what happens meanwhile; ``event`` is one of Docker's."""
        began, watch = self.cluster.clock.now, self.watch
        happen = sorted(((began + at, what) for at, what in story), key=lambda each: each[0])
        watch.stop, watch.wake = Signal(self.cluster, happen), Signal(self.cluster, happen)
        happen.append((began + 60 * minutes, watch.stop.set))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sparkop.reconcile.watch.loop.Triggers", lambda *_: nullcontext())
            patch.setattr(watch, "tick", lambda tick=watch.tick: self._look_at(tick))
            watch.run()
        watch.stop = threading.Event()  # a tick that comes after is not to be interrupted

    def _look_at(self, tick: Callable[[], Tick]) -> Tick:
        self.looks.append(self.cluster.clock.now)
        return tick()

    def event(self) -> None:
        self.watch.wake.set()

    def _tick(self) -> Tick:
        tick = self.watch.tick()
        self.cluster.clock.sleep(self.watch.pause(tick))
        return tick

    def names(self) -> list[str]:
        return [event for event, _ in self.said]


def serving(**changes: Any) -> Cluster:
    """A cluster that serves, applied by a human."""
    cluster = Cluster.make(**changes)
    cluster.apply()
    cluster.started.clear()
    return cluster


def watched(ticks: int = 3, **options: Any) -> tuple[Cluster, Watching]:
    """A cluster that serves, and a watch that has looked at it so often. ``options``: of the watch."""
    cluster = serving()
    watching = Watching(cluster, **options)
    watching.ticks(ticks)
    return cluster, watching


def entries(cluster: Cluster, event: str = "") -> list[dict[str, Any]]:
    """What the head remembers."""
    path = next(path for path in cluster.node("spark-1").files if path.endswith("history.json"))
    found = cluster.node("spark-1").document_of(path)["entries"]
    return [entry for entry in found if event in ("", entry["event"])]


def silent(cluster: Cluster) -> None:
    """spark-2 answers nothing."""
    cluster.node("spark-2").answer = Answer.SILENT


def answers(cluster: Cluster) -> None:
    """spark-2 answers again."""
    cluster.node("spark-2").answer = Answer.WHOLE


def leased(cluster: Cluster, beat: int, *, released: bool = False) -> None:
    """The lease is held by an apply of ada's, whose heart has beaten so often; or she has given it back."""
    info = {"who": "ada", "command": "apply"}
    for node in cluster.world.nodes.values():
        path = next(path for path in node.files if path.endswith("lease.json"))
        lease = node.document_of(path)
        lease.update(holder="ada", released=released, heartbeat=beat, epoch=50, info=info)
        node.files[path] = (json.dumps(lease).encode(), 0o600)


def unplugged(cluster: Cluster) -> None:
    """The fabric cable of spark-2 is out."""
    _plug(cluster, plugged=False)


def plugged_in(cluster: Cluster) -> None:
    """It is in again."""
    _plug(cluster, plugged=True)


def _plug(cluster: Cluster, *, plugged: bool) -> None:
    fabric = cluster.node("spark-2").fabric
    for device in fabric["devices"]:
        device["state"] = "ACTIVE" if plugged else "DOWN"
    for interface in fabric["interfaces"]:
        interface.update(carrier=plugged, operstate="up" if plugged else "down")
