"""What breaks while watch waits for a start, or for less than one look: told, and remembered."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from sparkop.reconcile.events import happened
from sparkop.reconcile.status import status_of
from sparkop.reconcile.watch.eye import Rhythm
from tests.reconcile.simulation import Cluster
from tests.reconcile.watching import (
    Watching,
    answers,
    entries,
    plugged_in,
    serving,
    silent,
    unplugged,
    watched,
)

Faulty = tuple[str, Callable[[Cluster], None], Callable[[Cluster], None]]
FAULTY: list[Faulty] = [("node@spark-2", silent, answers), ("fabric@spark-2", unplugged, plugged_in)]


def remembered(cluster: Cluster) -> list[tuple[str, str]]:
    return [
        (each.event, each.text.partition(":")[0])
        for each in happened(cluster.observe(canary=False))
        if each.event in ("fault", "mended")
    ]


@pytest.mark.parametrize(("what", "breaks", "mends"), FAULTY)
def test_what_breaks_while_a_start_is_waited_for_is_told_then(
    what: str,
    breaks: Callable[[Cluster], None],
    mends: Callable[[Cluster], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Watch was silent for a minute about a node without power, and for as long as it took about a cable."""
    cluster, watching = watched(ticks=2, rhythm=Rhythm(period=0.05))
    said, sleep = watching.watch.teller.say, cluster.clock.sleep
    mended = threading.Event()

    def until_mended(seconds: float) -> None:
        if threading.current_thread().name != "beside":
            assert mended.wait(10), "watch is silent about it"
        sleep(seconds)

    def say(event: str, **fields: Any) -> None:
        said(event, **fields)
        if event == "wait-started" and fields["resource"] == "endpoint":
            breaks(cluster)
            monkeypatch.setattr(cluster.clock, "sleep", until_mended)
        elif event == "fault":
            mends(cluster)
        elif event == "mended":
            cluster.manner = "serve"
            mended.set()

    watching.watch.teller.say = say
    cluster.manner = "loading"
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 137)
    watching.ticks(1)
    after = watching.names()[watching.names().index("acting") :]
    assert after.index("fault") < after.index("mended") < after.index("serving")
    assert [fields["what"] for event, fields in watching.said if event == "mended"] == [what]
    watching.ticks(2)
    assert [entry["what"] for entry in entries(cluster, "mended")] == [what], "events tells it too"
    assert cluster.plan().converged


@pytest.mark.parametrize(("what", "breaks", "mends"), FAULTY)
def test_a_fault_that_one_look_has_seen_is_in_the_story(
    what: str, breaks: Callable[[Cluster], None], mends: Callable[[Cluster], None]
) -> None:
    """A cable that was out for less than a period was told on stdout, and ``events`` did not know of it."""
    cluster, watching = watched()
    breaks(cluster)
    watching.ticks(1)
    mends(cluster)
    watching.ticks(3)
    place = "spark-2" if what == "node@spark-2" else "spark-2, fabric"
    assert remembered(cluster) == [("fault", place), ("mended", place)]
    [fault], [mended] = entries(cluster, "fault"), entries(cluster, "mended")
    assert fault["at"] < mended["at"]
    before = len(cluster.world.writes)
    watching.ticks(10)
    assert len(cluster.world.writes) == before


def test_a_fault_that_was_over_before_a_restart_stands_before_it_in_the_story() -> None:
    """A node lost power and came back: "that is over" stood after the group served again, minutes later."""
    cluster, watching = watched()
    silent(cluster)
    watching.ticks(2)
    answers(cluster)
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 255)
    watching.ticks(3)
    told = {each.event: each.at for each in happened(cluster.observe(canary=False))}
    assert told["fault"] < told["mended"] <= told["restart"] < told["ready"]


def test_a_fault_that_comes_and_goes_at_every_look_does_not_fill_the_story() -> None:
    cluster, watching = watched()
    until = cluster.clock.now + 1800
    while cluster.clock.now < until:
        silent(cluster)
        watching.ticks(1)
        answers(cluster)
        watching.ticks(1)
    assert 3 <= len(entries(cluster, "fault")) <= 12


def test_a_fault_that_was_over_while_another_wrote_is_remembered_afterwards() -> None:
    """apply works for a while: the entry waits for it."""
    cluster, watching = watched()
    silent(cluster)
    watching.ticks(1)
    answers(cluster)
    watching.watch._yields_until = cluster.clock.now + 30
    watching.ticks(2)
    assert remembered(cluster) == []
    watching.minutes(1)
    assert remembered(cluster) == [("fault", "spark-2"), ("mended", "spark-2")]


@pytest.mark.parametrize("anew", [False, True])
def test_a_cable_is_not_mended_when_its_node_does_not_answer(anew: bool) -> None:
    """``that is over`` was told of the cable of a node without power. ``anew``: another watch goes on."""
    cluster, watching = watched(ticks=2)
    unplugged(cluster)
    watching.ticks(3)
    silent(cluster)
    watching = Watching(cluster) if anew else watching
    watching.ticks(4)
    assert remembered(cluster) == [("fault", "spark-2, fabric"), ("fault", "spark-2")]
    assert "mended" not in watching.names()
    answers(cluster)
    plugged_in(cluster)
    watching.ticks(3)
    assert {place for event, place in remembered(cluster) if event == "mended"} == {
        "spark-2",
        "spark-2, fabric",
    }


