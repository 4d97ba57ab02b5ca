"""The crash matrix: the writer dies before or after every write, or its reply is lost; apply mends it.

Interrupted anywhere, the next apply carries on and loses nothing. The same for stop.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

from sparkop.errors import BlockedError, SparkopError
from sparkop.hosts.simulated_node import Fault, SimulatedContainer, SimulatedCrash, SimulatedNode
from tests.reconcile.simulation import SIMULATED, Cluster, spec_of
from tests.reconcile.watching import entries
from tests.reconcile.worlds import CHANGES


def fresh() -> Cluster:
    return Cluster.make()


def with_a_dead_rank() -> Cluster:
    cluster = Cluster.make()
    cluster.apply()
    CHANGES["exit"](cluster.node("spark-2"), {"test-r1": 0})
    return cluster


def with_an_edited_spec() -> Cluster:
    cluster = Cluster.make()
    cluster.apply()
    cluster.spec = spec_of(memory={"kvCache": "32 MiB", "guard": {"actionFloor": "2 GiB"}})
    return cluster


def with_the_guard_as_a_unit() -> Cluster:
    cluster = Cluster.make()
    cluster.apply()
    cluster.spec = spec_of(memory={"kvCache": "64 MiB", "guard": {"run": "unit"}})
    return cluster


def serving() -> Cluster:
    cluster = Cluster.make()
    cluster.apply()
    return cluster


Starts = Callable[[], Cluster]
APPLIES: tuple[Starts, ...] = (fresh, with_a_dead_rank, with_an_edited_spec, with_the_guard_as_a_unit)


@cache
def undisturbed(start: Starts, does: str) -> tuple[range, dict[str, Any]]:
    """The numbers of the writes of a run without faults, and the world in which it ends."""
    cluster = start()
    first = cluster.world.attempts
    getattr(cluster, does)()
    return range(first, cluster.world.attempts), cluster.shape()


def disturbed(start: Starts, does: str, number: int, fault: Fault) -> Cluster:
    """A run with one fault, ended however it ended."""
    cluster = start()
    cluster.world.faults[number] = fault
    with suppress(SimulatedCrash, SparkopError):
        getattr(cluster, does)()
    cluster.world.revive()
    return cluster


def cases(starts: tuple[Starts, ...], does: str) -> list[Any]:
    found = []
    for start in starts:
        numbers, _ = undisturbed(start, does)
        for number in numbers:
            for fault in Fault:
                name = f"{start.__name__}-{number - numbers.start}-{fault}"
                found.append(pytest.param(start, number, fault, id=name))
    return found


def created_and_removed(cluster: Cluster) -> tuple[int, int]:
    """How often a container came into being and went, over the whole life of the world."""
    events = [e["Action"] for node in cluster.world.nodes.values() for e in node.events]
    created = sum(node.created for node in cluster.world.nodes.values())
    return created, events.count("destroy")


@pytest.mark.parametrize(("start", "number", "fault"), cases(APPLIES, "apply"))
def test_apply_after_an_interrupted_apply_ends_in_the_same_world(
    start: Starts, number: int, fault: Fault
) -> None:
    """The same containers, files and weights as if nothing had happened; nothing doubled, nothing left."""
    cluster = disturbed(start, "apply", number, fault)
    cluster.apply()
    assert cluster.shape() == undisturbed(start, "apply")[1]
    assert cluster.plan().converged
    created, removed = created_and_removed(cluster)
    assert created - removed == sum(len(node.containers) for node in cluster.world.nodes.values())


@pytest.mark.parametrize(("start", "number", "fault"), cases((serving,), "stop"))
def test_stop_after_an_interrupted_stop_ends_in_the_same_world(
    start: Starts, number: int, fault: Fault
) -> None:
    """Half a stop is finished by the next one; everything that was made is removed."""
    cluster = disturbed(start, "stop", number, fault)
    cluster.stop()
    assert cluster.shape() == undisturbed(start, "stop")[1]
    created, removed = created_and_removed(cluster)
    assert created == removed


@pytest.mark.parametrize(("start", "number", "fault"), cases((serving,), "stop")[::5])
def test_apply_after_an_interrupted_stop_serves_again(start: Starts, number: int, fault: Fault) -> None:
    """A human who changes their mind."""
    cluster = disturbed(start, "stop", number, fault)
    cluster.apply()
    assert cluster.shape() == start().shape()


def test_the_matrix_is_no_empty_one() -> None:
    """As many writes as an apply from nothing has at least: 15 operations and the lease on two nodes."""
    assert len(undisturbed(fresh, "apply")[0]) >= 19
    assert len(undisturbed(serving, "stop")[0]) >= 8


def ready_unseen() -> Cluster:
    """The last step of an apply (a rank had died) is broken off, and the group comes up by itself."""
    cluster = with_a_dead_rank()
    cluster.begin()
    cluster.manner = "serve"
    return cluster


def told_ready(cluster: Cluster) -> list[int]:
    return [entry["epoch"] for entry in entries(cluster, "ready")]


def test_a_group_that_came_up_while_nobody_waited_is_written_down_by_the_next_apply() -> None:
    """Its history lacked ``ready`` for ever, as if it had never served. Once: the apply after it writes
    nothing, and diff, which writes nothing either, finds no difference."""
    cluster = ready_unseen()
    assert told_ready(cluster) == [1]
    assert cluster.plan().converged
    started = list(cluster.started)
    assert cluster.apply().operations == 0
    assert cluster.started == started, "it serves: nothing is started"
    assert told_ready(cluster) == [1, 2]
    entry = entries(cluster, "ready")[-1]
    assert entry["seconds"] is None, "nobody has measured the start"
    assert 0 <= cluster.clock.time() - entry["at"] < 60
    writes = len(cluster.world.writes)
    cluster.apply()
    assert len(cluster.world.writes) == writes


def test_a_fault_of_a_group_that_came_up_while_nobody_waited_is_mended() -> None:
    """Degenerate answers were taken for a part of its start: apply waited for it, and mended nothing."""
    cluster = ready_unseen()
    cluster.apply()
    cluster.manner = "degenerate"
    assert "rank/0" in [each.resource for each in cluster.plan().operations]

    def started(node: SimulatedNode, container: SimulatedContainer) -> None:
        cluster.manner = "serve"
        cluster.started_one(node, container)

    cluster.world.on_start = started
    cluster.apply()
    assert told_ready(cluster) == [1, 2, 3]


def test_bad_tokens_of_a_group_that_nobody_saw_serve_are_mended_and_no_part_of_its_start() -> None:
    """apply waited for it, ended with 6, and did so again until ready.deadline was over. What loads gives no
    answer, or 503. Each apply starts it once: an image that gives no other tokens is not started for ever."""
    cluster = ready_unseen()
    cluster.manner = "loading"
    assert [each.resource for each in cluster.plan().operations] == ["endpoint"]
    cluster.manner = "degenerate"
    started = len(cluster.started)
    for times in (1, 2):
        with pytest.raises(BlockedError) as caught:
            cluster.apply()
        assert "sparkop apply starts all ranks anew" in (caught.value.remedy or "")
        assert len(cluster.started) == started + 2 * times


def test_a_download_does_not_write_that_a_group_serves() -> None:
    """It plans nothing for the group."""
    cluster = ready_unseen()
    writes = len(cluster.world.writes)
    weights = tuple(resource for resource in SIMULATED if resource.kind == "weights")
    cluster.apply(command="download", resources=weights)
    assert len(cluster.world.writes) == writes
