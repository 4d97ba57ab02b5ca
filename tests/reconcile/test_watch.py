"""watch on simulated nodes and clock: what it mends, what it leaves alone, and that it stops trying."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from sparkop.errors import BlockedError, LeaseHeldError, SpecError, UnreachableError, WaitInterruptedError
from sparkop.hosts.base import Fence
from sparkop.hosts.simulated import SimulatedHost
from sparkop.node import file_act
from sparkop.reconcile.events import happened
from sparkop.reconcile.history import counts_against
from sparkop.reconcile.lease_seen import LeaseState, show_lease
from sparkop.reconcile.observe import Reading
from sparkop.reconcile.restrain import Asked, By
from sparkop.reconcile.watch.loop import once
from sparkop.reconcile.watch.story import Fault, entries_due, life_due, since
from sparkop.resources.liveness import Life, Verdict
from sparkop.resources.observed import History
from sparkop.serving.canary import EndpointState, Serving
from tests.reconcile.simulation import Cluster, spec_of
from tests.reconcile.test_destroy import destroyed
from tests.reconcile.watching import Watching, answers, entries, leased, serving, silent, watched

GROUP = ["1@spark-2", "0@spark-1"]
"""One start of the whole group: workers first."""


def test_at_rest_a_hundred_ticks_write_nothing() -> None:
    cluster = serving()
    before = len(cluster.world.writes)
    watching = Watching(cluster)
    assert not any(tick.acted for tick in watching.ticks(100))
    assert len(cluster.world.writes) == before
    assert watching.names() == ["group", "looked"]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("code", [0, 1, 137])
def test_a_rank_that_ends_replaces_the_group_once(rank: int, code: int) -> None:
    """Any exit code: a worker whose engine died can exit 0."""
    cluster, watching = watched()
    node, container = cluster.rank(rank)
    node.exit(container.spec.name, code)
    watching.ticks(10)
    assert cluster.started == GROUP
    starts = entries(cluster, "start")
    assert [entry["by"] for entry in starts] == ["human", "watch"]
    assert f"exited ({code})" in starts[-1]["why"]
    assert dict(watching.said)["acting"]["node"] == node.name
    assert dict(watching.said)["evidence"]["folder"].endswith("incidents/epoch-1")
    evidence = [path for path in cluster.node("spark-1").files if "incidents/epoch-1/" in path]
    assert {path.rpartition("/")[2] for path in evidence} >= {"group.json", "plan.json", "rank-0.log"}
    assert cluster.plan().converged


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
def test_the_rank_that_ended_first_is_the_cause(first: int, second: int) -> None:
    """The other one ends because of it, whatever its number is."""
    cluster, watching = watched()
    for rank, code in ((first, 137), (second, 0)):
        node, container = cluster.rank(rank)
        node.exit(container.spec.name, code)
        cluster.clock.sleep(2)
    watching.ticks(1)
    assert entries(cluster, "start")[-1]["why"] == f"rank/{first} state: exited (137) -> running"


@pytest.mark.parametrize("manner", ["wedge", "degenerate"])
def test_a_group_that_answers_no_tokens_is_replaced(manner: str) -> None:
    cluster, watching = watched(ticks=5)
    cluster.manner = manner
    healed: list[str] = []

    def start(node: Any, container: Any) -> None:
        cluster.manner = "serve"
        healed.append(container.spec.name)
        cluster.started_one(node, container)

    cluster.world.on_start = start
    watching.minutes(3)
    assert cluster.started == GROUP
    assert manner in entries(cluster, "start")[-1]["why"]
    assert cluster.plan().converged


def test_counters_that_move_are_no_wedge() -> None:
    """A long prefill or a full queue: no token for us for half an hour, and nothing is restarted."""
    cluster, watching = watched()
    _count_in_metrics(cluster, b"vllm:prompt_tokens_total")
    cluster.manner = "wedge"
    watching.minutes(30)
    assert cluster.started == []
    assert "slow" in [fields.get("verdict") for _, fields in watching.said]


def test_a_start_that_takes_long_is_left_alone() -> None:
    """Loading for nearly its whole deadline: nothing is restarted, and it is known as ready at the end."""
    cluster = Cluster.make(ready={"deadline": "45 min", "canary": {"deadline": "20 s"}})
    cluster.apply()
    cluster.started.clear()
    for name in ("history.json",):  # the controller that started it has died before it was ready
        path = next(p for p in cluster.node("spark-1").files if p.endswith(name))
        document = cluster.node("spark-1").document_of(path)
        document["entries"] = [e for e in document["entries"] if e["event"] != "ready"]
        cluster.node("spark-1").files[path] = (json.dumps(document).encode(), 0o644)
    watching = Watching(cluster)
    watching.ticks(4)
    assert cluster.started == []
    assert [entry["epoch"] for entry in entries(cluster, "ready")] == [1]


def test_a_silent_api_gets_five_minutes() -> None:
    cluster, watching = watched()
    service = cluster.node("spark-1").services
    service.pop(8000)
    watching.minutes(4)
    assert cluster.started == []
    watching.minutes(4)
    assert cluster.started == GROUP
    assert "silent" in entries(cluster, "start")[-1]["why"]


def test_a_connection_that_breaks_under_the_canary_is_no_fault_of_the_group() -> None:
    cluster = serving()
    watching = Watching(cluster)

    def broken(*_: Any) -> Any:
        raise UnreachableError("the connection broke", node="spark-1")

    node, _ = cluster.rank(0)
    service = node.services[8000]
    node.services[8000] = broken
    watching.minutes(15)
    assert cluster.started == []
    node.services[8000] = service
    watching.minutes(2)
    assert watching.watch.eye.life.verdict is Verdict.SERVING


def test_another_key_restarts_nothing() -> None:
    cluster, watching = watched()
    cluster.served_key = "another"
    watching.minutes(20)
    assert cluster.started == []
    assert [entry["what"] for entry in entries(cluster, "fault")] == ["rank/all@spark-1"]


def given_up() -> tuple[Cluster, Watching]:
    """A group whose rank 1 dies at every start, after forty minutes."""
    cluster, watching = watched()
    cluster.manner = "die on start of rank 1"
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 1)
    watching.minutes(40)
    return cluster, watching


def bad_cable(cluster: Cluster, watching: Watching) -> None:
    """A night in which a node goes away and comes back all the time."""
    for _ in range(110):
        silent(cluster)
        watching.ticks(3)
        answers(cluster)
        watching.ticks(3)


def remove_all(cluster: Cluster) -> None:
    """Every rank, by somebody's hand."""
    for node in cluster.world.nodes.values():
        for name in [name for name in node.containers if name.startswith("test-r")]:
            del node.containers[name]


