"""`stop` and `logs` need neither the hub nor the engine's rendering: they are for when things go wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sparkop.errors import BlockedError, LeaseHeldError, SpecError, UnreachableError, UsageError
from sparkop.hosts.base import Json
from sparkop.hosts.simulated_node import Answer
from sparkop.reconcile import observe as observing
from sparkop.reconcile.destroy import destroy
from sparkop.reconcile.lease_seen import EXPIRY
from sparkop.reconcile.logs import rank_logs
from sparkop.resources.weights.resource import WeightFiles
from sparkop.spec.models import ClusterSpec
from sparkop.views.outcomes import show_stopped
from tests.reconcile.simulation import SIMULATED, Cluster, spec_of
from tests.reconcile.test_lease import silent_holder, write
from tests.reconcile.worlds import CHANGES

REFUSED = {"kind": "vllm", "context": 32768, "environment": {"VLLM_API_KEY": "k"}}


class HubAway(WeightFiles):
    """A hub that nobody may ask."""

    def prepare(self, spec: ClusterSpec) -> Any:
        raise AssertionError("the hub was asked")

    def request(self, spec: ClusterSpec, node: Any, outside: Any) -> Mapping[str, Json]:
        raise AssertionError("the checkpoint was asked for")


RESOURCES = tuple(HubAway() if each.kind == "weights" else each for each in SIMULATED)


@pytest.fixture
def serving() -> Cluster:
    """It serves; then its spec becomes one that the engine refuses."""
    cluster = Cluster.make()
    cluster.apply()
    cluster.spec = spec_of(engine=REFUSED)
    with pytest.raises(SpecError):
        cluster.plan()
    return cluster


def test_stop_works_with_the_hub_away_and_a_refused_spec(serving: Cluster) -> None:
    """Memory that fills up does not wait for a hub."""
    stopped = serving.stop(resources=RESOURCES)
    assert {name for names in stopped.removed.values() for name in names} >= {"test-r0", "test-r1"}
    assert not any(node.containers for node in serving.world.nodes.values())


def test_stop_tells_of_a_silent_node_and_stops_the_others(serving: Cluster) -> None:
    serving.node("spark-2").answer = Answer.SILENT
    stopped = serving.stop(resources=RESOURCES)
    assert list(stopped.unknown) == ["spark-2"]
    assert not serving.node("spark-1").containers


def names(cluster: Cluster, node: str) -> set[str]:
    return {name for name in cluster.node(node).containers if name.startswith("test-r")}


@pytest.mark.parametrize("unwritable", ["spark-1", "spark-2"])
def test_stop_names_a_node_whose_state_cannot_be_written_and_stops_the_others(unwritable: str) -> None:
    """A group without one rank serves nobody; what can't be fenced is not touched (principle 7)."""
    cluster = Cluster.make()
    cluster.apply()
    other = "spark-2" if unwritable == "spark-1" else "spark-1"
    cluster.node(unwritable).read_only = True
    left = names(cluster, unwritable)
    for _ in range(2):  # the second time there is nothing left to remove on the other one
        stopped = cluster.stop()
        assert names(cluster, unwritable) == left, "nothing is written without the lease"
        assert not cluster.node(other).containers
        refusal = stopped.refused[unwritable]
        assert "Read-only file system" in refusal.reason
        assert set(refusal.runs) == left
        assert f"docker rm -f {min(left)}" in refusal.remedy
        assert "sparkop stop" in refusal.remedy
        assert not stopped.already
    assert not any(
        write.node == unwritable for write in cluster.world.writes if write.action == "intent.write"
    )
    assert cluster.observe().history.intent.stopped, "a watch leaves the rest alone"

    cluster.node(unwritable).read_only = False
    assert not cluster.stop().refused
    assert not names(cluster, unwritable)
    cluster.apply()
    assert cluster.plan().converged


def test_stop_fails_with_the_remedy_where_no_node_can_be_written() -> None:
    cluster = Cluster.make()
    cluster.apply()
    for node in cluster.world.nodes.values():
        node.read_only = True
    with pytest.raises(BlockedError, match="Read-only") as caught:
        cluster.stop()
    assert caught.value.node == "spark-1"
    assert caught.value.remedy


def test_nothing_but_stop_goes_on_without_a_node() -> None:
    """An apply that left one out would start half a group."""
    cluster = Cluster.make()
    cluster.node("spark-2").read_only = True
    with pytest.raises(BlockedError, match="Read-only"):
        cluster.apply()
    assert not any(node.containers for node in cluster.world.nodes.values())


def test_a_partial_stop_waits_for_the_writer_that_lives() -> None:
    """The lease of a node that can't be written is read all the same: its holder may be at work."""
    cluster = Cluster.make()
    cluster.apply()
    held = silent_holder(cluster, "bob@desk/1/1")
    cluster.node("spark-2").read_only = True
    before = cluster.clock.monotonic()
    stopped = cluster.stop()
    assert cluster.clock.monotonic() - before >= EXPIRY, "until its heartbeat has stood still for long enough"
    assert list(stopped.refused) == ["spark-2"]
    with pytest.raises(LeaseHeldError):
        write(cluster.hosts()["spark-1"], held, "x")


