"""A group that serves nothing says why and what to do, in text and in JSON; whether a watch runs is not
known where nobody could tell."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sparkop.hosts.simulated_node import Answer
from sparkop.reconcile import status as statuses
from sparkop.reconcile.plan import Plan
from sparkop.reconcile.reconcile import reconcile
from sparkop.reconcile.restrain import Asked, By
from sparkop.reconcile.status import Status, status_of
from sparkop.reconcile.unserved import DRIFTED, mends
from sparkop.resources.group import KEY_REMEDY
from sparkop.resources.operations import Action, Blocker, Cause
from sparkop.serving.canary import EndpointState, Serving
from sparkop.serving.token_zero import Explained
from sparkop.views.outcomes import show_destroyed, show_stopped
from sparkop.views.status import show_status
from tests.reconcile.simulation import SIMULATED, Cluster
from tests.reconcile.test_destroy import destroyed
from tests.reconcile.test_status import status
from tests.reconcile.watching import Watching, answers, serving, silent, watched
from tests.reconcile.worlds import CHANGES


def told(found: Status) -> tuple[str, str, str]:
    return found.endpoint, found.endpoint_detail, found.endpoint_remedy


def signed(watching: Watching, ticks: int = 1) -> None:
    for tick in watching.ticks(ticks):
        watching.watch.sign(tick.reading)


def dead(cluster: Cluster) -> None:
    node, rank = cluster.rank(1)
    node.exit(rank.spec.name, 137)


DEAD = "rank 1 on spark-2 exited (137)"
PLUG = "on spark-2: plug the cable in, or check the other end: no fabric link is up"


def test_a_dead_group_says_which_rank_and_what_to_do() -> None:
    cluster = serving()
    dead(cluster)
    assert told(status(cluster)) == (
        "not serving",
        DEAD,
        "sparkop logs tells why; sparkop apply starts it again",
    )


def test_what_differs_beside_a_group_that_serves_has_a_next_step() -> None:
    """A dead guard, an image that is gone and a wrong MTU were told without one."""
    cluster = serving()
    assert told(status(cluster))[0::2] == ("ready", "")
    cluster.node("spark-2").images.clear()
    assert told(status(cluster))[0::2] == ("ready", DRIFTED)
    CHANGES["interfaces"](cluster.node("spark-2"), {0: {"mtu": 1500}})
    word, _, remedy = told(status(cluster))
    assert word == "ready"
    assert remedy.startswith("on spark-2: sudo ip link set dev enp1s0f0np0 mtu 9000;")


def test_what_is_in_the_way_of_a_start_is_looked_for_first() -> None:
    """An apply would be blocked, too."""
    cluster = serving()
    dead(cluster)
    CHANGES["rails_down"](cluster.node("spark-2"), [0, 1])
    assert told(status(cluster)) == ("not serving", DEAD, PLUG)


def test_a_pulled_cable_says_what_diff_says() -> None:
    """ "Not asked (the fabric is not known)", and what to do was told by diff only."""
    cluster = serving()
    CHANGES["rails_down"](cluster.node("spark-2"), [0, 1])
    word, detail, remedy = told(status(cluster))
    assert (word, detail, remedy) == ("not asked", "the fabric of spark-2 can't carry a rank", PLUG)
    CHANGES["rails_down"](cluster.node("spark-1"), [0, 1])
    assert told(status(cluster))[2] == PLUG.replace("spark-2", "spark-1, spark-2"), "once for both ends"


def answering(serving_: Serving, *, watched_by: float | None = None) -> tuple[str, str, str]:
    """What is told of a group that has served, and now answers so; with a watch's pause, if one lives."""
    cluster, watching = watched(asked=Asked(By.WATCH, pauses=(watched_by or 60.0,)))
    if watched_by is not None:
        signed(watching)
    reading = cluster.observe()
    state = EndpointState(serving_, "what it said")
    reading = replace(reading, observed=replace(reading.observed, endpoint=state))
    plan = reconcile(reading.desired, reading.observed, reading.history, cluster.clock.time(), SIMULATED)
    return told(status_of(reading, plan, SIMULATED))


AGAIN = "sparkop logs tells why; sparkop apply starts it again"


