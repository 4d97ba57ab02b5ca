"""What the wait for a start says before the first token."""

from types import SimpleNamespace
from typing import Any

import pytest

from sparkop.resources import endpoint
from sparkop.resources.operations import Action, Cause, Cost, Operation
from tests.engines.specs import RECIPE_A, spec


@pytest.mark.parametrize(
    ("deadline", "measured", "told"),
    [("45min", None, True), ("45min", 700.0, False), ("2min", None, False)],
)
def test_a_first_start_says_how_long_is_normal(
    monkeypatch: pytest.MonkeyPatch, deadline: str, measured: float | None, told: bool
) -> None:
    """Who waits eleven minutes before a silent log, and does not know that this is normal, ends it (A16)."""
    monkeypatch.setattr(endpoint, "wait_ready", lambda *_: None)
    monkeypatch.setattr(endpoint, "question_of", lambda *_: None)
    monkeypatch.setattr(endpoint, "read_key", lambda *_: None)
    said: list[str] = []
    context: Any = SimpleNamespace(
        desired=SimpleNamespace(spec=spec(RECIPE_A, {"ready.deadline": deadline})),
        progress=said.append,
        host=lambda _: None,
    )
    cost = Cost(seconds=measured)
    endpoint.Endpoint().perform(
        Operation(Action.WAIT, "spark-1", "endpoint", Cause("endpoint", "silent", "tokens"), cost), context
    )
    assert [text for text in said if "11 to 13 minutes" in text and "45 min" in text] == said
    assert bool(said) is told
