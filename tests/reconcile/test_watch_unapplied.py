"""A cluster that was destroyed, or never applied, is left alone by watch, whatever breaks: nothing is
started, and nothing is remembered on its nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkop.hosts.simulated_node import Answer
from tests.reconcile.simulation import Cluster, spec_of
from tests.reconcile.test_destroy import destroyed
from tests.reconcile.watching import Watching, answers, plugged_in, serving, silent, unplugged, watched
from tests.reconcile.worlds import CHANGES

PORT = {8000: {"pid": 4711, "process": "jupyter"}}


def left(cluster: Cluster) -> list[tuple[str, str]]:
    """What a node has that sparkop could have made."""
    nodes = cluster.world.nodes.values()
    return [(n.name, each) for n in nodes for each in (*n.files, *n.folders, *n.containers, *n.images)]


def destroyed_but(name: str) -> Callable[[], Cluster]:
    """One node was off meanwhile: it has all of it still."""

    def make() -> Cluster:
        cluster = serving()
        cluster.node(name).answer = Answer.SILENT
        assert set(destroyed(cluster).unknown) == {name}
        return cluster

    return make


def destroyed_whole() -> Cluster:
    cluster = serving()
    destroyed(cluster)
    return cluster


def told_of_before() -> Cluster:
    """An older watch has written of a fault into the folder that was destroyed; somebody held the lease."""
    cluster = destroyed_whole()
    told = '{"version": 1, "entries": [{"event": "fault", "what": "fabric@spark-2", "at": 1.0}]}'
    leased = '{"version": 1, "cluster": "test", "holder": "me", "epoch": 1, "released": true}'
    for name, text in (("history.json", told), ("lease.json", leased)):
        CHANGES["files"](cluster.node("spark-1"), {name: {"content": text}})
    return cluster


BEGINNINGS = (
    Cluster.make,
    destroyed_whole,
    told_of_before,
    destroyed_but("spark-1"),
    destroyed_but("spark-2"),
)
node = st.sampled_from(["spark-1", "spark-2"])
faults = st.one_of(
    st.tuples(node, st.just("answer"), st.sampled_from(["whole", "whole", "silent", "half"])),
    st.tuples(node, st.just("docker"), st.sampled_from(["up", "down"])),
    st.tuples(node, st.just("errors"), st.sampled_from([{"state": "OSError: timed out"}, {"docker": "no"}])),
    st.tuples(node, st.sampled_from(["rails_down", "rails_up"]), st.just([0, 1])),
    st.tuples(node, st.just("listeners"), st.just(PORT)),
    st.tuples(node, st.just("disk_free"), st.sampled_from([0, 1 << 40])),
    st.tuples(node, st.just("reboot"), st.just(True)),
)


def stays_as_it_is(begin: Callable[[], Cluster], story: list[tuple[str, str, Any]], seen: bool) -> None:
    cluster = begin()
    watching = Watching(cluster)
    if seen:
        watching.ticks(1)
    writes, had = len(cluster.world.writes), left(cluster)
    cluster.started.clear()
    for name, what, how in story:
        CHANGES[what](cluster.node(name), how)
        for tick in watching.ticks(3):
            watching.watch.sign(tick.reading)
    for name in ("spark-1", "spark-2"):
        CHANGES["answer"](cluster.node(name), "whole")
        cluster.node(name).errors.clear()
    for tick in watching.ticks(3):
        watching.watch.sign(tick.reading)
    assert len(cluster.world.writes) == writes
    assert [each for each in left(cluster) if each not in had] == []
    assert cluster.started == []


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(BEGINNINGS), st.lists(faults, max_size=4), st.booleans())
def test_whatever_breaks_nothing_is_written_and_nothing_starts(
    begin: Callable[[], Cluster], story: list[tuple[str, str, Any]], seen: bool
) -> None:
    """It told a fault, took the memory of that for an apply, and made all of it again."""
    stays_as_it_is(begin, story, seen)


@pytest.mark.parametrize("begin", BEGINNINGS)
@pytest.mark.parametrize("name", ["spark-1", "spark-2"])
@pytest.mark.parametrize(
    ("what", "how"),
    [("docker", "down"), ("errors", {"state": "OSError: EIO"}), ("answer", "silent"), ("answer", "half")],
)
def test_a_bare_node_that_can_not_tell_all_brings_nothing_back(
    begin: Callable[[], Cluster], name: str, what: str, how: object
) -> None:
    """Docker was down where it had been destroyed, and the other node's mark was taken for an apply."""
    stays_as_it_is(begin, [(name, what, how)], False)


def test_a_fault_that_comes_and_goes_makes_no_destroyed_cluster_again() -> None:
    """The cable, by the loop itself, signs of life included."""
    cluster, watching = watched()
    destroyed(cluster)
    before = len(cluster.world.writes)
    watching.run(10, [(60, lambda: unplugged(cluster)), (180, lambda: plugged_in(cluster))])
    watching.watch.leave()
    assert ("fault", "fabric@spark-2") in [(event, fields.get("what")) for event, fields in watching.said]
    assert len(cluster.world.writes) == before
    assert cluster.started == []
    cluster.apply()
    watching.ticks(3)
    assert cluster.plan().converged


def test_a_spec_that_gets_another_name_is_told_about_and_not_remembered() -> None:
    """The port is held by the cluster of the name before."""
    cluster = serving()
    before = len(cluster.world.writes)
    cluster.spec = spec_of(name="another")
    watching = Watching(cluster)
    watching.minutes(10)
    assert len(cluster.world.writes) == before
    assert any("port" in fields.get("what", "") for event, fields in watching.said if event == "fault")


@pytest.mark.parametrize(("off", "bare"), [("spark-1", "spark-2"), ("spark-2", "spark-1")])
def test_a_node_that_was_off_during_destroy_brings_nothing_back(off: str, bare: str) -> None:
    """It has the mark, a guard and a rank still; the others say that they have nothing."""
    cluster = destroyed_but(off)()
    CHANGES["answer"](cluster.node(off), "whole")
    watching = Watching(cluster)
    watching.minutes(5)
    assert cluster.started == []
    held = [fields["text"] for event, fields in watching.said if event == "held"]
    assert held == [f"destroyed, or never applied on {bare}: left alone until sparkop apply"]


def test_a_cluster_that_was_applied_is_healed_beside_a_node_that_is_off() -> None:
    """What is not read is no sign that it was destroyed."""
    cluster, watching = watched()
    silent(cluster)
    cluster.node("spark-1").containers.pop("test-memguard")
    watching.minutes(2)
    assert "test-memguard" in cluster.node("spark-1").containers
    answers(cluster)
    watching.minutes(2)
    assert cluster.plan().converged