def test_ranks_that_are_removed_again_and_again_cost_the_budget() -> None:
    """With no container left, each restart was taken for one by another spec: they went on for ever, without
    a pause. Only an edit begins anew."""
    cluster, watching = watched()
    for _ in range(3):
        remove_all(cluster)
        watching.ticks(4)
    assert len([e for e in entries(cluster, "start") if e["by"] == "watch"]) == 1
    (held,) = watching.watch.plan_of(cluster.observe()).held
    assert held.startswith("restart 2 of 4 in ")
    cluster.spec = spec_of(memory={"kvCache": "32 MiB"})
    Watching(cluster).ticks(4)
    assert cluster.plan().converged


def test_the_budget_pauses_grow_and_end() -> None:
    """Four restarts with pauses of 2, 5 and 15 minutes; then it stands still for ever, and says why."""
    cluster, watching = given_up()
    starts = [entry for entry in entries(cluster, "start") if entry["by"] == "watch"]
    pauses = [after["at"] - before["at"] for before, after in pairwise(starts)]
    assert len(starts) == 4
    assert [round(pause / 60) for pause in pauses] == pytest.approx([2, 5, 15], abs=3)
    assert all(pause >= least for pause, least in zip(pauses, (120, 300, 900), strict=True))
    fault = entries(cluster, "fault")[-1]
    assert fault["what"] == "rank/all@spark-1"
    assert "4 restarts did not last" in fault["text"]
    assert "sparkop apply" in fault["text"]
    cluster.manner = "serve"
    watching.minutes(20)
    assert len([e for e in entries(cluster, "start") if e["by"] == "watch"]) == 4
    cluster.apply()
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 1)
    watching.ticks(5)
    assert entries(cluster, "start")[-1]["by"] == "watch", "apply gives the budget back"
    assert cluster.plan().converged