@pytest.mark.parametrize("own", [True, False])
def test_a_reboot_that_ends_the_wait_for_a_start_is_told_once_and_is_no_failure(
    own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``watch could not mend it``, a pause and the remedy of apply were told; 15 s later it had mended it.
    ``own``: the start is a restart by watch, else one by an apply that was interrupted."""
    cluster = serving() if own else Cluster.make()
    watching = Watching(cluster)
    if own:
        watching.ticks(2)
        node, container = cluster.rank(1)
        node.exit(container.spec.name, 137)
        cluster.manner = "loading"
    else:
        cluster.begin()
    sleep, waits = cluster.clock.sleep, list[float]()

    def boots_in_the_wait(seconds: float) -> None:
        if ("wait-started", {"node": "spark-1", "resource": "endpoint"}) in watching.said:
            waits.append(seconds)
            if len(waits) == 10:
                cluster.node("spark-2").reboot()
                cluster.manner = "serve"
        sleep(seconds)

    monkeypatch.setattr(cluster.clock, "sleep", boots_in_the_wait)
    watching.ticks(1)
    assert watching.names()[-2:] == ["wait-left", "remembered"]
    began = cluster.clock.now
    watching.minutes(3)
    assert "serving" in watching.names()
    assert own or cluster.started[-2:] == ["1@spark-2", "0@spark-1"]
    assert not {"failed", "wait-failed"} & {*watching.names()}
    assert not any("did not help" in fields["text"] for event, fields in watching.said if event == "held")
    story = [each for each in happened(cluster.observe(canary=False)) if "booted" in each.text]
    assert [each.event for each in story] == ["booted"]
    assert story[0].at <= began


def test_a_rank_that_is_down_beside_a_cable_is_told() -> None:
    """It was in no line and no entry, and status said that its node is ok."""
    cluster, watching = watched(ticks=2)
    unplugged(cluster)
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 137)
    watching.ticks(3)
    told = [
        fields["text"] for event, fields in watching.said if event == "fault" and "rank/1" in fields["text"]
    ]
    assert told == ["rank/1 is down: exited (137); it is started when the other faults are mended"]
    assert ("fault", "spark-2, rank/1") in remembered(cluster)
    rows = status_of(cluster.observe(), cluster.plan()).nodes[1].resources
    [rank] = [each for each in rows if each.resource == "rank"]
    assert (rank.state, rank.detail) == ("differs", "rank/1 state: exited (137) -> running")
    assert not watching.acts[1:], "what is in the way holds the restart back"
    plugged_in(cluster)
    watching.ticks(5)
    assert ("mended", "spark-2, rank/1") in remembered(cluster)
    assert cluster.plan().converged


def killed(cluster: Cluster) -> None:
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 137)


def in_a_pause() -> Cluster:
    """A group that was restarted once, and broke again before its next restart is allowed."""
    cluster, watching = watched(ticks=2)
    killed(cluster)
    watching.ticks(3)
    killed(cluster)
    watching.ticks(2)
    assert watching.watch.plan_of(cluster.observe()).held
    return cluster


def test_a_rank_that_ends_in_a_pause_between_restarts_is_told_at_once() -> None:
    """For up to fifteen minutes it was in no event: only that a restart waits."""
    cluster = in_a_pause()
    [told] = [each for each in entries(cluster, "fault") if each["what"] == "rank/1@spark-2"]
    assert told["text"] == "rank/1 is down: exited (137); it waits for its restart"
    assert cluster.clock.now - told["at"] < 30


def test_a_boot_that_no_watch_saw_is_told_and_costs_no_restart() -> None:
    """Watch was started after it, and waited for the pause of the restart before. A rank that dies while its
    node stays up is charged as ever."""
    cluster = in_a_pause()
    assert not entries(cluster, "booted"), "a dead rank alone is no boot"
    assert Watching(cluster).ticks(1)[0].plan.held
    cluster.node("spark-2").reboot()
    cluster.node("spark-1").reboot()
    watching = Watching(cluster)
    assert not any(tick.plan.held for tick in watching.ticks(2))
    assert cluster.plan().converged
    assert {each["node"] for each in entries(cluster, "booted")} == {"spark-1", "spark-2"}
    restarts = cluster.observe(canary=False).history.restarts
    assert [set(each.booted) for each in restarts] == [set(), {"spark-1", "spark-2"}]
    killed(cluster)
    assert Watching(cluster).ticks(1)[0].plan.held
    assert len(entries(cluster, "booted")) == 2


def test_a_node_that_boots_soon_after_a_restart_is_told_and_its_group_started() -> None:
    """Its new boot id was taken for known before anything was written down. A boot has no pause."""
    cluster, watching = watched(ticks=2)
    killed(cluster)
    watching.ticks(3)
    cluster.node("spark-2").reboot()
    watching.ticks(2)
    assert [each["node"] for each in entries(cluster, "booted")] == ["spark-2"]
    assert watching.watch.plan_of(cluster.observe()).converged
