"""The ranks' logs are kept while they run, and readable when they are gone."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sparkop.errors import BlockedError, ExitCode, UnreachableError
from sparkop.hosts.simulated import SimulatedHost
from sparkop.hosts.simulated_node import Answer
from sparkop.reconcile.logs import rank_logs
from sparkop.views.plan_text import plan_lines
from tests.reconcile.simulation import Cluster


@pytest.fixture
def serving() -> Cluster:
    cluster = Cluster.make()
    cluster.apply()
    return cluster


def test_every_rank_has_a_follower_and_a_second_apply_does_nothing(serving: Cluster) -> None:
    for number in (0, 1):
        node, container = serving.rank(number)
        record = node.document_of(node.path("~/.sparkop/test/logs.json"))
        assert record["container"] == container.id
        assert record["file"] == f"logs/rank-{number}.log"
    assert serving.apply().operations == 0


def test_a_follower_that_is_gone_is_started_again_and_nobody_is_stopped(serving: Cluster) -> None:
    """Cheap drift: the group serves on."""
    ranks = list(serving.started)
    serving.node("spark-2").follower_killed = True
    plan = serving.plan()
    assert [o.key for o in plan.operations] == ["start:logs@spark-2"]
    assert not plan.stops_serving
    assert "gone" in "\n".join(plan_lines(plan))
    assert serving.apply().operations == 1
    assert serving.started == ranks
    assert not serving.plan().operations


def test_ranks_of_an_older_sparkop_get_a_follower_without_a_restart(serving: Cluster) -> None:
    ranks = list(serving.started)
    for name in ("spark-1", "spark-2"):
        del serving.node(name).files[serving.node(name).path("~/.sparkop/test/logs.json")]
    assert [o.key for o in serving.plan().operations] == ["start:logs@spark-1", "start:logs@spark-2"]
    serving.apply()
    assert serving.started == ranks


def test_a_group_that_is_replaced_is_not_followed_first(serving: Cluster) -> None:
    serving.node("spark-2").follower_killed = True
    node, container = serving.rank(0)
    node.exit(container.spec.name, 1)
    assert not any(o.resource == "logs" for o in serving.plan().operations)


def test_what_could_not_be_read_is_no_missing_follower(serving: Cluster) -> None:
    """Unknown is not absent; and it does not keep a dead group from being replaced."""
    serving.node("spark-2").errors["follower"] = "PermissionError"
    plan = serving.plan()
    assert not plan.operations
    assert "it can't be told whether the log is kept: PermissionError" in "\n".join(plan.warnings)
    node, container = serving.rank(0)
    node.exit(container.spec.name, 1)
    assert any(o.key == "start:rank/0@spark-1" for o in serving.plan().operations)


def test_an_engine_that_gives_no_logs_is_told_and_no_drift(serving: Cluster) -> None:
    node, container = serving.rank(1)
    record = {"container": container.id, "alive": False, "unreadable": "driver does not support reading"}
    path = node.path("~/.sparkop/test/logs.json")
    node.files[path] = (json.dumps(record).encode(), 0o644)
    plan = serving.plan()
    assert not plan.operations
    assert "driver does not support reading" in "\n".join(plan.warnings)


def test_logs_of_ranks_that_are_gone_come_from_their_nodes(serving: Cluster) -> None:
    """Masked, and only as many as were asked for; a rank without any says nothing."""
    serving.stop()
    node = serving.node("spark-2")
    lines = b"".join(b"2026-11-30T17:00:00.0Z line %d api_key=secret\n" % n for n in range(5))
    node.files[node.path("~/.sparkop/test/logs/rank-1.log")] = (lines, 0o600)
    node.files[node.path("~/.sparkop/test/logs/rank-1.log.1")] = (b"older\n", 0o600)
    told = list(rank_logs(serving.spec, serving.hosts(), tail=6))
    assert [line.rank for line in told] == [1] * 6
    assert told[0].text == "older"
    assert told[-1].text == "2026-11-30T17:00:00.0Z line 4 api_key=********"
    assert told[-1].kept.endswith("/.sparkop/test/logs/rank-1.log")
    assert len(list(rank_logs(serving.spec, serving.hosts(), tail=2, follow=True))) == 2


def test_no_log_at_all_is_told(serving: Cluster) -> None:
    serving.stop()
    with pytest.raises(BlockedError, match="no log of rank 1"):
        list(rank_logs(serving.spec, serving.hosts(), rank=1))


def test_the_other_ranks_are_shown_before_a_node_that_is_away(serving: Cluster) -> None:
    """Exit code 4, after what could be read."""
    serving.node("spark-2").answer = Answer.SILENT
    lines = rank_logs(serving.spec, serving.hosts())
    assert next(lines).rank == 0
    with pytest.raises(UnreachableError) as caught:
        assert all(line.rank == 0 for line in lines)
    assert caught.value.exit_code == ExitCode.UNREACHABLE
    assert list(rank_logs(serving.spec, serving.hosts(), rank=0)), "the node that is away has another rank"


def test_a_node_that_is_lost_while_its_log_is_followed_is_told(
    serving: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked like the end of the log, with exit code 0: the SDK swallows a lost connection."""

    def then_lost(_host: object, _container: str, **_: object) -> Iterator[str]:
        yield "the last line"
        serving.node("spark-2").answer = Answer.SILENT

    monkeypatch.setattr(SimulatedHost, "log_lines", then_lost)
    lines = rank_logs(serving.spec, serving.hosts(), rank=1, follow=True)
    assert next(lines).text == "the last line"
    with pytest.raises(UnreachableError):
        next(lines)
