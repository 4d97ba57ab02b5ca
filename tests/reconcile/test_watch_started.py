"""A start that another process waits for: what watch has seen of it is not held against the group."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from sparkop.resources.liveness import Verdict
from sparkop.serving.canary import EndpointState
from tests.reconcile.simulation import Cluster
from tests.reconcile.watching import Watching, entries, leased, serving

DEADLINE = {"deadline": "20 min", "canary": {"deadline": "20 s"}}


def slowly(cluster: Cluster) -> type:
    """A generation takes three seconds while the group serves: longer than a look waits for it."""

    class Slowly:
        def __init__(self, call: Callable[[], EndpointState], _name: str) -> None:
            self._answer = call()
            self._at = cluster.clock.now + (3.0 if cluster.manner == "serve" else 0.0)

        def result(self, timeout: float | None = None) -> EndpointState:
            cluster.clock.sleep(min(timeout or 0.0, max(0.0, self._at - cluster.clock.now)))
            if cluster.clock.now < self._at:
                raise TimeoutError
            return self._answer

    return Slowly


def served(cluster: Cluster) -> None:
    """The apply of somebody else has seen tokens, and gives its lease back."""
    node = cluster.node("spark-1")
    path = next(path for path in node.files if path.endswith("history.json"))
    document = node.document_of(path)
    ready = {"id": "ready-1", "event": "ready", "epoch": 1, "generation": 1, "at": cluster.clock.now}
    document["entries"].append(ready)
    node.files[path] = (json.dumps(document).encode(), 0o600)


@pytest.mark.parametrize(("listens", "seconds"), [(True, 24), (False, 400)])
def test_a_group_that_an_apply_has_just_brought_up_is_left_alone(listens: bool, seconds: float) -> None:
    """It was killed as soon as ``ready`` stood in the history: BROKEN because of the 503 of its start, or
    SILENT because its start had taken longer than five minutes."""
    cluster = Cluster.make(ready=DEADLINE)
    cluster.begin()
    cluster.started.clear()
    watching = Watching(cluster, begin=slowly(cluster))
    services = cluster.node("spark-1").services
    service = services[8000]
    if not listens:
        del services[8000]
    until, beat = cluster.clock.now + seconds, 1
    while cluster.clock.now < until:
        leased(cluster, beat := beat + 1)
        watching.ticks(1)
    cluster.manner = "serve"
    services[8000] = service
    served(cluster)
    leased(cluster, beat, released=True)
    watching.minutes(3)
    assert not watching.acts
    assert cluster.started == []
    assert watching.watch.eye.life.verdict is Verdict.SERVING


def test_a_group_that_another_watch_has_just_restarted_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two watches: the second stood aside for the restart, and then wanted another."""
    cluster = serving(ready=DEADLINE)
    first, second = Watching(cluster), Watching(cluster, begin=slowly(cluster))
    first.ticks(2)
    second.ticks(2)
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 137)
    sleep, slept, looks = cluster.clock.sleep, [0.0], list[float]()

    def second_looks_too(seconds: float) -> None:
        sleep(seconds)
        slept[0] += seconds
        loads = ("wait-started", {"node": "spark-1", "resource": "endpoint"}) in first.said
        if loads and slept[0] >= 10 and len(looks) < 4:
            slept[0] = -1e9  # not while it looks
            looks.append(cluster.clock.now)
            second.watch.look()  # standing aside, it does no more
            slept[0] = 0.0
            cluster.manner = "serve" if len(looks) == 4 else "loading"

    monkeypatch.setattr(cluster.clock, "sleep", second_looks_too)
    cluster.manner = "loading"
    first.ticks(1)
    assert len(looks) == 4
    second.minutes(3)
    assert not {"acting", "held"} & {*second.names()}
    assert [entry["by"] for entry in entries(cluster, "start")] == ["human", "watch"]
    assert second.watch.eye.life.verdict is Verdict.SERVING