@pytest.mark.parametrize(
    ("state", "word", "remedy"),
    [
        (Serving.WEDGED, "wedged", AGAIN),
        (Serving.BROKEN, "broken", AGAIN),
        (Serving.DEGENERATE, "degenerate", "sparkop apply starts all ranks again"),
        (Serving.GPU_LOST, "GPU lost", AGAIN),
        (Serving.SILENT, "silent", "sparkop logs tells why; sparkop apply waits for its tokens"),
        (Serving.LOADING, "not ready", "sparkop logs tells why; sparkop apply waits for its tokens"),
        (Serving.UNAUTHORISED, "unauthorised", KEY_REMEDY),
        (Serving.BUSY, "busy", "ask again in a minute: sparkop status; who asked before comes first"),
        (Serving.FAILED, "failed", "on spark-1: sparkop logs --rank 0 tells more; compare api.servedNames"),
    ],
)
def test_an_api_that_serves_nothing_has_a_cause_and_a_next_step(
    state: Serving, word: str, remedy: str
) -> None:
    """There was none; and ranks that have served and answer 503 were told as loading."""
    found = answering(state)
    assert found[:2] == (word, "what it said")
    assert found[2].startswith(remedy)


def test_who_watches_starts_a_wedged_group_again() -> None:
    assert answering(Serving.WEDGED, watched_by=60.0)[2] == (
        "watch starts it again; sparkop events tells how that goes"
    )


def test_ranks_that_load_are_waited_for() -> None:
    cluster = Cluster.make()
    cluster.begin()
    found = status(cluster)
    assert found.loading
    assert (found.endpoint, found.endpoint_remedy) == (
        "loading",
        "wait for it; sparkop logs -f shows how far it is",
    )


def test_of_a_group_that_gives_no_token_since_its_start_the_time_of_a_new_start_is_told() -> None:
    """Status said that apply starts all ranks again, and apply waited for tokens; then it said that apply
    waits, and nobody knew until when."""
    cluster = Cluster.make()
    cluster.begin()
    cluster.manner = "wedge"
    assert [each.action for each in cluster.plan().operations] == [Action.WAIT]
    found = status(cluster)
    assert told(found)[0::2] == ("wedged", "sparkop logs tells why; sparkop apply waits for its tokens")
    assert found.loading.startswith("no token ")
    assert found.loading.endswith("; sparkop apply starts it anew after 5 min")
    cluster.clock.sleep(301)
    assert "rank/0" in [each.resource for each in cluster.plan().operations]
    assert status(cluster).loading == ""


def test_a_pause_of_watch_is_told_as_watch_tells_it() -> None:
    """By the pauses of the watch that runs, not by those that are usual."""
    cluster, watching = watched(asked=Asked(By.WATCH, pauses=(3600.0,)))
    dead(cluster)
    signed(watching)
    dead(cluster)
    signed(watching)
    word, detail, remedy = told(status(cluster))
    (held,) = watching.watch.tick().plan.held
    assert word == "not serving"
    assert detail == f"{DEAD}; {held}"
    assert held.startswith("restart 2 ")
    assert "60 min" in held
    assert "sparkop apply" in remedy
    watching.watch.leave()
    assert told(status(cluster))[1] == DEAD, "nobody waits for a restart when no watch lives"


@pytest.mark.parametrize("state", [Serving.WEDGED, Serving.BROKEN, Serving.DEGENERATE])
def test_a_pause_of_watch_is_told_of_an_api_that_answers_wrongly(state: Serving) -> None:
    """Only that apply starts all ranks again was told, and not that watch does."""
    cluster, watching = watched(asked=Asked(By.WATCH, pauses=(3600.0,)))
    dead(cluster)
    signed(watching, 2)
    reading = cluster.observe()
    bad = EndpointState(state, "what it said")
    reading = replace(reading, observed=replace(reading.observed, endpoint=bad))
    plan = reconcile(reading.desired, reading.observed, reading.history, cluster.clock.time(), SIMULATED)
    _, detail, remedy = told(status_of(reading, plan, SIMULATED))
    assert detail.startswith("what it said; restart 2 of 2 in ")
    assert remedy == "wait for watch, or start it at once: sparkop apply"