@pytest.mark.parametrize("happen", ["restarted", "gave up", "history damaged"])
def test_an_apply_that_has_nothing_to_do_gives_the_budget_back_once(happen: str) -> None:
    """It left two restarts of four counted, and a watch that gave up for good. The second writes nothing."""
    cluster, watching = given_up() if happen == "gave up" else watched()
    cluster.manner = "serve"
    if happen == "restarted":
        _kill(cluster)
        watching.ticks(3)
    elif happen == "gave up":  # somebody starts the ranks by hand
        for rank in (1, 0):
            node, container = cluster.rank(rank)
            node.start(container)
    else:
        path = next(path for path in cluster.node("spark-1").files if path.endswith("history.json"))
        document = cluster.node("spark-1").document_of(path)
        document["entries"].append({"event": "damaged", "id": "damaged-1", "at": 0.0})
        cluster.node("spark-1").files[path] = (json.dumps(document).encode(), 0o600)
    assert counts_against(cluster.observe(canary=False).history)
    assert cluster.plan().converged
    cluster.started.clear()
    cluster.apply()
    assert not counts_against(cluster.observe(canary=False).history)
    assert cluster.started == []
    assert [each["event"] for each in entries(cluster)][-1] == "cleared"
    assert all(lease.released for lease in show_lease(cluster.spec, cluster.hosts()).values())  # type: ignore[union-attr]
    before = len(cluster.world.writes)
    cluster.apply()
    assert len(cluster.world.writes) == before
    _kill(cluster)
    Watching(cluster).ticks(5)
    assert cluster.started == GROUP


def _kill(cluster: Cluster) -> None:
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 137)


def test_ten_minutes_of_canaries_give_the_budget_back() -> None:
    """Faults that come after long service are no restart loop."""
    cluster = serving()
    watching = Watching(cluster)
    for _ in range(5):
        node, container = cluster.rank(1)
        node.exit(container.spec.name, 137)
        watching.minutes(15)
        assert cluster.plan().converged
    assert len(entries(cluster, "served")) == 5
    before = len(cluster.world.writes)
    watching.minutes(20)
    assert len(cluster.world.writes) == before


def test_a_human_stop_is_left_alone_until_apply() -> None:
    cluster, watching = watched()
    cluster.stop()
    before = len(cluster.world.writes)
    watching.minutes(20)
    assert cluster.started == []
    assert len(cluster.world.writes) == before
    assert "held" in watching.names()
    cluster.apply()
    assert cluster.started == GROUP
    watching.ticks(5)
    assert cluster.started == GROUP


def test_what_a_human_has_destroyed_is_not_made_again() -> None:
    """No download, no image, no rank, no folder, whether the watch saw the destroy or starts after it."""
    cluster, watching = watched()
    destroyed(cluster)
    before = len(cluster.world.writes)
    watching.minutes(20)
    Watching(cluster).minutes(5)
    assert len(cluster.world.writes) == before
    assert cluster.started == []
    told = [fields["text"] for event, fields in watching.said if event == "held"]
    assert "left alone until sparkop apply" in told[-1]
    cluster.apply()
    watching.ticks(5)
    assert cluster.started == GROUP
    assert cluster.plan().converged


def test_a_node_that_does_not_answer_is_held_and_told() -> None:
    """The survivor is not touched, even if the other rank can't be seen."""
    cluster, watching = watched()
    silent(cluster)
    watching.minutes(20)
    assert cluster.started == []
    assert cluster.rank(0)[1].running
    assert [entry["what"] for entry in entries(cluster, "fault")] == ["node@spark-2"]
    answers(cluster)
    watching.minutes(2)
    assert cluster.started == []
    assert [entry["what"] for entry in entries(cluster, "mended")] == ["node@spark-2"]


@pytest.mark.parametrize("names", [["spark-2"], ["spark-1"], ["spark-1", "spark-2"]])
def test_nodes_that_come_back_are_brought_in_again(names: list[str]) -> None:
    cluster, watching = watched()
    for name in names:
        cluster.node(name).reboot()
    watching.minutes(3)
    assert cluster.started == GROUP
    assert cluster.plan().converged


def test_power_cuts_are_not_held_against_the_group() -> None:
    """Each was charged like a crash: three in a stormy night, and the next one found watch had given up."""
    cluster, watching = watched()
    for _ in range(3):
        cluster.node("spark-2").reboot()
        watching.minutes(2)
        assert cluster.plan().converged, "at once"
    _kill(cluster)
    watching.ticks(5)
    assert cluster.plan().converged, "the first one that counts has no pause"
    restarts = cluster.observe(canary=False).history.restarts
    assert [each.booted for each in restarts] == [*3 * [("spark-2",)], ()]


def test_a_power_cut_after_crashes_has_no_pause() -> None:
    """Not before its entry is written either: the look that sees the boot starts the group."""
    cluster, watching = watched()
    _kill(cluster)
    watching.ticks(5)
    _kill(cluster)
    watching.minutes(3)
    assert cluster.plan().converged
    cluster.node("spark-2").reboot()
    assert not any(tick.plan.held for tick in watching.ticks(3))
    assert cluster.plan().converged
    assert [each.booted for each in cluster.observe(canary=False).history.restarts] == [(), (), ("spark-2",)]


