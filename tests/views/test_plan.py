"""What a plan's text and its question say."""

from __future__ import annotations

import pytest

from sparkop.reconcile.plan import Plan
from sparkop.resources.operations import Action, Cause, Cost, Operation
from sparkop.views.plan import ask_approval
from sparkop.views.plan_text import cost_text


@pytest.mark.parametrize(
    ("cost", "told"),
    [
        (Cost(), ""),
        (Cost(20 << 20, 0.07), "20.0 MiB, a second or less"),
        (Cost(3 << 30, 8.05), "3.0 GiB, about 8 s"),
        (Cost(1, None), "1 B, time not measured yet"),
    ],
)
def test_an_estimate_is_never_about_nothing(cost: Cost, told: str) -> None:
    """The copy of a small image took "about 0 s"."""
    assert cost_text(cost) == told


@pytest.mark.parametrize(
    ("serves", "asked"),
    [
        (True, "This stops serving. Go on?"),
        (False, "This removes containers that sparkop did not make. Go on?"),
    ],
)
def test_the_question_says_what_would_be_lost(
    serves: bool, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recipe's container that has ended serves nothing."""
    questions: list[str] = []
    monkeypatch.setattr("sparkop.views.plan.can_ask", lambda: True)
    monkeypatch.setattr("sparkop.views.plan.agreed", questions.append)
    cause = Cause("container test-r1", "there", "ours")
    remove = Operation(Action.REMOVE, "spark-2", "foreign/test-r1", cause, Cost(stops_serving=serves))
    ask_approval(Plan((remove,)))
    assert questions == [asked]
