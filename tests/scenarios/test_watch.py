"""watch on real sshd and Docker with the stand-in: what breaks is mended in time, what must not be is not.

A few rows of the drift table, and the cases in which more than one program acts; ``python -m tests.drift``
plays the whole table.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparkop.lab.lab import Lab
from tests.drift.rows import CALM, ROWS, play
from tests.drift.watcher import Event, Stage, Watcher, done, serves, stage, told, verdict
from tests.scenarios.conftest import STANDIN, User

pytestmark = pytest.mark.lab

NIGHT = ("kill-rank", "exit-zero", "degenerate", "server-error", "kill-guard", "cable", "long-prefill")
CALM_SECONDS = 20.0
"""Longer than a false alarm takes: half the canary's deadline, and ten seconds of still counters."""


@pytest.fixture(scope="module")
def watching_user(engines_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    user = User(engines_lab, tmp_path_factory.mktemp("user"))
    yield user
    user.sparkop("stop", STANDIN, "--yes")


@pytest.fixture(scope="module")
def watched(watching_user: User) -> Iterator[Stage]:
    """One watch for all; every test leaves it running and the cluster serving."""
    with stage(watching_user, STANDIN, "--set", "ready.canary.deadline=5s") as running:
        yield running


def starts(said: list[Event]) -> int:
    """How many groups were started: the head comes last, and a start that is broken off for another command
    has none."""
    return sum(done("start", "rank/0")(event) for event in said)


def test_a_night_of_faults(watched: Stage) -> None:
    """Deaths, garbage and errors are mended; the cable is told; work and a stop are left alone."""
    watcher = watched.watcher
    rows = {row.fault: row for row in (*CALM, *ROWS) if row.fault}
    for name in NIGHT:
        play(watched, replace(rows[name], calm=min(rows[name].calm, CALM_SECONDS)))
    at = len(watcher.said())
    watched.sparkop("stop", "--yes", check=0)
    at = watcher.until(lambda e: e["event"] == "held", 30, at)
    time.sleep(7)  # two periods in which it could have started something
    assert not any(e["event"] == "acting" for e in watcher.said()[at:])
    watched.sparkop("apply", check=0)
    assert watched.user.sparkop("watch", watched.spec, *watched.words, "--dry-run").code == 0
    assert '"running": true' in watched.sparkop("status", "-o", "json").out
    assert watcher.end() == 143
    assert '"running": false' in watched.sparkop("status", "-o", "json").out

    story = [event["event"] for event in watched.remembered()]
    assert story.count("restart") >= 4
    assert "fault" in story
    assert "mended" in story
    at = len(watcher.said())
    watcher.again()
    watcher.until(verdict("serving"), 60, at)


def test_a_node_that_loses_power_is_brought_in_again(watched: Stage) -> None:
    play(watched, next(row for row in ROWS if row.fault == "power-cut"))
    watched.sparkop("diff", check=0)


def test_a_watch_that_was_killed_in_a_restart_goes_on_where_it_was(watched: Stage) -> None:
    """SIGKILL between stop and start: the next one waits for the dead one's lease, and starts the group."""
    watcher = watched.watcher
    at = len(watcher.said())
    watched.break_("kill-rank", "spark-2")
    watcher.until(done("remove", "rank/"), 30, at)
    watcher.kill()
    assert watched.sparkop("diff").code == 2
    at = len(watcher.said())
    watcher.again()
    watcher.until(serves, 120, at)
    watched.sparkop("diff", check=0)


def test_two_watches_and_an_apply_do_each_thing_once(watched: Stage) -> None:
    """Whoever has the lease acts; the others find it done."""
    first = watched.watcher
    second = Watcher(watched.user, watched.spec, *watched.words, name="second")
    try:
        second.until(lambda e: e.get("verdict") == "serving", 60)
        before = starts(first.said()) + starts(second.said())
        watched.break_("kill-rank", "spark-2")
        ran = watched.sparkop("apply")
        assert ran.code in (0, 5), ran.err
        end = time.monotonic() + 60
        while watched.sparkop("diff").code != 0:
            assert time.monotonic() < end
        events = watched.remembered()
        groups = [event for event in events if event["event"] in ("start", "restart")]
        assert len({event["epoch"] for event in groups}) == len(groups), "no group was started twice"
        by_watch = starts(first.said()) + starts(second.said()) - before
        by_apply = ran.err.count("✓ start rank/0")
        assert by_watch + by_apply == 1, (ran.err, first.said()[-20:], second.said()[-20:])
    finally:
        second.kill()
        second.log.close()


def test_a_spec_that_is_edited_under_a_watch(watched: Stage) -> None:
    """Invalid: told, the last good one is kept and still healed by. Valid: applied. Deleted: as invalid. Each
    refusal is in the story, once. A watch that starts with a spec that the nodes refuse ends."""
    watcher, path = watched.watcher, Path(watched.spec)
    good = path.read_text()
    at = len(watcher.said())
    path.write_text(good.replace("maxSequences: 4", "maxSequences: many"))
    at = watcher.until(lambda e: e["event"] == "spec-refused", 30, at)
    assert "maxSequences" in str(watcher.said()[at - 1])
    watched.break_("kill-rank", "spark-2")
    at = watcher.until(serves, 60, at)
    path.unlink()
    at = watcher.until(lambda e: e["event"] == "spec-refused", 30, at)
    path.write_text(good.replace("maxSequences: 4", "maxSequences: 3"))
    at = watcher.until(lambda e: e["event"] == "spec-changed", 30, at)
    watcher.until(serves, 60, at)
    watched.sparkop("diff", check=0)
    refused = [event["text"] for event in watched.remembered() if event["event"] == "spec-refused"]
    assert [part in text for part, text in zip(("maxSequences", "no file"), refused, strict=True)] == [
        True,
        True,
    ]
    ended = watched.sparkop("watch", "--set", "engine.container.cpuset=0-4095", check=65)
    assert "CPU 4095 is asked for" in ended.err
    assert "start watch again" in ended.err


def test_what_nobody_can_mend_ends_with_a_reason(watching_user: User, watched: Stage) -> None:
    """The budget is spent: told in status, with what was tried; apply gives it back."""
    watched.watcher.end()
    watched.sparkop("stop", "--yes", check=0)  # the restarts of the tests before count no more
    with stage(watching_user, STANDIN, pauses="1s", name="last") as running:
        running.shell("spark-1", "mkdir -p /run/lab/standin; echo 1 >/run/lab/standin/fail-start")
        try:
            at = len(running.watcher.said())
            running.break_("kill-rank", "spark-2")
            running.watcher.until(told("rank/all@spark-1"), 120, at)
            running.watcher.until(
                lambda e: e["event"] == "remembered" and "rank/all@" in e.get("what", ""), 60, at
            )
            gone = running.sparkop("status", check=6).out
            assert "watch gave up at" in gone
            assert "2 restarts did not last" in gone
            assert "sparkop apply" in gone
            assert "it ended with: spark-1: rank 0 exited (1)" in gone
        finally:
            running.shell("spark-1", "rm -f /run/lab/standin/fail-start")
        running.sparkop("apply", check=0)
        assert "gave up" not in running.sparkop("status", check=0).out