def test_a_node_that_boots_again_and_again_has_an_end() -> None:
    """Memory runs out, the node freezes and boots: principle 4 knows no endless loops."""
    cluster, watching = watched()
    for _ in range(14):
        cluster.node("spark-2").reboot()
        watching.minutes(5)
    assert len([each for each in entries(cluster, "start") if each["by"] == "watch"]) == 3 + 4
    gone = cluster.observe(canary=False).history.gave_up
    assert gone is not None
    assert gone.why.startswith("4 restarts did not last (spark-2 booted anew, 4 times); "), "no exit codes"
    assert {each.why for each in gone.tried} == {"spark-2 booted anew"}


def test_a_dead_guard_comes_before_the_group() -> None:
    cluster, watching = watched()
    node = cluster.node("spark-2")
    node.containers.pop("test-memguard")
    rank_node, container = cluster.rank(1)
    rank_node.exit(container.spec.name, 137)
    first = len(cluster.world.writes)
    watching.ticks(6)
    runs = [write.target for write in cluster.world.writes[first:] if write.action == "container.run"]
    assert runs[0] == "test-memguard"
    assert cluster.started == GROUP


@pytest.mark.parametrize("file", ["trip.json", "trip.draft"])
@pytest.mark.parametrize("hashed", ["as now", "with a rail more"])
def test_numbers_that_the_guard_has_stopped_are_not_launched_again(hashed: str, file: str) -> None:
    """A rail that was lost since the start changes the containers, but not the numbers; and the record may
    lie in its draft for long, when the guard was killed right after the ranks."""
    cluster, watching = watched()
    _, container = cluster.rank(1)
    if hashed != "as now":
        labels = {**container.spec.labels, "sparkop.hash": "v1:" + "0" * 64}
        container.spec = replace(container.spec, labels=labels)
    node = cluster.node("spark-2")
    node.exit(container.spec.name, 137)
    path = next(p for p in node.files if p.endswith("lease.json")).replace("lease.json", file)
    trip = {
        "hashes": [container.spec.labels["sparkop.hash"]],
        "at": cluster.clock.now,
        "available": 1,
        "floor": 2,
    }
    node.files[path] = (json.dumps(trip).encode(), 0o644)
    watching.minutes(30)
    assert cluster.started == []
    assert entries(cluster, "fault")[0]["what"] == "trip@spark-2"


def test_a_physical_fault_is_told_and_not_restarted_around() -> None:
    cluster, watching = watched()
    fabric = cluster.node("spark-2").fabric
    for device in fabric["devices"]:
        device["state"] = "DOWN"
    for interface in fabric["interfaces"]:
        interface.update(carrier=False, operstate="down")
    watching.minutes(20)
    assert cluster.started == []
    assert entries(cluster, "fault")[0]["what"] == "fabric@spark-2"


def test_it_stands_aside_for_a_writer_that_lives() -> None:
    """apply works: its lease moves between two ticks, and watch does not even ask for it."""
    cluster, watching = watched(ticks=2)
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 137)
    for beat in range(20):
        leased(cluster, beat)
        watching.ticks(1)
    assert cluster.started == []
    assert "standing-aside" in watching.names()
    assert "planned" not in watching.names(), "another does it"
    watching.minutes(10)
    assert cluster.started == GROUP, "a writer that stands still is dead"


def test_nobody_says_that_all_is_well_while_another_works() -> None:
    """``looked converged=True`` stood between two steps of an apply."""
    cluster = serving()
    watching = Watching(cluster)
    for beat in range(6):
        leased(cluster, beat)
        watching.ticks(1)
    assert "looked" not in watching.names()
    watching.minutes(1)
    assert ("looked", {"nodes": 2, "of": 2, "converged": True}) in watching.said, "a dead one keeps nothing"


