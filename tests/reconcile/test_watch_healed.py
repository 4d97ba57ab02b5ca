"""What watch mends at once, beside the group, is told as the rest is: finding, action, result."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparkop.reconcile.events import happened
from tests.reconcile.simulation import Cluster
from tests.reconcile.watching import entries, watched


def guard_gone(cluster: Cluster) -> None:
    cluster.node("spark-2").containers.pop("test-memguard", None)


def guard_dead(cluster: Cluster) -> None:
    """Docker does not start it again: somebody stopped it by hand."""
    node = cluster.node("spark-2")
    node.containers["test-memguard"].state = "exited"


@pytest.mark.parametrize(
    ("happen", "told"),
    [
        (guard_gone, "spark-2, memguard: guard is missing, not running; watch started it"),
        (guard_dead, "spark-2, memguard: guard is exited, not running; watch removed and started it"),
    ],
)
def test_a_guard_that_is_healed_at_once_is_in_the_story(happen: Callable[[Cluster], None], told: str) -> None:
    """It was mended within one look, and no event told that the node had been without."""
    cluster, watching = watched()
    happen(cluster)
    watching.minutes(5)
    assert cluster.plan().converged
    assert [each.text for each in happened(cluster.observe(canary=False)) if each.event == "healed"] == [told]


def test_what_a_restart_brings_with_it_is_told_by_the_restart() -> None:
    cluster, watching = watched()
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 137)
    watching.minutes(5)
    assert not entries(cluster, "healed")


def test_a_guard_that_dies_again_and_again_leaves_room_for_the_rest() -> None:
    """Three times in ten minutes at most, as a fault that comes and goes."""
    cluster, watching = watched()
    for _ in range(9):  # it waits longer and longer in between
        guard_gone(cluster)
        watching.minutes(1)
    assert len(entries(cluster, "healed")) == 3
