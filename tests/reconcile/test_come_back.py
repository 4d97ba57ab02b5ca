"""A node that did not answer at first, and does once the lease is held: it has no lease then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkop.hosts.base import Fence, Host
from sparkop.hosts.simulated import SimulatedHost
from sparkop.hosts.simulated_node import Answer
from sparkop.reconcile.destroy import destroy
from sparkop.resources.events import Phase
from tests.reconcile.simulation import SIMULATED, Cluster


def coming_back(cluster: Cluster) -> dict[str, Host]:
    """spark-2 is silent until spark-1 has taken the lease."""
    cluster.node("spark-2").answer = Answer.SILENT

    class Head(SimulatedHost):
        def act(
            self, action: str, arguments: Mapping[str, Any], fence: Fence, *, timeout: float = 60.0
        ) -> dict[str, Any]:
            if action == "lease.acquire":
                cluster.node("spark-2").answer = Answer.WHOLE
            return super().act(action, arguments, fence, timeout=timeout)

    return {**cluster.hosts(), "spark-1": Head(cluster.node("spark-1"))}


def test_stop_stops_it_with_the_others() -> None:
    """It exited 6: nothing may be written there. The next stop mended it."""
    cluster = Cluster.make()
    cluster.apply()
    stopped = cluster.stop(coming_back(cluster))
    assert {node: names[0] for node, names in stopped.removed.items()} == {
        "spark-1": "test-r0",
        "spark-2": "test-r1",
    }
    assert not stopped.unknown
    assert not stopped.refused
    told = [event.text for event in cluster.events if event.phase is Phase.NOTE]
    assert not any("lease is held" in text for text in told), "it is our own"


def test_apply_converges_it_with_the_others() -> None:
    cluster = Cluster.make()
    cluster.apply(coming_back(cluster))
    assert {cluster.rank(number)[1].state for number in (0, 1)} == {"running"}


def test_destroy_says_that_it_is_left() -> None:
    """It asked about the others only, and exited 0 although all of it was still there."""
    cluster = Cluster.make()
    cluster.apply()
    gone = destroy(cluster.spec, coming_back(cluster), clock=cluster.clock, resources=SIMULATED)
    assert list(gone.removed) == ["spark-1"]
    assert list(gone.unknown) == ["spark-2"]
