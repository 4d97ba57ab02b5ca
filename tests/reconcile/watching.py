"""A watch over the simulated cluster, tick by tick; time passes as the watch itself would let it pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparkop.reconcile.restrain import Asked, By
from sparkop.reconcile.watch import Tick, Watch
from sparkop.serving.canary import EndpointState
from tests.reconcile.simulation import SIMULATED, Cluster


class AtOnce:
    """A generation that has ended before anybody asks for its result."""

    def __init__(self, call: Callable[[], EndpointState], _name: str) -> None:
        self._answer = call()

    def result(self, timeout: float | None = None) -> EndpointState:
        return self._answer


class Watching:
    """``said`` holds every structured event as (name, fields)."""

    def __init__(self, cluster: Cluster, **options: Any) -> None:
        self.cluster = cluster
        self.said: list[tuple[str, dict[str, Any]]] = []
        options = {"asked": Asked(By.WATCH), "begin": AtOnce, "steps_aside": True, **options}
        self.watch = Watch(
            cluster.spec, cluster.hosts(), self._say, clock=cluster.clock, resources=SIMULATED, **options
        )

    def _say(self, event: str, **fields: Any) -> None:
        self.said.append((event, fields))

    def ticks(self, count: int) -> list[Tick]:
        """Tick, and let the pause of each tick pass."""
        return [self._tick() for _ in range(count)]

    def minutes(self, minutes: float) -> list[Tick]:
        """Tick for so long."""
        until, ticks = self.cluster.clock.now + 60 * minutes, []
        while self.cluster.clock.now < until:
            ticks.append(self._tick())
        return ticks

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


def entries(cluster: Cluster, event: str = "") -> list[dict[str, Any]]:
    """What the head remembers."""
    path = next(path for path in cluster.node("spark-1").files if path.endswith("history.json"))
    found = cluster.node("spark-1").document_of(path)["entries"]
    return [entry for entry in found if event in ("", entry["event"])]
