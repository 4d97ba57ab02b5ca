"""The report of status says the same as the plan, in other words; and stop's plan keeps its order."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from sparkop.hosts.simulated_node import Answer
from sparkop.reconcile.memory import memory_of
from sparkop.reconcile.reconcile import reconcile
from sparkop.reconcile.status import Status, status_of
from sparkop.reconcile.stop import plan_stop
from sparkop.reconcile.unplanned import with_unplanned
from sparkop.resources.operations import Action
from sparkop.views.plan import show_plan
from sparkop.views.status import show_status
from tests.reconcile.simulation import SIMULATED, Cluster, spec_of
from tests.reconcile.worlds import CHANGES

GIB = 1 << 30


def serving(nodes: int = 2) -> Cluster:
    cluster = Cluster.make(spec_of(nodes))
    cluster.apply()
    return cluster


def status(cluster: Cluster) -> Status:
    reading = cluster.observe()
    plan = reconcile(reading.desired, reading.observed, reading.history, cluster.clock.time(), SIMULATED)
    return status_of(reading, plan, SIMULATED)


def test_a_cluster_that_serves_is_ok_everywhere() -> None:
    """Every kind on every node, the ranks running in one epoch, memory as the node says."""
    found = status(serving())
    assert found.state == "ok"
    assert found.endpoint == "ready"
    assert {(node.node, node.state) for node in found.nodes} == {("spark-1", "ok"), ("spark-2", "ok")}
    assert all(resource.state == "ok" for node in found.nodes for resource in node.resources)
    assert {r.resource for r in found.nodes[0].resources} >= {
        "fabric",
        "weights",
        "image",
        "memguard",
        "rank",
    }
    assert [(r.rank, r.node, r.state, r.epoch) for r in found.ranks] == [
        (0, "spark-1", "running", "1"),
        (1, "spark-2", "running", "1"),
    ]
    assert all(r.seconds is not None for r in found.ranks)
    assert found.nodes[0].memory_total == 121 * GIB
    assert found.url == "http://spark-1:8000/v1"
    assert found.key_path == "/home/spark/.sparkop/test/api_key"


def test_the_url_is_where_the_api_listens() -> None:
    """``api.bind`` as one address: by the head's other addresses nobody answers."""
    for bind, host in (("10.0.0.7", "10.0.0.7"), ("fd00::7", "[fd00::7]"), ("::", "spark-1")):
        assert status(Cluster.make(spec_of(api={"bind": bind}))).url == f"http://{host}:8000/v1"


def test_what_differs_is_told_where_it_differs() -> None:
    """Only the kind and node that differ."""
    cluster = serving()
    CHANGES["oom"](cluster.node("spark-2"), ["test-r1"])
    found = status(cluster)
    assert found.state == "differs"
    states = {(n.node, r.resource): r.state for n in found.nodes for r in n.resources}
    assert states[("spark-2", "rank")] == "differs"
    assert states[("spark-2", "memguard")] == "ok"
    rank = found.ranks[1]
    assert (rank.state, rank.oom_killed) == ("exited (137, out of memory)", True)
    told = "rank 1 on spark-2 exited (137, out of memory)"
    assert (found.endpoint, found.endpoint_detail) == ("not serving", told)


def test_two_rails_that_are_wrong_are_both_named() -> None:
    """One was, and diff told of two."""
    cluster = serving()
    node = cluster.node("spark-2")
    for interface in node.fabric["interfaces"]:
        interface["mtu"] = 1500
    (told,) = [each.detail for each in status(cluster).nodes[1].resources if each.state == "differs"]
    names = [interface["name"] for interface in node.fabric["interfaces"]]
    assert len(names) == 2
    for name in names:
        assert f"{name}.mtu: 1500 -> 9000, as on the other nodes" in told