def test_it_yields_to_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """apply asks while watch waits for a slow start: the start goes on, the lease is given back."""
    monkeypatch.setattr("sparkop.reconcile.lease.HEARTBEAT", 0.02)
    cluster, watching = watched(ticks=2)
    cluster.manner = "loading"
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 137)
    path = next(p for p in node.files if p.endswith("lease.json"))
    fence = Fence("test", "ada", 99, path.rpartition("/")[0])
    said = watching.watch.teller.say

    def say(event: str, **fields: Any) -> None:
        said(event, **fields)
        if event == "wait-started" and fields["resource"] == "endpoint":
            SimulatedHost(node).act("lease.ask", {"info": {"command": "apply"}}, fence)

    watching.watch.teller.say = say
    began = cluster.clock.now
    tick = watching.watch.tick()
    assert tick.acted
    assert tick.trouble is None
    assert ("yielding", {"to": "ada (apply)"}) in watching.said
    assert not any(event.endswith("failed") for event in watching.names())
    assert cluster.clock.now - began < 300, "it did not wait for the whole deadline"
    assert node.document_of(path)["released"]
    assert not watching.watch.tick().acted
    assert node.document_of(path)["released"], "it had been taken anew before the asker looked"
    with pytest.raises(LeaseHeldError):
        once(watching.watch)
    cluster.manner = "serve"
    watching.minutes(1)
    watching.ticks(5)
    assert cluster.started == GROUP
    assert cluster.plan().converged


def test_another_writer_that_was_quicker_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two watches of one cluster: one of them said "failed" for what the other was mending."""
    cluster, watching = watched(ticks=2)
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 137)

    def hold(*_: Any, **__: Any) -> Any:
        raise LeaseHeldError("another sparkop writes to this cluster", cause="held by bob@desk (watch)")

    monkeypatch.setattr("sparkop.reconcile.watch.loop.hold", hold)
    watching.ticks(1)
    asides = [fields for event, fields in watching.said if event == "standing-aside"]
    assert asides == [{"why": "another sparkop writes to this cluster: held by bob@desk (watch)"}]
    assert "failed" not in watching.names()


def test_what_could_not_be_mended_is_told_with_its_node() -> None:
    """``it has booted anew``: who?"""
    cluster, watching = watched()
    cluster.manner = "die on start of rank 1"
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 1)
    watching.ticks(2)
    [failed] = [each.text for each in happened(cluster.observe(canary=False)) if each.event == "failed"]
    assert failed.startswith("watch could not mend it: spark-2: rank 1 exited (1) before it served")


def test_dry_run_writes_nothing() -> None:
    cluster = serving()
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 137)
    before = len(cluster.world.writes)
    watching = Watching(cluster, dry_run=True)
    watching.ticks(5)
    assert len(cluster.world.writes) == before
    assert "planned" in watching.names()


def test_once_heals_and_says_what_remains() -> None:
    cluster = serving()
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 0)
    once(Watching(cluster, steps_aside=False).watch)
    assert cluster.started == GROUP
    node.exit(container.spec.name, 0)
    with pytest.raises(BlockedError, match=r"^restart 2 of 4 in \d+ s: the one before did not last"):
        once(Watching(cluster, steps_aside=False).watch)
    cluster.apply()
    silent(cluster)
    with pytest.raises(UnreachableError):
        once(Watching(cluster, steps_aside=False).watch)
    answers(cluster)
    cluster.served_key = "another"
    with pytest.raises(BlockedError):
        once(Watching(cluster, steps_aside=False).watch)


def test_once_writes_down_what_it_finds_and_that_it_has_given_up() -> None:
    """From cron, events ended with the last restart, and status knew of no end of them."""
    cluster = serving()
    asked = Asked(By.WATCH, pauses=(1.0,))
    node, container = cluster.rank(1)
    for _ in range(2):
        node.exit(container.spec.name, 0)
        once(Watching(cluster, asked=asked, steps_aside=False).watch)
        cluster.clock.sleep(2.0)
    node.exit(container.spec.name, 0)
    watching = Watching(cluster, asked=asked, steps_aside=False)
    with pytest.raises(BlockedError, match=r"^watch gave up$"):  # the event has said the rest
        once(watching.watch)
    [told] = [fields["text"] for event, fields in watching.said if event == "fault"]
    assert told.startswith("gave up: 2 restarts did not last (spark-2 rank/1 exited (0), 2 times); ")
    assert cluster.observe(canary=False).history.gave_up is not None
    before = len(cluster.world.writes)
    with pytest.raises(BlockedError, match="gave up"):
        once(Watching(cluster, asked=asked, steps_aside=False).watch)
    assert len(cluster.world.writes) == before, "it is known"


def test_events_tell_the_story() -> None:
    cluster = serving()
    watching = Watching(cluster)
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 137)
    watching.minutes(15)
    cluster.stop()
    story = happened(cluster.observe(canary=False))
    told = [each for each in story if each.event != "pulled"]
    assert [each.event for each in told] == ["start", "ready", "restart", "ready", "served", "stop"]
    assert [each.text for each in told] == [
        "a command began to start the ranks (group 1): spark-1, rank/0 container is missing, not running",
        told[1].text,
        "watch began to replace the ranks (group 2): spark-2, rank/1 state is exited (137), not running; "
        "incidents/epoch-1 on the head tells of the one before",
        told[3].text,
        "group 2 has served for ten minutes: earlier restarts count no more",
        told[5].text,
    ]
    assert told[1].text.startswith("group 1 served its first token after ")
    assert told[5].text.endswith("; watch leaves it alone")


def test_events_say_in_plain_words_that_watch_gave_up_and_apply_ends_it() -> None:
    """It was a ``fault`` of the head with three levels of arrows, and over long after the apply."""
    cluster, watching = given_up()
    [gone] = [each for each in happened(cluster.observe(canary=False)) if each.event == "gave-up"]
    assert gone.text == (
        "watch gave up: 4 restarts did not last (spark-2 rank/1 exited (1), 4 times); "
        "sparkop events and sparkop logs tell why; when it is mended: sparkop apply"
    )
    cluster.manner = "serve"
    cluster.apply()
    watching.minutes(3)
    story = [each for each in happened(cluster.observe(canary=False)) if "rank/1 is down" not in each.text]
    assert [each.event for each in story][-3:] == ["gave-up", "start", "ready"]


def test_a_group_that_serves_again_after_watch_gave_up_is_told_in_full() -> None:
    """Somebody started the ranks by hand. The text was cut in the middle of what had been tried."""
    cluster, watching = given_up()
    cluster.manner = "serve"
    for rank in (1, 0):
        node, container = cluster.rank(rank)
        node.start(container)
    watching.minutes(3)
    [over] = [each for each in happened(cluster.observe(canary=False)) if each.event == "mended"][-1:]
    assert over.text == (
        "the group: that is over: gave up: 4 restarts did not last (spark-2 rank/1 exited (1), 4 times)"
    )


@pytest.mark.parametrize("hidden", ["docker", "node"])
def test_a_node_that_nobody_can_read_ends_no_giving_up(hidden: str) -> None:
    """A power cut was told as the end of it, and a second giving up when the node was back."""
    cluster, watching = given_up()
    node = cluster.node("spark-2")
    if hidden == "docker":
        node.docker_up = False
    else:
        silent(cluster)
    watching.minutes(3)
    node.docker_up = True
    answers(cluster)
    watching.minutes(3)
    story = happened(cluster.observe(canary=False))
    assert [each.event for each in story].count("gave-up") == 1
    assert not [each.text for each in story if each.event == "mended" and "gave up" in each.text]


def test_a_spec_that_is_refused_before_it_was_tried_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one before is there. What is refused later, when it runs already, is told, and watched on."""

    def refused(*_: object) -> None:
        raise SpecError("too large for these nodes")

    cluster = serving()
    cluster.spec = spec_of(engine={"kind": "vllm", "context": 16384})
    with monkeypatch.context() as patch:
        patch.setattr("sparkop.reconcile.watch.loop.refuse", refused)
        with pytest.raises(SpecError, match="too large"):
            Watching(cluster, instead=True).ticks(1)
    assert cluster.started == []
    leases = show_lease(cluster.spec, cluster.hosts()).values()
    assert all(lease.released for lease in leases)  # type: ignore[union-attr]
    watching = Watching(cluster, instead=True)
    watching.ticks(3)
    assert cluster.started == GROUP
    _kill(cluster)
    with monkeypatch.context() as patch:
        patch.setattr("sparkop.reconcile.watch.loop.refuse", refused)
        ticks = watching.minutes(3)
    assert any(isinstance(tick.trouble, SpecError) for tick in ticks)


