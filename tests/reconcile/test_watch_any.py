"""Any order of faults under a watch: it ends converged, and nothing is restarted without a cause."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkop.hosts.simulated_node import Answer
from sparkop.reconcile.restrain import Asked, By
from tests.reconcile.simulation import Cluster
from tests.reconcile.watching import Watching, entries, watched

NODES = ("spark-1", "spark-2")
EAGER = Asked(By.WATCH, pauses=(0.0,) * 200)

node = st.sampled_from(NODES)
steps = st.one_of(
    st.tuples(st.just("kill"), st.sampled_from([0, 1]), st.sampled_from([0, 1, 137])),
    st.tuples(st.just("reboot"), node),
    st.tuples(st.just("guard"), node),
    st.tuples(st.just("away"), node, st.integers(1, 5)),
    st.tuples(st.just("lies"), node, st.integers(1, 3)),
    st.tuples(st.just("degenerate")),
    st.tuples(st.just("one bad answer"), st.sampled_from(["wedge", "degenerate", "loading"])),
    st.tuples(st.just("clock"), st.floats(-86400, 86400)),
    st.tuples(st.just("rest"), st.integers(1, 30)),
)
HARMLESS = ("guard", "away", "lies", "one bad answer", "clock", "rest")


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, max_size=6))
def test_it_ends_converged_and_restarts_nothing_without_a_cause(story: list[tuple[Any, ...]]) -> None:
    cluster, watching = watched(ticks=2, asked=EAGER)
    for step in story:
        _happen(cluster, watching, *step)
        watching.ticks(8)
    watching.minutes(3)
    assert cluster.plan().converged
    restarts = [entry for entry in entries(cluster, "start") if entry.get("by") == "watch"]
    assert len(restarts) <= sum(step[0] not in HARMLESS for step in story)
    before = len(cluster.world.writes)
    watching.minutes(10)
    watching.ticks(3)
    quiet = len(cluster.world.writes)
    watching.ticks(100)
    assert len(cluster.world.writes) == quiet
    assert quiet - before <= 20, "what was still written is that it has served"


def _happen(cluster: Cluster, watching: Watching, what: str, *how: Any) -> None:
    if what == "kill":
        node, container = cluster.rank(how[0])
        node.exit(container.spec.name, how[1])
    elif what == "reboot":
        cluster.node(how[0]).reboot()
    elif what == "guard":
        cluster.node(how[0]).containers.pop("test-memguard", None)
    elif what in ("away", "lies"):
        cluster.node(how[0]).answer = Answer.SILENT if what == "away" else Answer.HALF
        watching.ticks(how[1])
        cluster.node(how[0]).answer = Answer.WHOLE
    elif what == "degenerate":
        _garbage_until_restart(cluster, watching)
    elif what == "one bad answer":
        cluster.manner = how[0]
        watching.watch.eye._asked_at = None
        watching.ticks(1)
        cluster.manner = "serve"
    elif what == "clock":
        cluster.clock.skew = how[0]
    else:
        watching.ticks(how[0])


def _garbage_until_restart(cluster: Cluster, watching: Watching) -> None:
    cluster.manner = "degenerate"
    made = cluster.world.on_start

    def start(node: Any, container: Any) -> None:
        cluster.manner = "serve"
        made(node, container)

    cluster.world.on_start = start
    watching.ticks(12)
    cluster.world.on_start = made
    assert cluster.manner == "serve"
