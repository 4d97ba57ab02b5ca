"""The story that ``sparkop events`` tells outlives the files that it was read from."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

import pytest

from sparkop.hosts.simulated_node import Answer, SimulatedCrash
from sparkop.reconcile.events import Happened, happened
from sparkop.resources.image import resource as image
from tests.reconcile.simulation import IMAGE, Cluster
from tests.reconcile.watching import serving

GIB = 1 << 30
STATE = "~/.sparkop/test"


def stopped(cluster: Cluster) -> None:
    cluster.stop()
    cluster.clock.sleep(60)


def stopped_without_the_head(cluster: Cluster) -> None:
    """Only the worker knows of it."""
    cluster.node("spark-1").answer = Answer.SILENT
    stopped(cluster)
    cluster.node("spark-1").answer = Answer.WHOLE


def tripped(cluster: Cluster) -> None:
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 137)
    hashes = [container.spec.labels["sparkop.hash"]]
    trip = {"hashes": hashes, "at": cluster.clock.now, "available": 3 * GIB, "floor": 4 * GIB}
    node.files[node.path("trip.json", STATE)] = (json.dumps(trip).encode(), 0o644)
    cluster.clock.sleep(60)


def story(cluster: Cluster, *events: str) -> list[Happened]:
    told = happened(cluster.observe(canary=False))
    return [each for each in told if not events or each.event in events]


@pytest.mark.parametrize("happen", [stopped, stopped_without_the_head, tripped])
def test_what_apply_clears_away_has_happened_nevertheless(happen: Callable[[Cluster], None]) -> None:
    """Once, at its own time, and before the start that followed."""
    cluster = serving()
    happen(cluster)
    [before] = story(cluster, "stop", "trip")
    cluster.apply(confirm_trip=True)
    [after] = story(cluster, "stop", "trip")
    assert (after.at, after.event, after.node) == (before.at, before.event, before.node)
    assert before.text.startswith(after.text)
    assert [each.event for each in story(cluster)][-3:] == [before.event, "start", "ready"]


def test_every_stop_is_told_and_only_the_last_one_as_lasting() -> None:
    cluster = serving()
    stopped(cluster)
    cluster.apply()
    cluster.clock.sleep(60)
    stopped(cluster)
    told = story(cluster, "stop")
    assert [each.text.endswith("watch leaves it alone") for each in told] == [False, True]


def test_a_stop_that_half_an_apply_has_cleared_is_told_once() -> None:
    """Its mark is gone on one node and still there on the other."""
    cluster = serving()
    stopped(cluster)
    node = cluster.node("spark-2")
    path = node.path("intent.json", STATE)
    mark = node.files[path]
    cluster.apply()
    node.files[path] = mark
    assert len(story(cluster, "stop")) == 1


def test_only_an_image_that_has_come_is_told_as_pulled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command was killed over, or a registry refused, was told as pulled."""

    def killed(*_: object) -> None:
        raise SimulatedCrash

    cluster = Cluster.make()
    monkeypatch.setattr(image, "_pull", killed)
    with suppress(SimulatedCrash):
        cluster.apply()
    assert [each.event for each in story(cluster)] == ["pull-begun"]
    monkeypatch.undo()
    cluster.apply()
    [came] = story(cluster, "pulled", "pull-begun")
    assert (came.event, came.text) == ("pulled", f"spark-1: reference {IMAGE}")
