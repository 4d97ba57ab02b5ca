"""The drift table on simulated nodes: which rows are mended without touching the ranks, which are only told,
and the false alarms that others had."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest

from sparkop.hosts.simulated import SimulatedHost
from sparkop.hosts.simulated_node import Fault, SimulatedCrash
from sparkop.reconcile.status import status_of
from sparkop.reconcile.watch.loop import Watch
from sparkop.resources.failure import likely_cause
from sparkop.resources.liveness import Verdict
from tests.reconcile.simulation import SIMULATED, Cluster, spec_of
from tests.reconcile.watching import Watching, entries, serving, watched
from tests.reconcile.worlds import CHANGES

GROUP = ["1@spark-2", "0@spark-1"]
GIB = 1 << 30


def broken(cluster: Cluster, **changes: Any) -> Watching:
    """A watch that has looked at a good cluster, of which spark-2 is then changed."""
    watching = Watching(cluster)
    watching.ticks(3)
    for what, value in changes.items():
        CHANGES[what](cluster.node("spark-2"), value)
    return watching


@pytest.mark.parametrize(
    "change",
    [
        {"remove": ["test-memguard"]},
        {"exit": {"test-memguard": 1}},
        {"labels": {"test-memguard": {"sparkop.hash": "v1:another-threshold"}}},
        {"image": "absent"},
        {"weights": {"model.safetensors": "absent"}},
        {"weights": {"model.safetensors": "unverified"}},
    ],
    ids=lambda change: "-".join(map(str, (*change, *next(iter(change.values()), ())))),
)
def test_what_is_mended_while_the_ranks_serve_on(change: dict[str, Any]) -> None:
    """Guard, image and weights: repaired by themselves, no rank is touched."""
    cluster = serving()
    watching = broken(cluster, **change)
    ranks = [cluster.rank(number)[1].id for number in (0, 1)]
    watching.minutes(2)
    assert cluster.started == []
    assert [cluster.rank(number)[1].id for number in (0, 1)] == ranks
    assert cluster.plan().converged


@pytest.mark.parametrize(
    ("change", "what", "names"),
    [
        ({"disk_free": 0}, "disk@spark-2", "free"),
        ({"rails_down": [0, 1]}, "fabric@spark-2", "cable"),
        ({"docker": "down"}, "@spark-2", "Docker does not answer: Connection refused; sudo systemctl start"),
        ({"errors": {"docker": "OSError: timed out"}}, "@spark-2", "Docker does not answer: timed out; sudo"),
        ({"answer": "half"}, "node@spark-2", "answer can't be read"),
    ],
    ids=["disk", "cable", "docker-down", "docker-silent", "half-an-answer"],
)
def test_what_is_only_told(change: dict[str, Any], what: str, names: str) -> None:
    """With what to do, or what is not known; nothing is started for twenty minutes."""
    cluster = serving()
    watching = broken(cluster, **change)
    watching.minutes(20)
    assert cluster.started == []
    assert all(cluster.rank(number)[1].running for number in (0, 1))
    told = entries(cluster, "fault")
    assert any(what in entry["what"] for entry in told), told
    assert names in " ".join(entry["text"] for entry in told)


def test_a_foreign_process_on_the_port_is_named_and_never_killed() -> None:
    cluster, watching = watched()
    node, container = cluster.rank(0)
    node.exit(container.spec.name, 1)
    node.listeners[8000] = {"pid": 4711, "process": "jupyter"}
    watching.minutes(10)
    assert cluster.started == []
    told = next(entry for entry in entries(cluster, "fault") if "port" in entry["what"])
    assert "jupyter" in told["text"]
    assert 8000 in node.listeners
    node.listeners.clear()
    watching.minutes(1)
    assert cluster.started == GROUP


def test_a_port_that_another_clusters_rank_may_hold_names_that_cluster() -> None:
    """The advice was "end it" for the model of another cluster, whose pid can't be tied to its container."""
    cluster = Cluster.make()
    node = cluster.node("spark-1")
    node.listeners[8000] = {"pid": 335, "process": "python3"}
    labels = {"sparkop.cluster": "other", "sparkop.role": "rank"}
    CHANGES["containers"](node, {"other-r0": {"labels": labels}})
    (blocker,) = [b for b in cluster.plan().blockers if b.resource == "foreign/port-8000"]
    assert "if it is other-r0 of cluster other, sparkop stop with that cluster's spec" in blocker.remedy


def test_an_empty_list_of_containers_is_not_believed_at_once() -> None:
    """One empty `docker ps`: what is acted on is read again under the lease."""

    class Empty(SimulatedHost):
        lies = 0

        def probe(self, request: Mapping[str, Any], *, timeout: float = 30.0) -> dict[str, Any]:
            document = super().probe(request, timeout=timeout)
            if Empty.lies and "docker" in document:
                Empty.lies -= 1
                document = {**document, "docker": {**document["docker"], "containers": []}}
            return document

    cluster, watching = watched(ticks=2)
    hosts = {**cluster.hosts(), "spark-2": Empty(cluster.node("spark-2"))}
    watching.watch.hosts = watching.watch.eye.hosts = hosts
    for _ in range(3):
        Empty.lies = 1
        watching.ticks(4)
    assert cluster.started == []
    assert all(cluster.rank(number)[1].running for number in (0, 1))


def test_exit_code_137_alone_is_not_out_of_memory() -> None:
    cluster = serving()
    watching = broken(cluster, exit={"test-r1": 137})
    _, container = cluster.rank(1)
    document = cluster.observe(canary=False).observed.documents["spark-2"]
    found = likely_cause(document.container(container.spec.name), [])
    assert found is not None
    assert "does not mean out of memory" in found[0]
    watching.minutes(2)
    assert "memory" not in entries(cluster, "start")[-1]["why"]
    assert cluster.started == GROUP