def test_a_group_that_was_stopped_is_not_told_to_serve_afterwards() -> None:
    """A stop during a restart by watch: "served its first token" stood after it, when all was removed."""
    cluster, watching = watched()
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 137)
    watching.ticks(1)
    path = next(path for path in cluster.node("spark-1").files if path.endswith("history.json"))
    history = cluster.node("spark-1").document_of(path)
    history["entries"] = [e for e in history["entries"] if e["id"] != "ready-2"]  # it was broken off
    cluster.node("spark-1").files[path] = (json.dumps(history).encode(), 0o600)
    cluster.stop()
    watching.minutes(15)
    assert [entry["epoch"] for entry in entries(cluster, "ready")] == [1]
    assert not entries(cluster, "served")


def test_a_first_token_is_told_at_its_own_time() -> None:
    """Nobody saw the start to its end, and another writer held the lease meanwhile."""
    life = Life(epoch=2, verdict=Verdict.SERVING, served_since=40.0)
    [ready] = life_due(life, Serving.READY, History(epoch=2), 100.0, 1060.0)
    assert (ready["event"], ready["at"]) == ("ready", 1000.0)
    assert life_due(life, Serving.NOT_ASKED, History(epoch=2), 100.0, 1060.0) == []


def test_a_fault_is_told_with_the_words_of_its_own_time() -> None:
    """A node without power that boots: "refused the connection" bore the time of "no route"."""
    first = since({"node@spark-2": Fault("spark-2", "no route")}, {}, 1.0, ())
    later = since({"node@spark-2": Fault("spark-2", "refused")}, first, 11.0, ())
    last = since({"node@spark-2": Fault("spark-2", "hangs up")}, later, 21.0, ())
    [entry] = entries_due([], later, last, 21.0)
    assert (entry["at"], entry["text"]) == (1.0, "no route")
    assert last["node@spark-2"].text == "hangs up"


