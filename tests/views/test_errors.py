"""What is told of a failure: where it was, and what to do."""

from __future__ import annotations

import pytest

from sparkop.errors import SparkopError, UnreachableError
from sparkop.reconcile.converge import remains
from sparkop.reconcile.plan import Plan
from sparkop.resources.events import Event, Phase
from sparkop.resources.operations import Action, Blocker, Cause, Operation, Unknown
from sparkop.views.errors import error_lines
from sparkop.views.plan_text import blocker_line, operation_line, unknown_line
from sparkop.views.progress import outcome_line, without_style


def test_a_node_that_is_lost_anywhere_has_a_next_command() -> None:
    """Where nobody knows better, it is the same: the line was missing in the middle of a lease (a reader)."""
    lost = UnreachableError("The connection to the node broke.", node="spark-4", cause="reset by peer")
    assert error_lines(lost)[-1].plain.startswith("  do: see whether the node is up (sparkop status")
    known = UnreachableError("The host key is not known.", node="spark-4", remedy="accept it")
    assert error_lines(known)[-1].plain == "  do: accept it"
    assert not any("do:" in line.plain for line in error_lines(SparkopError("unexpected")))


@pytest.mark.parametrize(
    ("resource", "field", "told"),
    [
        ("weights", "weights", "spark-2  4 of 5 -> 5"),
        ("state/cluster.json", "cluster.json", "spark-2  4 of 5 -> 5"),
        ("rank/1", "container", "spark-2  container: 4 of 5 -> 5"),
    ],
)
def test_a_plan_line_says_its_resource_once(resource: str, field: str, told: str) -> None:
    """``weights  spark-2  weights: 4 of 5`` said it twice."""
    cause = Cause(field, "4 of 5", "5")
    assert operation_line(Operation(Action.COPY, "spark-2", resource, cause)).endswith(told)
    assert blocker_line(Blocker("spark-2", resource, cause, "wait")).endswith(f"{told}; do: wait")


def test_a_node_that_can_not_be_read_is_told_with_one_way_out() -> None:
    """Why it can't be reached is one thing, what to do about it another; apply told two things to do."""
    lost = Unknown("spark-2", "No SSH connection", remedy="Check the cable.")
    with pytest.raises(UnreachableError) as raised:
        remains(Plan(unknown=(lost,)))
    told = [line.plain for line in error_lines(raised.value)]
    assert sum(line.count("do: ") for line in told) == 1
    assert "  likely cause: No SSH connection" in told
    assert unknown_line(lost).endswith("No SSH connection; do: Check the cable.")


def test_a_copy_that_its_source_has_broken_off_names_the_source() -> None:
    """It was told as the fault of each node behind it, all of which were up (a reader)."""
    copy = Operation(Action.COPY, "spark-3", "weights", Cause("weights", "absent", "verified"))

    def line(error: SparkopError) -> str:
        told = outcome_line(Event(Phase.FAILED, copy, "spark-3", str(error), error=error))
        assert told is not None
        return without_style(told)

    assert "spark-3: spark-2: it broke" in line(UnreachableError("it broke", node="spark-2"))
    assert line(UnreachableError("it broke", node="spark-3")).endswith("spark-3: it broke")