def test_a_silent_log_is_no_news() -> None:
    """Healthy workers say nothing for ten minutes and more."""
    cluster = serving()
    watching = Watching(cluster)
    for number in (0, 1):
        cluster.rank(number)[1].log.clear()
    watching.minutes(60)
    assert cluster.started == []
    assert entries(cluster, "fault") == []


def test_members_of_an_older_epoch_are_replaced_with_the_group() -> None:
    """A rank that Docker has brought back by itself carries the number of the group that it was part of."""
    cluster = serving()
    watching = broken(cluster, labels={"test-r1": {"sparkop.epoch": 0}})
    watching.minutes(1)
    assert cluster.started == GROUP
    assert "epoch: 0 and 1 -> one for all ranks" in entries(cluster, "start")[-1]["why"]
    assert cluster.plan().converged


@pytest.mark.parametrize("both", [True, False])
def test_ranks_that_docker_restored_after_a_reboot_are_not_trusted(both: bool) -> None:
    """They run, but in a group that no longer exists: no token comes."""
    cluster, watching = watched()
    for number in (0, 1) if both else (1,):
        node, container = cluster.rank(number)
        node.reboot()
        node.start(container)
    cluster.started.clear()
    cluster.manner = "wedge"

    def start(node: Any, container: Any) -> None:
        cluster.manner = "serve"
        cluster.started_one(node, container)

    cluster.world.on_start = start
    watching.minutes(5)
    assert cluster.started == GROUP
    assert cluster.plan().converged


def test_a_changed_spec_ends_the_wait_for_a_start_of_the_old_one() -> None:
    """Who mends a spec does not want to wait for the deadline of the broken one."""
    cluster = serving(ready={"deadline": "45 min", "canary": {"deadline": "20 s"}})
    watching = Watching(cluster)
    watching.ticks(2)
    cluster.manner = "loading"
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 1)
    began = cluster.clock.now
    watching.watch._changed = lambda: cluster.clock.now - began > 60
    tick = watching.ticks(1)[0]
    assert tick.trouble is None
    assert 60 < cluster.clock.now - began < 120
    cluster.spec = spec_of(2, memory={"kvCache": "32 MiB"})
    cluster.manner = "serve"
    again = Watching(cluster)
    again.minutes(2)
    assert cluster.plan().converged


def test_a_watch_that_dies_in_a_restart_leaves_it_to_the_next() -> None:
    """Killed after any of its writes; the next one waits out the lease and ends converged, with one group."""
    for write in range(0, 14, 2):
        cluster = serving()
        watching = Watching(cluster)
        watching.ticks(2)
        node, container = cluster.rank(1)
        node.exit(container.spec.name, 137)
        cluster.world.faults[cluster.world.attempts + write] = Fault.AFTER
        with suppress(SimulatedCrash):
            watching.ticks(6)
        cluster.world.revive()
        heir = Watching(cluster)
        heir.minutes(10)
        assert cluster.plan().converged, f"killed after write {write}"
        reading = cluster.observe()
        status = status_of(reading, cluster.plan(), SIMULATED)
        assert {rank.state for rank in status.ranks} == {"running"}


def test_two_watches_restart_once() -> None:
    cluster = serving()
    first, second = Watching(cluster), Watching(cluster)
    assert first.watch.holder != second.watch.holder
    for watching in (first, second):
        watching.ticks(2)
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 137)
    for _ in range(10):
        for watching in (first, second):
            watching.ticks(1)
    assert cluster.started == GROUP
    assert isinstance(first.watch, Watch)


def test_a_key_file_that_was_deleted_is_repaired_without_a_restart() -> None:
    """From the file that handed the key to the ranks: a new key would lock out every client."""
    cluster, watching = watched()
    node = cluster.node("spark-1")
    path = next(path for path in node.files if path.endswith("/api_key"))
    key = node.files.pop(path)
    watching.minutes(3)
    assert node.files[path] == key
    assert cluster.started == []
    assert watching.watch.eye.life.verdict is Verdict.SERVING
    assert cluster.plan().converged


def test_two_wrong_rails_of_one_node_are_both_told() -> None:
    """The second was in no line and no entry: whoever mended the first found it out by the next look."""
    cluster, watching = watched()
    names = with_small_mtu(cluster, 2)
    watching.ticks(3)
    [told] = [fields["text"] for event, fields in watching.said if event == "fault"]
    [entry] = entries(cluster, "fault")
    for text in (told, entry["text"]):
        assert all(f"{name}.mtu: 1500" in text for name in names)


def test_a_rail_that_breaks_later_is_in_the_story_too() -> None:
    """Its node had a fault of that kind already."""
    cluster, watching = watched()
    with_small_mtu(cluster, 1)
    watching.ticks(3)
    _, name = with_small_mtu(cluster, 2)
    watching.minutes(5)
    first, second = entries(cluster, "fault")
    assert name not in first["text"]
    assert f"{name}.mtu: 1500" in second["text"]
    assert second["at"] > first["at"]


def with_small_mtu(cluster: Cluster, count: int) -> list[str]:
    """Give so many rails of spark-2 another MTU than the other node has; their names."""
    interfaces = cluster.node("spark-2").fabric["interfaces"][:count]
    for interface in interfaces:
        interface["mtu"] = 1500
    return [interface["name"] for interface in interfaces]
