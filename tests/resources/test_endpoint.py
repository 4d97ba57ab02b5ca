"""What is said of a start before the first token: how long it takes as a rule."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkop.reconcile.status import status_of
from sparkop.resources.endpoint import normal_start
from sparkop.views.plan import plan_json
from sparkop.views.plan_text import plan_lines
from sparkop.views.status import show_status
from tests.reconcile.simulation import Cluster

LARGE = "a large model loads for many minutes"


def cluster_of(deadline: str = "45min", **changes: Any) -> Cluster:
    return Cluster.make(ready={"deadline": deadline, "canary": {"deadline": "20 s"}}, **changes)


def remember(cluster: Cluster, seconds: object) -> None:
    """The last start took so long, as the head's history has it."""
    node = cluster.node("spark-1")
    path = next(path for path in node.files if path.endswith("/history.json"))
    document = node.document_of(path)
    for entry in document["entries"]:
        if entry["event"] == "ready":
            entry["seconds"] = seconds
    node.files[path] = (json.dumps(document).encode(), 0o644)


def shown(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> str:
    show_status(status_of(cluster.observe(), cluster.plan()))
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("deadline", "large"), [("45min", True), ("2min", False)])
def test_the_first_start_of_a_large_model_says_how_long_is_normal(deadline: str, large: bool) -> None:
    """Who waits eleven minutes before a silent log, and does not know that this is normal, ends it."""
    cluster = cluster_of(deadline)
    cluster.apply()
    told = [event.text for event in cluster.events if LARGE in event.text]
    assert bool(told) is large
    assert all("given up after 45 min" in text for text in told)
    remember(cluster, 700.0)
    cluster.stop()
    cluster.apply()
    assert not [event for event in cluster.events if LARGE in event.text], "a start was measured here"


@pytest.mark.parametrize(
    ("repository", "told"),
    [
        (
            "0xSero/DeepSeek-V4.1-Flash-Spark",
            "DeepSeek-V4.1-Flash needs 11 to 13 minutes the first time, silent",
        ),
        ("RadixArk/Qwen3.8-Flash-Next-NVFP4", "Qwen3.8-Flash-Next needs about ten minutes the first time;"),
        ("somebody/else", f"{LARGE};"),
    ],
)
def test_how_long_a_first_start_takes_is_told_of_the_model_that_it_is_known_of(
    repository: str, told: str
) -> None:
    """11 to 13 minutes, those of DeepSeek, were told of every model."""
    cluster = cluster_of(weights={"repository": repository})
    assert f"no start was measured here yet: {told}" in normal_start(cluster.spec, None)


@pytest.mark.parametrize("seconds", [0, 0.0, None, "soon", [1], float("inf"), -3])
def test_a_start_of_unknown_length_is_told_as_that(seconds: object) -> None:
    """In the text and in JSON: 0 seconds would be a promise."""
    cluster = cluster_of()
    cluster.apply()
    for measured, text, figure in ((seconds, "time not measured yet", None), (700.0, "about 12 min", 700.0)):
        remember(cluster, measured)
        cluster.stop()
        plan = cluster.plan()
        (line,) = [line for line in plan_lines(plan) if line.startswith("wait      endpoint")]
        assert line.endswith(f"[{text}]")
        (wait,) = [each for each in plan_json(plan)["operations"] if each["resource"] == "endpoint"]
        assert wait["cost"]["seconds"] == figure
        cluster.apply()


def test_status_says_that_ranks_load_and_how_long_is_normal(capsys: pytest.CaptureFixture[str]) -> None:
    """``silent`` and ``differs`` look like a fault."""
    cluster = cluster_of()
    cluster.begin()
    cluster.clock.sleep(200)
    text = shown(cluster, capsys)
    assert "loading for 3 min 2" in text
    assert "no start was measured here yet: " + LARGE in text
    cluster.node("spark-1").services.pop(8000)
    assert shown(cluster, capsys).startswith("test loading (nothing answers on port 8000")
    text = shown(cluster, capsys)
    assert LARGE in text
    assert "≠ endpoint: loading for 3 min 2" in text
    assert "silent" not in text
    assert text.count("8000: nothing listens there on spark-1") == 1, "it was said twice in one line"


def test_status_tells_the_last_start_as_the_measure_and_no_loading_of_what_served_or_is_late(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = cluster_of()
    cluster.apply()
    remember(cluster, 700.0)
    assert "loading for" not in shown(cluster, capsys)
    service = cluster.node("spark-1").services.pop(8000)
    assert "loading for" not in shown(cluster, capsys), "it has served: silence is a fault"
    cluster.node("spark-1").services[8000] = service
    cluster.stop()
    cluster.begin()
    assert "the last start took 12 min; given up after 45 min" in shown(cluster, capsys)
    cluster.clock.sleep(46 * 60)
    late = shown(cluster, capsys)
    assert (
        "longer than ready.deadline; the last start took 12 min; sparkop apply starts it anew after" in late
    )
    assert "after 50 min" in late
    assert "given up" not in late, "apply waits on, and so is the advice"
    cluster.clock.sleep(5 * 60)
    assert "loading for" not in shown(cluster, capsys)


def test_the_wait_for_ranks_that_load_already_tells_what_is_left_of_a_usual_start() -> None:
    """``loading for 21 s [about 2 s]``: an estimate that is over is none."""
    cluster = cluster_of()
    cluster.apply()
    remember(cluster, 700.0)
    cluster.stop()
    cluster.begin()
    for passed, text, figure in ((400, "[about 5 min]", 300.0), (400, "[longer than the last time]", None)):
        cluster.clock.sleep(passed)
        plan = cluster.plan()
        (line,) = plan_lines(plan)
        assert line.endswith(text), line
        seconds = plan_json(plan)["operations"][0]["cost"]["seconds"]
        assert seconds == (None if figure is None else pytest.approx(figure, abs=10))