def test_what_watch_cannot_do_is_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image that emits token 0 whenever it is started: a restart by watch alone mends nothing."""
    cluster, watching = watched()
    signed(watching)
    monkeypatch.setattr(
        statuses, "explain", lambda spec, endpoint: Explained("of the image", "build another")
    )
    reading = cluster.observe()
    bad = EndpointState(Serving.DEGENERATE, "what it said")
    reading = replace(reading, observed=replace(reading.observed, endpoint=bad))
    plan = reconcile(reading.desired, reading.observed, reading.history, cluster.clock.time(), SIMULATED)
    remedy = status_of(reading, plan, SIMULATED).endpoint_remedy
    assert remedy.splitlines() == [
        "watch starts it again; sparkop events tells how that goes",
        "build another",
    ]


def test_a_group_that_watch_has_given_up_says_so() -> None:
    cluster, watching = watched(asked=Asked(By.WATCH, pauses=(60.0,)))
    for _ in range(3):
        dead(cluster)
        watching.minutes(2)
    word, detail, remedy = told(status(cluster))
    assert (word, detail) == ("gave up", DEAD)
    assert "when it is mended: sparkop apply" in remedy


def test_a_stop_says_who_wanted_it(capsys: pytest.CaptureFixture[str]) -> None:
    """In JSON as in the text: it was "not asked" there."""
    cluster = serving()
    cluster.stop()
    found = status(cluster)
    assert found.endpoint == "stopped"
    assert found.endpoint_detail.endswith(", as wished")
    assert found.endpoint_remedy == "sparkop apply starts it again"
    show_status(found, "json")
    assert json.loads(capsys.readouterr().out)["endpoint"] == "stopped"


def test_a_stop_that_is_half_done_says_which_rank_is_gone() -> None:
    cluster = serving()
    node, rank = cluster.rank(1)
    cluster.stop()
    node.containers[rank.spec.name] = rank
    ends = "sparkop stop again ends what still runs; or sparkop apply starts it again"
    half = "a human stopped it, but that is not (known to be) so everywhere"
    assert told(status(cluster)) == ("not serving", f"rank 0 on spark-1 is missing; {half}", ends)
    cluster.node("spark-1").docker_up = False
    assert told(status(cluster))[1] == f"Docker of spark-1 could not be read; {half}"


def test_a_stop_that_is_half_done_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The headline said it and the step said it, in other words; the JSON had only the step."""
    cluster = serving()
    node, rank = cluster.rank(1)
    cluster.stop()
    node.containers[rank.spec.name] = rank
    show_status(status(cluster))
    text = " ".join(capsys.readouterr().out.split())
    assert text.count("a human stopped it") == text.count("sparkop stop") == 1


@pytest.mark.parametrize(("number", "other"), [(0, "spark-2"), (1, "spark-1")])
def test_a_rank_that_starts_anew_with_another_does_not_tell_that_ones_state_as_its_own(
    number: int, other: str
) -> None:
    """ "spark-2: ≠ rank: rank/0 state: exited", while rank/0 is on spark-1."""
    cluster = serving()
    node, rank = cluster.rank(number)
    node.exit(rank.spec.name, 137)
    ranks = {
        each.node: resource.detail
        for each in status(cluster).nodes
        for resource in each.resources
        if resource.resource == "rank"
    }
    assert ranks.pop(other) == f"starts anew with rank/{number} (state: exited (137) -> running)"
    assert list(ranks.values()) == ["state: exited (137) -> running"]


def test_a_stop_that_did_not_reach_a_node_says_to_stop_again(capsys: pytest.CaptureFixture[str]) -> None:
    """It ended without a step, and status had none either, nor when the node and its rank were back."""
    cluster = serving()
    silent(cluster)
    show_stopped(cluster.stop())
    said = capsys.readouterr().err.splitlines()[-2:]
    assert said == [
        "what ran on spark-2 may still run there",
        "  do: sparkop stop again when spark-2 answers",
    ]
    assert told(status(cluster))[2].startswith("sparkop stop again when it answers")
    answers(cluster)
    assert told(status(cluster))[2].startswith("sparkop stop again ends what still runs")


def test_a_stopped_cluster_says_first_what_is_in_the_way_of_a_start() -> None:
    """It said that an apply starts it, and that apply was refused."""
    cluster = serving()
    cluster.stop()
    CHANGES["rails_down"](cluster.node("spark-2"), [0, 1])
    word, _, remedy = told(status(cluster))
    assert (word, remedy.splitlines()) == ("stopped", [PLUG, "then sparkop apply starts it again"])


def test_a_remedy_that_names_its_node_names_it_once() -> None:
    """ "On spark-2: make room on spark-2"."""
    blocker = Blocker("spark-2", "disk", Cause("free", "0 B", "64 MiB"), "make room on spark-2: du -xh ~")
    assert mends(Plan(blockers=(blocker,))) == "make room on spark-2: du -xh ~"


