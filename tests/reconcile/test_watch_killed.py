"""A watch that is killed in a restart: the next one goes on, and that is still one restart."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any

import pytest

from sparkop.hosts.simulated_node import Answer, Fault, SimulatedContainer, SimulatedCrash
from sparkop.reconcile.events import happened
from sparkop.reconcile.lease_seen import EXPIRY, show_lease
from tests.reconcile.simulation import Cluster
from tests.reconcile.watching import Watching, entries, watched


def with_a_dead_rank() -> tuple[Cluster, Watching]:
    cluster, watching = watched(ticks=2)
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 137)
    return cluster, watching


@cache
def writes_of_a_restart() -> range:
    cluster, watching = with_a_dead_rank()
    first = cluster.world.attempts
    watching.ticks(1)
    return range(first, cluster.world.attempts)


def killed_at(cluster: Cluster, watching: Watching, number: int, fault: Fault) -> None:
    cluster.world.faults[number] = fault
    with suppress(SimulatedCrash):
        watching.ticks(1)
    cluster.world.revive()


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
@pytest.mark.parametrize("number", range(len(writes_of_a_restart())))
def test_a_restart_that_was_broken_off_counts_once(number: int, fault: Fault) -> None:
    """It counted twice, and the next watch waited for two minutes with all ranks down."""
    cluster, watching = with_a_dead_rank()
    killed_at(cluster, watching, writes_of_a_restart()[number], fault)
    began = cluster.clock.now
    following = Watching(cluster)
    while not cluster.plan().converged:
        assert cluster.clock.now - began < 100, following.said
        following.ticks(1)
    assert len(cluster.observe().history.restarts) == 1
    following.ticks(5)
    assert len([e for e in happened(cluster.observe()) if e.event == "restart"]) <= 2


def test_restarts_that_are_broken_off_again_and_again_end() -> None:
    """A watch that dies of every restart would take the group down for ever."""
    cluster, _ = with_a_dead_rank()

    def die(_node: Any, container: SimulatedContainer) -> None:
        if container.spec.labels.get("sparkop.role") == "rank":
            raise SimulatedCrash("the watch is killed")

    cluster.world.on_start = die
    for _ in range(20):
        with suppress(SimulatedCrash):
            Watching(cluster).minutes(30)
        cluster.world.revive()
        if cluster.observe(canary=False).history.gave_up:
            break
    assert len([each for each in entries(cluster, "start") if each["by"] == "watch"]) <= 8
    assert "did not last" in entries(cluster, "fault")[-1]["text"]


def killed_in_a_restart() -> Cluster:
    """All ranks are down, and the lease is held by nobody who lives."""
    cluster, watching = with_a_dead_rank()
    killed_at(cluster, watching, writes_of_a_restart()[-8], Fault.BEFORE)
    assert not any(
        getattr(each, "released", True) for each in show_lease(cluster.spec, cluster.hosts()).values()
    )
    return cluster


def test_a_holder_counts_as_dead_from_when_the_next_watch_saw_it_first() -> None:
    """It stood aside for 20 s, and then watched the heartbeat for the whole 30 s once more."""
    cluster = killed_in_a_restart()
    began = cluster.clock.now
    following = Watching(cluster)
    while not following.acts:
        following.ticks(1)
    assert EXPIRY <= following.acts[0] - began < EXPIRY + 5


def test_a_node_that_was_away_between_two_looks_did_not_see_its_holder_stand_still() -> None:
    """The holder lives: its node let nobody renew."""
    cluster = killed_in_a_restart()
    following = Watching(cluster)
    following.ticks(1)
    for node in cluster.world.nodes.values():
        node.answer = Answer.SILENT
    following.ticks(2)
    for node in cluster.world.nodes.values():
        node.answer = Answer.WHOLE
    began = cluster.clock.now
    while not following.acts:
        following.ticks(1)
    assert following.acts[0] - began >= EXPIRY
