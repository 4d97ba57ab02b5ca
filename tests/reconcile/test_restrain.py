"""What watch may do of a plan: pure, so every rule of the budget is a line here."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkop.reconcile.plan import Plan
from sparkop.reconcile.restrain import FRESH, Asked, By, restrain
from sparkop.resources.observed import GaveUp, History, Intent, Restart
from sparkop.resources.operations import Action, Cause, Operation

NOW = 1_790_000_000.0
CAUSE = Cause("rank/1 state", "exited (137)", "running")
NUMBERS = {"epoch": 9, "generation": 2}
GUARD = Operation(Action.START, "spark-1", "memguard", Cause("guard", "missing", "running"))
RECORD = Operation(Action.RECORD, "spark-1", "rank/all", CAUSE, parameters=NUMBERS)
START = Operation(Action.START, "spark-1", "rank/0", CAUSE, parameters=NUMBERS)
WAIT = Operation(Action.WAIT, "spark-1", "endpoint", Cause("endpoint", "silent", "tokens"))
GROUP = Plan((GUARD, RECORD, START, WAIT))
WATCH = Asked(By.WATCH)


def after(*seconds: float, generation: int = 2) -> History:
    """A history with restarts so many seconds ago, newest last."""
    restarts = tuple(
        Restart(epoch, NOW - ago, "rank/1 died", generation) for epoch, ago in enumerate(seconds, 1)
    )
    return History(epoch=8, ready_epoch=8, restarts=restarts)


def kinds(plan: Plan) -> list[str]:
    return [operation.resource for operation in plan.operations]


def test_a_human_is_not_restrained() -> None:
    stopped = replace(after(1, 1, 1, 1, 1), intent=Intent(True, "ada", NOW))
    assert restrain(GROUP, stopped, Asked(By.HUMAN), NOW) == GROUP


def test_the_first_restart_comes_at_once_and_is_marked() -> None:
    plan = restrain(GROUP, after(), WATCH, NOW)
    assert kinds(plan) == kinds(GROUP)
    assert [o.parameters.get("by") for o in plan.operations] == [None, "watch", None, None]


@pytest.mark.parametrize(
    ("ago", "allowed"),
    [
        ((119,), False),
        ((121,), True),
        ((900, 299), False),
        ((900, 301), True),
        ((9000, 5000, 899), False),
        ((9000, 5000, 901), True),
        ((9000, 5000, 901, 1e6), False),
    ],
)
def test_pauses_grow_and_end(ago: tuple[float, ...], allowed: bool) -> None:
    plan = restrain(GROUP, after(*ago), WATCH, NOW)
    assert ("rank/0" in kinds(plan)) is allowed
    assert "memguard" in kinds(plan), "its guard is mended meanwhile"
    assert bool(plan.blockers) is (len(ago) > 3)
    if plan.blockers:
        assert "sparkop apply" in plan.blockers[0].remedy
        assert "rank/1 exited (137)" in plan.blockers[0].cause.observed


@pytest.mark.parametrize(("boots", "allowed"), [(1, True), (3, True), (4, False)])
def test_the_first_few_restarts_after_a_boot_cost_nothing(boots: int, allowed: bool) -> None:
    """A power cut is no fault of the numbers, but nodes that boot again and again have an end, too."""
    history = after(*range(60, 60 - boots, -1))
    booted = replace(history, restarts=tuple(replace(each, booted=("spark-2",)) for each in history.restarts))
    assert ("rank/0" in kinds(restrain(GROUP, booted, WATCH, NOW))) is allowed


@pytest.mark.parametrize(
    ("history", "asked"),
    [
        (replace(after(90, 30), booted=("spark-2",)), WATCH),
        (after(90, 30), replace(WATCH, booted=("spark-2",))),
        (replace(after(9000, 5000, 901, 30), booted=("spark-2",)), WATCH),
    ],
)
def test_a_boot_after_other_restarts_has_no_pause(history: History, asked: Asked) -> None:
    """It waited for the pause of the restarts before, "the one before did not last": a power cut ended it."""
    assert kinds(restrain(GROUP, history, asked, NOW)) == kinds(GROUP)


def test_a_boot_makes_no_group_rise_that_was_given_up() -> None:
    history = replace(after(9000, 5000, 901, 30), booted=("spark-2",), gave_up=GaveUp(NOW - 20, "4 restarts"))
    assert restrain(GROUP, history, WATCH, NOW).blockers


def test_a_clock_that_was_set_back_holds_nothing_up() -> None:
    assert "rank/0" in kinds(restrain(GROUP, after(-86400), WATCH, NOW))


def test_other_numbers_have_their_own_budget() -> None:
    assert "rank/0" in kinds(restrain(GROUP, after(1, 1, 1, 1, generation=1), WATCH, NOW))


def test_a_human_stop_holds_everything() -> None:
    plan = restrain(GROUP, replace(after(), intent=Intent(True, "ada", NOW)), WATCH, NOW)
    assert plan.operations == ()
    assert "stopped by ada" in plan.held[0]
    assert not plan.converged


def test_old_readings_are_not_acted_on() -> None:
    assert restrain(GROUP, after(), replace(WATCH, told_at=NOW - FRESH - 1), NOW).operations == ()


def test_only_a_start_is_waited_for() -> None:
    lone = Plan((WAIT,))
    assert restrain(lone, History(epoch=8, ready_epoch=8), WATCH, NOW).operations == ()
    assert restrain(lone, History(epoch=8, ready_epoch=7), WATCH, NOW) == lone


@given(st.lists(st.floats(-1e7, 1e7), max_size=8))
def test_the_group_is_touched_whole_or_not_at_all(ago: list[float]) -> None:
    plan = restrain(GROUP, after(*ago), WATCH, NOW)
    assert kinds(plan) in (["memguard"], kinds(GROUP))
    assert len(ago) <= 3 or kinds(plan) == ["memguard"]
