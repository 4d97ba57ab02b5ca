"""Damaged files in the state folders: told, kept, and never taken for an absence that allows something."""

from __future__ import annotations

import pytest

from sparkop.errors import BlockedError
from sparkop.reconcile.plan import Plan
from tests.reconcile.simulation import Cluster
from tests.reconcile.watching import Watching, entries, serving

FOLDER = "~/.sparkop/test"
NO_JSON = (b'{"version": 1, "ent', 0o600)
NO_SENSE = (b"[]", 0o600)


def damage(cluster: Cluster, node: str, name: str, content: tuple[bytes, int] = NO_JSON) -> None:
    made = cluster.node(node)
    made.files[made.path(name, FOLDER)] = content


def kept(cluster: Cluster, node: str, name: str) -> list[bytes]:
    return [found[0] for path, found in cluster.node(node).files.items() if f"/{name}.damaged-" in path]


@pytest.mark.parametrize("content", [NO_JSON, NO_SENSE])
@pytest.mark.parametrize("name", ["cluster.json", "history.json"])
def test_an_apply_mends_what_is_unambiguous_and_keeps_the_damaged_file(
    name: str, content: tuple[bytes, int]
) -> None:
    """Exit 4 for ever would leave the user without a way out."""
    cluster = serving()
    damage(cluster, "spark-1", name, content)
    assert [o.resource for o in cluster.plan().operations] == [f"state/{name}"]
    cluster.apply()
    assert cluster.plan().converged
    assert cluster.started == []
    assert kept(cluster, "spark-1", name) == [content[0]]


def test_a_damaged_history_is_no_fresh_budget_for_watch() -> None:
    """How often it has restarted the group is not known, so it does not once more; a human's apply does."""
    cluster = serving()
    watching = Watching(cluster)
    damage(cluster, "spark-1", "history.json")
    node, rank = cluster.rank(1)
    node.exit(rank.spec.name, 137)
    last = watching.ticks(6)[-1]
    assert cluster.started == []
    assert "history.json was damaged" in str(last.plan.blockers)
    cluster.apply()
    assert len(cluster.started) == 2
    cluster.started.clear()
    node, rank = cluster.rank(1)
    node.exit(rank.spec.name, 137)
    watching.ticks(6)
    assert len(cluster.started) == 2, "with a human's start the count has begun anew"
    assert entries(cluster)[0]["event"] == "damaged"


@pytest.mark.parametrize("content", [NO_JSON, NO_SENSE, (b'{"stopped": "yes"}', 0o644)])
def test_a_damaged_mark_of_a_stop_is_a_stop(content: tuple[bytes, int]) -> None:
    cluster = serving()
    cluster.stop()
    for name in ("spark-1", "spark-2"):
        damage(cluster, name, "intent.json", content)
    Watching(cluster).minutes(5)
    assert cluster.started == []
    cluster.apply()
    assert len(cluster.started) == 2
    assert kept(cluster, "spark-2", "intent.json") == [content[0]]


def test_a_stop_writes_its_mark_over_a_damaged_one() -> None:
    cluster = serving()
    damage(cluster, "spark-2", "intent.json")
    cluster.stop(holder="ada@desk/1/1")
    assert cluster.observe().history.intent.by == "ada@desk"


@pytest.mark.parametrize("content", [NO_JSON, NO_SENSE])
def test_a_damaged_record_of_the_guard_forbids_the_launch_until_a_human_confirms(
    content: tuple[bytes, int],
) -> None:
    cluster = serving()
    damage(cluster, "spark-2", "trip.json", content)
    node, rank = cluster.rank(1)
    node.exit(rank.spec.name, 137)
    Watching(cluster).minutes(5)
    with pytest.raises(BlockedError, match=r"trip\.json is damaged"):
        cluster.apply()
    assert cluster.started == []
    cluster.apply(confirm_trip=True)
    assert len(cluster.started) == 2
    assert kept(cluster, "spark-2", "trip.json") == [content[0]]


# The API key


def lose(cluster: Cluster, *names: str) -> None:
    node = cluster.node("spark-1")
    for name in names:
        del node.files[node.path(name, FOLDER)]


@pytest.mark.parametrize("lost", [("api_key",), ("api_key", "engine.yaml")])
def test_a_lost_key_is_the_one_that_runs(lost: tuple[str, ...]) -> None:
    """Clients have it: a new one would lock all of them out, and the ranks would have to be restarted."""
    cluster = serving()
    key = cluster.served_key
    lose(cluster, *lost)
    cluster.apply()
    node = cluster.node("spark-1")
    assert node.files[node.path("api_key", FOLDER)] == (f"{key}\n".encode(), 0o600)
    assert cluster.started == []
    assert cluster.plan().converged


def test_watch_restores_a_lost_key_and_restarts_nothing() -> None:
    cluster = serving()
    key = cluster.served_key
    watching = Watching(cluster)
    lose(cluster, "api_key")
    watching.ticks(6)
    node = cluster.node("spark-1")
    assert node.files[node.path("api_key", FOLDER)][0] == f"{key}\n".encode()
    assert cluster.started == []


def test_a_stopped_cluster_keeps_the_key_that_was_handed_out() -> None:
    cluster = serving()
    key = cluster.served_key
    cluster.stop()
    lose(cluster, "api_key")
    cluster.apply()
    assert cluster.served_key == key


def test_a_key_that_nobody_knows_restarts_the_group_and_that_is_asked() -> None:
    """The plan that was agreed to did not stop serving."""
    cluster = serving()
    lose(cluster, "api_key", "engine.yaml")
    cluster.rank(0)[1].mounted.clear()
    asked: list[Plan] = []

    def no(plan: Plan) -> bool:
        asked.append(plan)
        return False

    with pytest.raises(BlockedError, match="you said no"):
        cluster.apply(approve=no)
    assert [plan.stops_serving for plan in asked] == [True]
    assert cluster.started == []
    cluster.apply()
    assert len(cluster.started) == 2
    assert cluster.plan().converged


def test_a_key_that_somebody_wrote_is_taken_over_by_a_humans_apply_alone() -> None:
    cluster = serving()
    old = cluster.served_key
    damage(cluster, "spark-1", "api_key", (b"another-key\n", 0o600))
    watching = Watching(cluster)
    last = watching.ticks(6)[-1]
    assert cluster.started == []
    assert "remove the file" in str(last.plan.blockers)
    cluster.apply()
    assert len(cluster.started) == 2
    assert cluster.served_key == "another-key" != old


def test_an_emptied_key_file_of_a_stopped_cluster_gets_the_key_back() -> None:
    """An empty file is none: the ranks were started with a key that nobody could read any more."""
    cluster = serving()
    key = cluster.served_key
    cluster.stop()
    damage(cluster, "spark-1", "api_key", (b"", 0o600))
    cluster.apply()
    assert cluster.served_key == key
    assert cluster.plan().converged