def test_events_name_faults_by_node_and_say_when_they_are_over() -> None:
    cluster, watching = watched()
    silent(cluster)
    watching.minutes(2)
    answers(cluster)
    watching.minutes(2)
    story = [each for each in happened(cluster.observe(canary=False)) if each.event in ("fault", "mended")]
    assert story[0].text.startswith("spark-2: The node does not answer")
    assert story[1].text == "spark-2: that is over: The node does not answer: no answer within 10 s"


def test_the_story_is_bounded() -> None:
    """Two hundred entries, none longer than a few lines: months of a bad cable must not fill the head."""
    cluster, watching = watched()
    bad_cable(cluster, watching)
    assert len(entries(cluster)) == 200
    assert all(len(json.dumps(entry)) < 1500 for entry in entries(cluster))


def test_a_night_of_a_bad_cable_gives_no_restart_back() -> None:
    """Hundreds of faults that come and go push neither the count of restarts nor the group's number out."""
    cluster, watching = given_up()
    cluster.manner = "serve"
    before = cluster.observe(canary=False).history
    assert len(before.restarts) == 4
    cluster.started.clear()
    bad_cable(cluster, watching)
    assert len(entries(cluster)) == 200
    assert cluster.started == [], "it had given up"
    after = cluster.observe(canary=False).history
    assert (after.epoch, after.generation, after.restarts) == (
        before.epoch,
        before.generation,
        before.restarts,
    )
    assert after.gave_up is not None


def test_a_history_of_nothing_but_restarts_still_takes_a_fault() -> None:
    starts = [{"id": f"s{number}", "event": "start"} for number in range(200)]
    fault = {"id": "f", "event": "fault"}
    kept = file_act.newest([*starts, fault], 200)
    assert kept == [*starts[1:], fault]
    mended = [{"id": f"m{number}", "event": "mended"} for number in range(300)]
    assert file_act.newest([*starts, fault, *mended], 200) == [*starts[100:], *mended[200:]]


def _count_in_metrics(cluster: Cluster, name: bytes) -> None:
    """A counter that grows at every look."""
    before = cluster.answer
    count = 0

    def answer(node: Any, container: Any, method: str, path: str, *rest: Any) -> Any:
        nonlocal count
        if path == "/metrics":
            count += 100
            return 200, [b"vllm:generation_tokens_total 7\n", name + b" %d\n" % count]
        return before(node, container, method, path, *rest)

    node, container = cluster.rank(0)
    node.services[8000] = lambda *request: answer(node, container, *request)


def test_once_leaves_when_it_is_told_to_whatever_is_not_known_yet() -> None:
    """It went on until the canary's end, without a pause: 93 s after a SIGTERM from cron's timeout."""
    cluster = serving()
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 0)
    watching = Watching(cluster, steps_aside=False)
    watching.watch.stop.set()
    with pytest.raises(WaitInterruptedError):
        once(watching.watch)


@pytest.mark.parametrize("look", [1, 2])
def test_a_node_that_hangs_keeps_nobody_from_stopping_the_watch(
    look: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first Ctrl-C took as long as the node's silence, half a minute; the second look holds the lease."""
    cluster = serving()
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 0)
    watching = Watching(cluster)
    watch, over, looked, answered = watching.watch, threading.Event(), [], []

    def hang(look_at: Callable[[], Reading] = watch.eye.look) -> Reading:
        looked.append(1)
        if len(looked) == look:
            watch.stop.set()
            over.wait(10)
            answered.append(1)
        return look_at()

    monkeypatch.setattr(watch.eye, "look", hang)
    monkeypatch.setattr("sparkop.reconcile.watch.loop.Triggers", lambda *_: nullcontext())
    assert watch.run() is False
    assert (len(looked), answered, cluster.started) == (look, [], [])
    over.set()
    leases = show_lease(cluster.spec, cluster.hosts()).values()
    assert all(isinstance(lease, LeaseState) and lease.released for lease in leases)
    assert "failed" not in watching.names()


