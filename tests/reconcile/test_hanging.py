"""A rank that hangs: smoke soon says which one, and never as a node is silent to us alone."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from sparkop.engines.common import container_names
from sparkop.engines.render import engine_of
from sparkop.errors import UnreachableError
from sparkop.reconcile.hanging import Pace, Watched
from sparkop.resources.events import Event
from sparkop.serving.api import CHAT, Answer, Api, Limits
from sparkop.serving.smoke import Check, Offer, Verdict, smoke
from sparkop.spec.load import load
from sparkop.views.smoke import show_smoke
from tests.checks.cases import ROOT
from tests.serving.conftest import DONE, Body, delta, said

SPEC = load([ROOT / "specs/lab-standin.yaml"]).spec
NAMES = container_names(SPEC)
METRIC = engine_of(SPEC).manners.metrics.generation_tokens
PACE = Pace(quiet=0.1, still=0.05, look=1.0)
DEADLINE = 1.0
FROZEN = UnreachableError(
    "No SSH connection to spark-2.", cause="spark-2.lab accepts the connection but says nothing"
)


@dataclass
class Node:
    """A node with one rank. ``state``: of its container, None: none; ``error``: instead of an answer."""

    name: str
    container: str
    state: str | None = "running"
    error: Exception | None = None
    docker: bool = True

    def probe(self, request: Mapping[str, Any], *, timeout: float = 30.0) -> dict[str, Any]:
        assert request["sections"] == ["docker"], "the look has to be quick"
        if self.error is not None:
            raise self.error
        if not self.docker:
            return {"version": 1, "nonce": "n", "errors": {"docker": "no answer in 5 s"}}
        container = {"id": "1", "name": self.container, "image": "i", "image_id": "i", "state": self.state,
                     "labels": {}, "exit_code": None if self.state == "running" else 137}  # fmt: skip
        return {
            "version": 1,
            "nonce": "n",
            "errors": {},
            "docker": {
                "version": "28",
                "api_version": "1.48",
                "containers": [container] if self.state else [],
            },
        }


@dataclass
class Head(Node):
    """The head: its API says ``reply``, its counters ``count``; None: nothing answers."""

    reply: Callable[[float], Body] = lambda _timeout: said("391")
    count: Iterator[int] | None = field(default_factory=lambda: itertools.repeat(7))
    asked: list[str] = field(default_factory=list)

    def http(self, _method: str, _port: int, path: str, *, timeout: float, **_more: Any) -> Body:
        if path != "/metrics":
            self.asked.append(path)
            return self.reply(timeout)
        if self.count is None:
            raise ConnectionRefusedError("refused")
        return Body(200, f"{METRIC} {next(self.count)}".encode())


class Silent(Body):
    """Takes the request and says no more, as the API of a group does in which a rank hangs."""

    def __init__(self, timeout: float, *lines: bytes) -> None:
        super().__init__(200, *lines)
        self._timeout = timeout

    def lines(self) -> Iterator[bytes]:
        yield from super().lines()
        threading.Event().wait(self._timeout)
        raise TimeoutError


class Cluster:
    """Two ranks, looked at while their API is asked."""

    def __init__(self, head: Head, worker: Node) -> None:
        self.head = head
        self.told: list[str] = []
        hosts: Any = {"spark-1": head, "spark-2": worker}
        api = Api(hosts["spark-1"], 8000, "tiny")
        self.api = Watched(SPEC, hosts, api, self._hear, PACE)

    def _hear(self, event: Event) -> None:
        self.told.append(event.text)

    def smoke(self) -> list[Check]:
        return list(smoke(self.api, Offer(vision=False), DEADLINE))

    def ask(self) -> Answer:
        return self.api.ask(CHAT, {"stream": True}, Limits(DEADLINE))


def head(reply: Callable[[float], Body], count: Iterator[int] | None = None, **more: Any) -> Head:
    return Head("spark-1", NAMES[0], reply=reply, count=count, **more)


def worker(**more: Any) -> Node:
    return Node("spark-2", NAMES[1], **more)


def still() -> Iterator[int]:
    return itertools.repeat(7)


def late(timeout: float) -> Body:
    """The answer of a model that takes its time."""
    time.sleep(0.6 * timeout)
    return said("391")


@pytest.mark.parametrize(
    ("rank", "words", "remedy"),
    [
        (worker(error=FROZEN), "spark-2, which has rank 1, does not answer: spark-2.lab accepts", "console"),
        (
            worker(docker=False),
            "spark-2, which has rank 1: Docker does not answer: no answer in 5 s",
            "once this is done there: sudo systemctl restart docker",
        ),
        (worker(state="exited"), "rank 1 exited (137) on spark-2", "sparkop logs --rank 1"),
        (worker(state=None), "rank 1 is gone on spark-2", "sparkop logs --rank 1"),
    ],
)
def test_a_rank_that_hangs_ends_smoke_and_is_named(rank: Node, words: str, remedy: str) -> None:
    """It would wait for six answers, three minutes each."""
    cluster = Cluster(head(Silent, still()), rank)
    began = time.monotonic()
    checks = cluster.smoke()
    assert time.monotonic() - began < 0.9 * DEADLINE
    assert [check.verdict for check in checks] == [Verdict.FAIL]
    assert cluster.head.asked == [CHAT], "what hangs is not asked again"
    assert checks[0].hang is not None
    assert words in checks[0].hang.cause
    assert remedy in checks[0].hang.remedy
    assert "sparkop apply" in checks[0].hang.remedy
    assert "no token in" in checks[0].detail
    assert "looking at every rank" in cluster.told[0]


@pytest.mark.parametrize("count", [itertools.count(), None], ids=["moving", "unread"])
def test_a_node_that_is_silent_to_us_alone_stops_no_answer(count: Iterator[int] | None) -> None:
    """The management network is cut, the fabric is not: the model thinks, and its answer is on the way."""
    cluster = Cluster(head(late, count), worker(error=FROZEN))
    answer = cluster.ask()
    assert answer.ok
    assert answer.hang is None
    assert any("it may work on" in told for told in cluster.told)


def test_a_container_that_does_not_run_needs_no_counters() -> None:
    cluster = Cluster(head(Silent, None), worker(state="exited"))
    assert cluster.ask().hang is not None


def test_a_head_that_is_away_with_its_api_is_hung() -> None:
    """Nobody could bring the answer."""
    lost = Cluster(head(Silent, None, error=FROZEN), worker())
    answer = lost.ask()
    assert answer.seconds < 0.9 * DEADLINE
    assert answer.hang is not None
    assert "rank 0" in answer.hang.cause
    busy = Cluster(head(late, itertools.count(), error=FROZEN), worker())
    assert busy.ask().ok


def test_tokens_that_come_again_are_waited_for() -> None:
    """What was seen while it was quiet does not count when a token came meanwhile."""

    class Halting(Body):
        def lines(self) -> Iterator[bytes]:
            for _ in range(12):
                time.sleep(0.11)  # a look begins after each pause, and ends after the next token
                yield delta(content="391 ")
            yield delta("stop")
            yield DONE

    slow = Pace(quiet=0.1, still=0.15, look=1.0)
    cluster = Cluster(head(lambda _timeout: Halting(200), still()), worker(error=FROZEN))
    cluster.api = Watched(SPEC, {"spark-1": cluster.head, "spark-2": worker(error=FROZEN)},  # type: ignore[dict-item]
                          Api(cluster.head, 8000, "tiny"), cluster._hear, slow)  # type: ignore[arg-type]  # fmt: skip
    assert cluster.api.ask(CHAT, {"stream": True}, Limits(10)).ok


def test_a_stream_that_stops_in_the_middle_is_looked_at_too() -> None:
    cluster = Cluster(head(lambda t: Silent(t, delta(content="39")), still()), worker(error=FROZEN))
    answer = cluster.ask()
    assert answer.seconds < 0.9 * DEADLINE
    assert answer.hang is not None
    assert answer.told.startswith("39")


def test_without_a_culprit_one_answer_is_waited_for_to_its_deadline() -> None:
    """All ranks run and the counters stand still: a first compilation looks so too, six answers would not."""
    cluster = Cluster(head(Silent, still()), worker())
    checks = cluster.smoke()
    assert cluster.head.asked == [CHAT]
    assert DEADLINE <= checks[0].seconds < 2 * DEADLINE
    assert checks[0].hang is not None
    assert "every rank runs" in checks[0].hang.cause
    assert "sparkop status" in checks[0].hang.remedy


def test_a_busy_engine_is_asked_everything() -> None:
    """Its counters move: others are served."""
    cluster = Cluster(head(Silent, itertools.count()), worker())
    checks = cluster.smoke()
    assert len(checks) == 6
    assert all(check.hang is None for check in checks)


def test_what_hangs_and_what_to_do_end_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    """In text and in JSON."""
    checks = Cluster(head(Silent, still()), worker(state="exited")).smoke()
    assert not show_smoke(checks)
    told = " ".join(capsys.readouterr().out.split())
    assert "what hangs: rank 1 exited (137) on spark-2 do: sparkop logs --rank 1" in told
    show_smoke(checks, "json")
    found = json.loads(capsys.readouterr().out)["checks"][0]["hang"]
    assert set(found) == {"cause", "remedy"}