def test_a_destroy_that_did_not_reach_a_node_is_not_told_as_done(capsys: pytest.CaptureFixture[str]) -> None:
    """A rank still ran there, and status said "destroyed, or never applied; do: sparkop apply starts it"."""
    cluster = serving()
    silent(cluster)
    show_destroyed(destroyed(cluster))
    assert "  do: sparkop destroy again when spark-2 answers" in capsys.readouterr().err
    _, detail, remedy = told(status(cluster))
    assert detail.endswith("; spark-2 could not be read: something of it may still run there")
    assert remedy == (
        "if it was destroyed: sparkop destroy again when spark-2 answers; or sparkop apply starts it"
    )
    answers(cluster)
    _, detail, remedy = told(status(cluster))
    assert detail.startswith("destroyed, or never applied on spark-1; test-r1, ")
    assert detail.endswith(" still run on spark-2")
    assert remedy == "sparkop destroy again removes what is left on spark-2; or sparkop apply starts it"
    destroyed(cluster)
    assert told(status(cluster))[1:] == ("destroyed, or never applied", "sparkop apply starts it")


def test_a_destroy_that_went_past_a_silent_docker_says_first_what_makes_it_readable() -> None:
    """ "sparkop destroy again" alone went past it once more; and nothing said that a rank may run there."""
    cluster = serving()
    cluster.node("spark-2").docker_up = False
    destroyed(cluster)
    _, detail, remedy = told(status(cluster))
    assert detail == (
        "destroyed, or never applied on spark-1; "
        "Docker of spark-2 could not be read: something of it may still run there"
    )
    first, then = remedy.splitlines()
    assert first.startswith("on spark-2: sudo systemctl start docker; ")
    assert then == ("then sparkop destroy again removes what is left on spark-2; or sparkop apply starts it")


def test_a_destroyed_cluster_says_so() -> None:
    cluster = serving()
    destroyed(cluster)
    assert told(status(cluster)) == ("not serving", "destroyed, or never applied", "sparkop apply starts it")


@pytest.mark.parametrize("hidden", ["docker", "node"])
def test_a_destroyed_cluster_says_so_beside_a_node_that_nobody_can_read(hidden: str) -> None:
    """The headline was only that it could not be read."""
    cluster = serving()
    destroyed(cluster)
    if hidden == "docker":
        cluster.node("spark-2").docker_up = False
    else:
        silent(cluster)
    word, detail, _ = told(status(cluster))
    assert word == "not serving"
    assert detail.startswith("destroyed, or never applied")


def test_a_trip_is_told_in_json_too() -> None:
    cluster = serving()
    CHANGES["trip"](cluster.node("spark-2"), {"available": 9, "floor": 1 << 30})
    dead(cluster)
    word, _, remedy = told(status(cluster))
    assert word == "tripped"
    assert remedy.startswith("on spark-2: ")
    assert remedy.endswith("; to launch the same numbers again: sparkop apply --after-trip")


def test_a_docker_that_was_not_read_makes_nothing_dead() -> None:
    cluster = serving()
    cluster.node("spark-2").docker_up = False
    word, detail, remedy = told(status(cluster))
    assert (word, detail) == ("not asked", "Docker of spark-2 could not be read")
    assert remedy.startswith("on spark-2: sudo systemctl start docker"), "not that doctor would tell"


def test_a_watch_that_nobody_can_tell_of_is_not_absent(capsys: pytest.CaptureFixture[str]) -> None:
    """Both nodes off, and after destroy, it was said that none runs."""
    cluster, watching = watched()
    signed(watching)
    assert status(cluster).watch.running is True
    silent(cluster)
    assert status(cluster).watch.running is True, "its signs are on the head"
    cluster.node("spark-1").answer = Answer.SILENT
    found = status(cluster)
    assert found.watch.running is None
    show_status(found)
    text = " ".join(capsys.readouterr().out.split())
    assert "watch: not known whether one runs: its signs of life are on spark-1, which could not be" in text
    for name in ("spark-1", "spark-2"):
        cluster.node(name).answer = Answer.WHOLE
    cluster.node("spark-1").errors["state"] = "OSError: timed out"
    assert status(cluster).watch.running is None


def test_no_watch_leaves_a_sign_in_a_destroyed_cluster() -> None:
    cluster, watching = watched()
    signed(watching)
    destroyed(cluster)
    signed(watching)
    found = status(cluster).watch
    assert (found.running, found.unknown) == (
        None,
        "no watch leaves a sign of life here (destroyed, or never applied)",
    )