def test_the_floors_are_those_of_the_guard_that_runs() -> None:
    """It may run with others than the spec has now; a guard that is gone has said nothing."""
    cluster = serving()
    node = cluster.node("spark-2")
    floors = {"action": 3 * GIB, "hard": 2 * GIB, "soft": 120 * GIB}
    beat = {"at": cluster.clock.now, "up": 1e6, "floors": floors}
    node.files[node.path("memguard.json", "~/.sparkop/test")] = (json.dumps(beat).encode(), 0o644)

    def told() -> tuple[int | None, str, int]:
        reading = cluster.observe()
        found = status(cluster).nodes[1]
        assert found.guard is not None
        memory = memory_of(cluster.spec, "spark-2", reading.observed.documents["spark-2"])
        assert (memory.under, memory.action_floor) == (found.memory_under, found.guard.floor)
        return found.guard.floor, found.memory_under, memory.hard_floor

    assert told() == (3 * GIB, "soft", 2 * GIB)
    node.memory_total = 119 * GIB
    assert told() == (3 * GIB, "", 2 * GIB), "a soft floor above all that there is"
    node.memory_total = 121 * GIB
    for damaged in ({"action": "x"}, [], None):
        beat["floors"] = damaged
        node.files[node.path("memguard.json", "~/.sparkop/test")] = (json.dumps(beat).encode(), 0o644)
        assert told() == (GIB, "", GIB // 2)
    beat["floors"] = floors
    node.files[node.path("memguard.json", "~/.sparkop/test")] = (json.dumps(beat).encode(), 0o644)
    del node.containers["test-memguard"]
    assert told() == (GIB, "", GIB // 2)


def test_an_unknown_node_is_no_empty_node() -> None:
    """Its ranks are not "missing", and not left out either: nobody knows."""
    cluster = serving(3)
    cluster.node("spark-2").answer = Answer.SILENT
    found = status(cluster)
    assert found.state == "unknown"
    assert (found.nodes[1].state, found.nodes[1].resources) == ("unknown", ())
    assert "does not answer" in found.nodes[1].reason
    assert [(r.rank, r.node, r.container, r.state) for r in found.ranks] == [
        (0, "spark-1", "test-r0", "running"),
        (1, "spark-2", "test-r1", "unknown"),
        (2, "spark-3", "test-r2", "running"),
    ]


@pytest.mark.parametrize("hidden", ["node", "docker", "blocked"])
def test_a_rank_that_is_missing_is_told_whatever_hides_the_rest(hidden: str) -> None:
    """While another node was silent its row was left out, and its node was "ok". Still nothing of the group
    is planned, and watch gets the same plan: only who looks is told."""
    cluster = serving(3)
    del cluster.node("spark-1").containers["test-r0"]
    if hidden == "node":
        cluster.node("spark-2").answer = Answer.SILENT
    elif hidden == "docker":
        cluster.node("spark-2").docker_up = False
    else:
        CHANGES["rails_down"](cluster.node("spark-2"), [0, 1])
    found = status(cluster)
    assert [(r.rank, r.node, r.state) for r in found.ranks] == [
        (0, "spark-1", "missing"),
        (1, "spark-2", "running" if hidden == "blocked" else "unknown"),
        (2, "spark-3", "running"),
    ]
    head = {each.resource: each for each in found.nodes[0].resources}
    assert found.nodes[0].state == "differs"
    assert (head["rank"].state, head["rank"].detail) == ("differs", "rank/0 container: missing -> running")
    if hidden != "blocked":
        assert head["endpoint"].state == "unknown"
        assert "spark-2 could not be read" in head["endpoint"].detail
    assert found.nodes[2].state == "ok"
    plan = cluster.plan()
    assert not [o for o in plan.operations if o.resource.startswith(("rank", "endpoint"))]
    shown = with_unplanned(plan, cluster.observe())
    assert shown == replace(plan, warnings=shown.warnings)
    assert [text for text in shown.warnings if text not in plan.warnings] == [
        "spark-1: rank/0 container: missing -> running; it is planned when the rest is known and mended"
    ]


def test_what_waits_for_another_node_is_not_right_and_told_by_diff_and_status() -> None:
    """Nothing can come from a node whose disk is full: the weights that another misses were "ok" there. And a
    spec that was changed meanwhile is told rank by rank."""
    cluster = serving()
    cluster.node("spark-1").disk_free = 1000
    cluster.node("spark-2").checkpoint.clear()
    cluster.spec = spec_of(2, memory={"kvCache": "32 MiB"})
    weights = next(each for each in status(cluster).nodes[1].resources if each.resource == "weights")
    assert weights.state == "differs"
    assert weights.detail.startswith("0 of 2 files verified")
    shown = with_unplanned(cluster.plan(), cluster.observe())
    assert shown.operations == ()
    assert [text.partition(" -> ")[0] for text in shown.warnings] == [
        "spark-1: rank/0 --kv-cache-memory-bytes: 67108864",
        "spark-2: weights 0 of 2 files verified; missing config.json, model.safetensors",
        "spark-2: rank/1 --kv-cache-memory-bytes: 67108864",
    ]


def test_a_rank_that_a_human_has_stopped_is_not_missing_for_a_silent_node() -> None:
    """Nor is its guard: it is as wished where it can be seen."""
    cluster = serving()
    cluster.stop()
    cluster.node("spark-2").answer = Answer.SILENT
    found = status(cluster)
    assert (found.state, found.nodes[0].state) == ("unknown", "ok")
    assert [rank.state for rank in found.ranks] == ["stopped", "unknown"]
    plan = cluster.plan()
    assert with_unplanned(plan, cluster.observe()) == plan


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {},
            ("spark-2: copy of the weights runs: 2 of 8 files: model-3, 1.0 GiB of 4.0 GiB; "
            "sparkop download --follow shows it",),
        ),
        ({"phase": "done"}, ()),
        ({"boot_id": "another"}, ()),
        ({"updated_at": -60}, ()),
    ],
)  # fmt: skip
def test_a_transfer_that_runs_is_told_where_its_files_are_missing(
    changes: dict[str, Any], told: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """By status and diff, and the plan is the same: "2 of 8 files verified" alone looks like one that has
    stopped. One that was killed is not told."""
    cluster = serving()
    node = cluster.node("spark-2")
    before = cluster.plan()
    written: dict[str, Any] = {
        "phase": "fetching",
        "source": "peer",
        "boot_id": node.boot_id,
        "updated_at": 0,
        "files": {"done": 2, "total": 8},
        "bytes": {"done": GIB, "total": 4 * GIB},
        "active": {"model-3": {}},
        **changes,
    }
    written["updated_at"] = cluster.clock.now + written["updated_at"]
    node.files[node.path("transfer.json", "~/.sparkop/test")] = (json.dumps(written).encode(), 0o644)
    found = status(cluster)
    assert found.transfers == told
    assert cluster.plan() == before
    show_status(found)
    assert all(line in " ".join(capsys.readouterr().out.split()) for line in told)
    show_plan(before, transfers=found.transfers)
    assert all(f"running   {line}" in capsys.readouterr().out for line in told)


def test_an_unread_docker_makes_the_ranks_unknown() -> None:
    """Not missing."""
    cluster = serving()
    cluster.node("spark-2").docker_up = False
    assert [(r.rank, r.state) for r in status(cluster).ranks] == [(0, "running"), (1, "unknown")]


def test_a_rank_of_another_configuration_is_told() -> None:
    """It runs, but it is not what the spec says."""
    cluster = serving()
    cluster.spec = spec_of(2, memory={"kvCache": "32 MiB"})
    assert {r.state for r in status(cluster).ranks} == {"running (another configuration)"}


def test_the_guard_tells_its_floor_and_its_trip_with_advice() -> None:
    """Lower the cache before you raise the floor."""
    cluster = serving()
    CHANGES["trip"](cluster.node("spark-2"), {"available": 9, "floor": GIB})
    cluster.node("spark-2").exit("test-r1", 137)
    guard = status(cluster).nodes[1].guard
    assert guard is not None
    assert (guard.state, guard.floor, guard.trip_available) == ("running", GIB, 9)
    assert "memory.kvCache" in guard.advice


def test_a_humans_stop_is_told() -> None:
    """So that nobody wonders why watch does nothing."""
    cluster = serving()
    cluster.stop()
    assert status(cluster).stopped_by_human


def test_the_plan_of_a_stop_begins_with_the_mark_and_the_head() -> None:
    """A stop that is interrupted must already hold watch back; a follower may ignore SIGTERM."""
    cluster = serving(3)
    plan = plan_stop(cluster.observe(canary=False), "ada", 1.0)
    by_key = {operation.key: operation for operation in plan.operations}
    marks = {o.key for o in plan.operations if o.action is Action.RECORD}
    assert len(marks) == 3
    head = by_key["remove:rank/0@spark-1"]
    assert set(head.needs) == marks
    for number in (1, 2):
        assert head.key in by_key[f"remove:rank/{number}@spark-{number + 1}"].needs
    guards = [o for o in plan.operations if o.resource.startswith("memguard/")]
    assert len(guards) == 3
    for guard in guards:
        assert any(need.startswith("remove:rank/") for need in guard.needs), "the guard outlives its rank"


def test_a_humans_stop_that_is_fulfilled_is_no_failure() -> None:
    """What an apply would do does not matter; a rank that runs on, or a silent node, does."""
    cluster = serving()
    node, rank = cluster.rank(1)
    cluster.stop()
    found = status(cluster)
    assert found.state == "stopped"
    assert {node.state for node in found.nodes} == {"ok"}
    assert {rank.state for rank in found.ranks} == {"stopped"}
    node.images.clear()
    assert status(cluster).state == "stopped"
    node.containers[rank.spec.name] = rank
    assert status(cluster).state == "differs"
    node.answer = Answer.SILENT
    assert status(cluster).state == "unknown"


def test_an_api_that_was_not_asked_says_why() -> None:
    """The words alone looked like a fault of the API; it was a node that could not be read."""
    cluster = serving()
    cluster.node("spark-2").answer = Answer.SILENT
    found = status(cluster)
    assert (found.endpoint, found.endpoint_detail) == ("not asked", "spark-2 could not be read")