def test_logs_work_with_the_hub_away_and_a_refused_spec(
    serving: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log tells why it went wrong."""
    monkeypatch.setattr(observing, "RESOURCES", RESOURCES)
    lines = list(rank_logs(serving.spec, serving.hosts()))
    assert {line.rank for line in lines} == {0, 1}


def test_a_second_stop_says_that_it_was_stopped_already() -> None:
    cluster = Cluster.make()
    cluster.apply()
    assert not cluster.stop().already
    again = cluster.stop()
    assert again.already
    assert set(again.available) == {"spark-1", "spark-2"}


def test_stop_says_of_no_node_that_nothing_ran_when_its_docker_is_silent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its rank served on, while stop said "nothing ran", and the next time "already stopped"."""
    cluster = Cluster.make()
    cluster.apply()
    cluster.node("spark-2").docker_up = False
    for _ in range(2):
        stopped = cluster.stop()
        assert list(stopped.unknown) == ["spark-2"]
        assert not stopped.already
        show_stopped(stopped)
        told = "".join(capsys.readouterr())
        assert "spark-2: unknown: Docker does not answer" in told
        assert "spark-2: nothing ran" not in told
    assert names(cluster, "spark-2") == {"test-r1"}


@pytest.mark.parametrize("before", ["destroyed", "never applied", "of another cluster"])
def test_stop_writes_nothing_where_the_cluster_is_not_there(before: str) -> None:
    """It made the state folder of a destroyed cluster again, with a lease and a mark in it."""
    cluster = Cluster.make()
    if before == "destroyed":
        cluster.apply()
        destroy(cluster.spec, cluster.hosts(), clock=cluster.clock, resources=SIMULATED)
    if before == "of another cluster":
        for node in cluster.world.nodes.values():
            node.files[node.path("cluster.json", "~/.sparkop/test")] = (b'{"cluster": "other"}', 0o644)
    files = {name: dict(node.files) for name, node in cluster.world.nodes.items()}
    stopped = cluster.stop()
    assert (stopped.absent, stopped.already, stopped.removed) == (True, False, {})
    assert {name: node.files for name, node in cluster.world.nodes.items()} == files


def test_stop_leaves_a_node_alone_that_has_nothing_of_the_cluster() -> None:
    """One that a destroy has done, or that is new in the spec: no folder is made there for a lease."""
    cluster = Cluster.make()
    cluster.apply()
    bare = cluster.node("spark-2")
    bare.files.clear()
    bare.containers.clear()
    stopped = cluster.stop()
    assert set(stopped.removed) == {"spark-1"}
    assert cluster.observe().history.intent.stopped
    assert bare.files == {}


def test_a_blocked_apply_leaves_the_stop() -> None:
    """It took the mark away and started nothing: a watch would have, against the human's word."""
    cluster = Cluster.make()
    cluster.apply()
    cluster.stop()
    CHANGES["containers"](cluster.node("spark-2"), {"test-r1": {}})
    for _ in range(2):
        with pytest.raises(BlockedError, match="not made by sparkop"):
            cluster.apply()
    assert all("/home/spark/.sparkop/test/intent.json" in node.files for node in cluster.world.nodes.values())
    cluster.apply(adopt=True)
    assert not cluster.observe().history.intent.stopped


def test_logs_of_a_rank_that_the_spec_has_not_names_the_ranks() -> None:
    """It is a slip of the hand, and no reason to look at the nodes."""
    cluster = Cluster.make()
    cluster.apply()
    with pytest.raises(UsageError, match="0, 1"):
        list(rank_logs(cluster.spec, cluster.hosts(), rank=9))


def test_logs_tell_of_a_silent_node_after_the_others_lines() -> None:
    """Half of the logs must not look like all of them."""
    cluster = Cluster.make()
    cluster.apply()
    cluster.node("spark-2").answer = Answer.SILENT
    lines = rank_logs(cluster.spec, cluster.hosts())
    assert next(lines).rank == 0
    with pytest.raises(UnreachableError) as caught:
        list(lines)
    assert caught.value.node == "spark-2"


def test_parts_of_a_node_that_were_not_read_are_named() -> None:
    """The node answers, its Docker does not: "could not be read" alone would send a person to the network."""
    cluster = Cluster.make()
    cluster.apply()
    cluster.node("spark-2").docker_up = False
    with pytest.raises(UnreachableError, match="rank") as caught:
        cluster.apply()
    assert caught.value.node == "spark-2"


@pytest.mark.parametrize("silent", [("spark-2",), ("spark-1", "spark-2")])
def test_an_unread_node_is_named_once(silent: tuple[str, ...]) -> None:
    cluster = Cluster.make()
    cluster.apply()
    for name in silent:
        cluster.node(name).answer = Answer.SILENT
    with pytest.raises(UnreachableError) as caught:
        cluster.apply()
    words = " ".join(filter(None, (caught.value.node, caught.value.message)))
    assert all(words.count(name) == 1 for name in silent)
