"""The words of ``status``: what a person reads first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkop.reconcile.lease_seen import Sign
from sparkop.reconcile.status import WatchStatus, status_of
from sparkop.resources.observed import GaveUp, Restart
from sparkop.serving.canary import EndpointState, Serving
from sparkop.views.status import show_status
from tests.reconcile.simulation import IMAGE, Cluster, spec_of
from tests.reconcile.worlds import CHANGES


def shown(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> str:
    reading = cluster.observe()
    show_status(status_of(reading, cluster.plan()))
    return capsys.readouterr().out


def test_a_deliberate_stop_is_called_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Not "not asked", which looks like a fault."""
    cluster = Cluster.make()
    cluster.apply()
    cluster.stop()
    first, *rest = shown(cluster, capsys).splitlines()
    assert first.split()[:2] == ["test", "stopped"]
    assert first.endswith("as wished)")
    assert "missing" not in " ".join(rest), "ranks and guards are stopped, too"
    assert any("sparkop apply" in line for line in rest)


def test_a_served_model_is_ready_with_its_url_and_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster.make()
    cluster.apply()
    text = shown(cluster, capsys)
    assert text.splitlines()[0].split() == ["test", "ready"]
    assert ":8000/v1" in text
    assert "test-r0" in text
    assert "test-r1" in text
    assert "≠" not in text
    assert "no key" not in text


def test_it_is_said_whether_a_watch_runs_and_why_one_gave_up(capsys: pytest.CaptureFixture[str]) -> None:
    """With what was tried, and what to do."""
    cluster = Cluster.make()
    cluster.apply()
    assert "watch: none runs" in shown(cluster, capsys)
    reading = cluster.observe()
    gone = GaveUp(
        1_790_000_000.0,
        "restarts: 1 did not last; when it is mended: sparkop apply",
        (Restart(2, 1_790_000_000.0, "rank/1 state: exited (1) -> running", 1),),
        "rank 1 exited (1) before it served: /dev/shm is too small",
    )
    status = status_of(reading, cluster.plan())
    show_status(replace(status, watch=WatchStatus(True, (Sign("ada@desk", 12.0),), gone)))
    text = " ".join(capsys.readouterr().out.split())
    assert "watch: runs (sign of life of ada@desk, 12" in text
    assert "watch gave up at 20" in text
    assert "did not last; when it is mended: sparkop apply" in text
    assert "group 2: rank/1 state: exited (1) -> running" in text
    assert "it ended with: rank 1 exited (1) before it served: /dev/shm is too small" in text


def test_after_a_trip_the_headline_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Not "not asked": nothing serves, and this is why; what to do is told with it, and once."""
    cluster = Cluster.make()
    cluster.apply()
    CHANGES["trip"](cluster.node("spark-2"), {"available": 900_000_000, "floor": 1 << 30})
    for number, name in enumerate(("spark-1", "spark-2")):
        cluster.node(name).exit(f"test-r{number}", 137)
    text = shown(cluster, capsys)
    assert text.splitlines()[0].split() == ["test", "tripped"]
    assert text.splitlines()[1].startswith("  do: on spark-2: ")
    assert "sparkop apply --after-trip" in " ".join(text.split())
    assert text.count("memory.kvCache") == 1


@pytest.mark.parametrize("content", [b"{", b"", b'{"at": 1}'])
def test_a_trip_whose_record_makes_no_sense_is_a_trip(
    capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    """The headline was "not asked"; what to do was told by diff only."""
    cluster = Cluster.make()
    cluster.apply()
    node = cluster.node("spark-2")
    node.files[node.path("trip.json", "~/.sparkop/test")] = (content, 0o644)
    for number, name in enumerate(("spark-1", "spark-2")):
        cluster.node(name).exit(f"test-r{number}", 137)
    text = " ".join(shown(cluster, capsys).split())
    assert text.startswith("test tripped (its record can't be read: trip.json of spark-2 is damaged)")
    assert "spark-2: there: tail /home/spark/.sparkop/test/memguard.log tells more" in text
    assert "to launch these numbers: sparkop apply --after-trip (the file is kept)" in text


def test_a_group_that_has_served_was_not_killed_while_loading(capsys: pytest.CaptureFixture[str]) -> None:
    """The guard says so for two minutes after a start; a group that has not served is loading indeed."""
    for start, told in ((Cluster.apply, "while serving"), (Cluster.begin, "while loading")):
        cluster = Cluster.make()
        start(cluster)
        node = cluster.node("spark-2")
        CHANGES["trip"](node, {"available": 9, "floor": 1 << 30, "phase": "loading"})
        node.exit("test-r1", 137)
        assert f"the guard killed test-r1 {told}\n" in shown(cluster, capsys)


@pytest.mark.parametrize(
    ("free", "told"), [(20, ""), (9, "under the soft floor"), (0.8, "under the action floor")]
)
def test_memory_under_a_floor_is_a_condition_of_its_node(
    capsys: pytest.CaptureFixture[str], free: float, told: str
) -> None:
    """The lowest of them; and nothing is wrong with a node that is under none."""
    cluster = Cluster.make()
    cluster.apply()
    node = cluster.node("spark-2")
    node.memory_used += node.memory_available - int(free * (1 << 30))
    text = " ".join(shown(cluster, capsys).split())
    assert text.count("under the") == (1 if told else 0)
    assert told in text


def test_an_api_without_a_key_is_said_to_be_open(capsys: pytest.CaptureFixture[str]) -> None:
    """And what closes it."""
    api = {"port": 8000, "servedNames": ["tiny"], "key": "none"}
    for bind, told in (("0.0.0.0", True), ("127.0.0.1", False)):
        text = shown(Cluster.make(spec_of(api={**api, "bind": bind})), capsys)
        assert ("no key: whoever reaches this port" in text) is told
        assert ("api.key: generate" in text) is told


def test_token_zero_is_told_with_its_cause_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    """``degenerate`` alone says nothing to a person."""
    engine = {"kind": "sglang", "context": 32768}
    cluster = Cluster.make(spec_of(engine=engine, image={"reference": IMAGE}))
    state = EndpointState(Serving.DEGENERATE, "only '!', 16 times", text="!" * 16)
    reading = cluster.observe()
    reading = replace(reading, observed=replace(reading.observed, endpoint=state))
    show_status(status_of(reading, cluster.plan()))
    text = " ".join(capsys.readouterr().out.split())
    assert "degenerate (only '!', 16 times)" in text
    assert "likely cause: token 0" in text
    assert "do: name image.build" in text


def test_a_silent_docker_is_one_fault(capsys: pytest.CaptureFixture[str]) -> None:
    """It was told four times, and looked like four; JSON has every kind."""
    cluster = Cluster.make()
    cluster.apply()
    cluster.node("spark-2").docker_up = False
    reading = cluster.observe()
    status = status_of(reading, cluster.plan())
    show_status(status)
    text = " ".join(capsys.readouterr().out.split())
    assert text.count("Docker does not answer") == 1
    assert "(so not known either: image, memguard, rank); do: sudo systemctl start docker" in text
    assert [each.resource for each in status.nodes[1].resources if each.state == "unknown"] == [
        "prerequisites",
        "image",
        "memguard",
        "rank",
    ]