def test_one_bad_answer_is_told_as_what_it_was() -> None:
    """A token repeated was told as a busy API, and as converged beside it."""
    cluster = serving()
    cluster.manner = "degenerate"
    watching = Watching(cluster, dry_run=True)
    watching.ticks(1)
    assert watching.names() == ["group", "note"]
    assert (
        watching.said[1][1]["text"]
        == "spark-1: the API gave no good tokens: one answer was degenerate: only '!', 8 times"
    )
    cluster.manner = "serve"
    watching.ticks(1)
    assert watching.said[-1] == ("looked", {"nodes": 2, "of": 2, "converged": True})


def test_a_warning_that_becomes_a_wedge_is_not_told_to_be_over() -> None:
    """``note-over ... gave no good tokens`` stood beside ``verdict=wedged``."""
    cluster, watching = watched(ticks=2)
    cluster.manner = "wedge"
    while not watching.acts:
        watching.ticks(1)
    assert "note" in watching.names()
    assert "note-over" not in watching.names()
    cluster.manner = "serve"
    watching.minutes(3)
    assert "note-over" not in watching.names(), "its restart has told it"


def test_nobody_says_that_all_is_well_before_a_token_came() -> None:
    """``verdict=unknown`` and ``converged=True`` stood one below the other."""
    asked: list[Callable[[], EndpointState]] = []

    class Slow:
        def __init__(self, call: Callable[[], EndpointState], _name: str) -> None:
            asked.append(call)

        def result(self, timeout: float | None = None) -> EndpointState:
            if timeout:
                raise TimeoutError
            return asked[-1]()

    watching = Watching(serving(), dry_run=True, begin=Slow)
    watching.ticks(1)
    assert watching.said == [("group", {"verdict": "unknown"})]
    watching.ticks(1)
    assert watching.names() == ["group", "group", "looked"]


@pytest.mark.parametrize("hosts", [["spark-2"], ["spark-1", "spark-2"]])
def test_a_short_power_cut_is_told_as_that(hosts: list[str]) -> None:
    """Only a rank that exited was told; told once."""
    cluster, watching = watched()
    for host in hosts:
        cluster.node(host).reboot()
    watching.minutes(3)
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 1)
    watching.minutes(10)
    told = [(each.event, each.node) for each in happened(cluster.observe()) if each.event != "ready"]
    assert told[-2 - len(hosts) :] == [
        *(("booted", host) for host in hosts),
        ("restart", hosts[0]),
        ("restart", "spark-2"),
    ]
    texts = [each.text for each in happened(cluster.observe()) if each.event == "booted"]
    assert texts[-1] == "spark-2 has booted anew: a reboot or a power cut ended what ran there"


@pytest.mark.parametrize("edited", ["off", "back"])
def test_an_edit_of_the_spec_while_a_node_is_off_loses_neither_its_boot_nor_its_fault(edited: str) -> None:
    """The watch of the edited spec took the new boot id for known: the restart counted against the budget."""
    cluster, watching = watched()
    silent(cluster)
    watching.ticks(1)
    if edited == "off":
        watching = Watching(cluster, known=watching.watch.known)
        watching.ticks(1)
    answers(cluster)
    cluster.node("spark-2").reboot()
    watching = Watching(cluster, known=watching.watch.known)
    watching.minutes(3)
    assert [each["node"] for each in entries(cluster, "booted")] == ["spark-2"]
    assert [each["what"] for each in entries(cluster, "fault")] == ["node@spark-2"]
    assert [each["what"] for each in entries(cluster, "mended")] == ["node@spark-2"]
    [restart] = cluster.observe(canary=False).history.restarts
    assert restart.booted == ("spark-2",), "it has no pause"


def test_a_head_that_hangs_is_left_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    over, answered = threading.Event(), []

    def hang(*_: object, **__: object) -> None:
        over.wait(10)
        answered.append(1)

    watching = Watching(serving())
    watching.watch.sign(watching.ticks(1)[0].reading)
    monkeypatch.setattr("sparkop.reconcile.watch.loop.tell_watching", hang)
    watching.watch.leave()
    assert not answered
    over.set()
