"""The canary: what counts as serving, and what must not count as a fault."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from sparkop.serving.canary import (
    EndpointState,
    Question,
    Serving,
    ask_once,
    degenerate,
    glance,
    look,
    sum_of,
)
from sparkop.spec.models import ApiSpec
from tests.serving.conftest import Body

QUESTION = Question(8000, "tiny", "hi", 16, 20.0, key="sentinel-key", counters=("out_total", "in_total"))


def tokens(*pieces: str, name: str = "content", done: bool = True) -> Body:
    lines = [b"data: " + json.dumps({"choices": [{"delta": {name: p}}]}).encode() for p in pieces]
    return Body(200, b": comment", *lines, *([b"data: [DONE]"] if done else []))


@dataclass
class Head:
    """The head's API: what it answers to generations, one after the other (the last for ever)."""

    generations: list[Callable[[], Body]]
    metrics: list[str] = field(default_factory=lambda: ["out_total 7"])
    deaf: bool = False
    """Does not answer for its metrics either; nor for one that is empty."""
    asked: list[tuple[str, Mapping[str, str], Any]] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    waited: float = 0.0
    """Seconds that requests without an answer have taken."""
    name: str = "spark-1"

    def http(
        self,
        method: str,
        port: int,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout: float = 30.0,
        address: str = "127.0.0.1",
    ) -> Body:
        self.addresses.append(address)
        self.asked.append((path, headers or {}, json.loads(body) if body else None))
        if path == "/metrics" and self.deaf:
            self.waited += timeout
            raise TimeoutError
        if path == "/metrics":
            told = self.metrics.pop(0) if len(self.metrics) > 1 else self.metrics[0]
            if not told:
                raise TimeoutError
            return Body(200, told.encode())
        made = self.generations.pop(0) if len(self.generations) > 1 else self.generations[0]
        try:
            return made()
        except TimeoutError:
            self.waited += timeout
            raise


def looked(*generations: Callable[[], Body], **options: Any) -> EndpointState:
    """What ``look`` says, without waiting."""
    head = Head(list(generations), **options)
    return look(head, QUESTION, sleep=lambda _: None)  # type: ignore[arg-type]


def refuse() -> Body:
    raise ConnectionRefusedError("nothing listens")


def hang() -> Body:
    raise TimeoutError


@pytest.mark.parametrize("name", ["content", "reasoning_content", "reasoning"])
def test_tokens_of_any_kind_are_ready(name: str) -> None:
    """A model that thinks gives reasoning first, under one of two names."""
    state = looked(lambda: tokens("Hel", "lo", " there", name=name))
    assert state.serving is Serving.READY
    assert state.text == "Hello there"


def test_the_key_goes_in_the_header_and_nowhere_else() -> None:
    """Decision 10: not in the body, the path, the detail or a repr."""
    head = Head([lambda: Body(500, b"no")])
    state = look(head, QUESTION, sleep=lambda _: None)  # type: ignore[arg-type]
    path, headers, body = head.asked[0]
    assert headers["Authorization"] == "Bearer sentinel-key"
    assert "sentinel-key" not in path + repr(body) + repr(state) + repr(QUESTION)
    assert body["stream"] is True
    assert body["max_tokens"] == 16


@pytest.mark.parametrize(
    ("answer", "serving"),
    [
        (refuse, Serving.SILENT),
        (lambda: Body(503, b"loading"), Serving.LOADING),
        (lambda: Body(502, b"bad gateway"), Serving.LOADING),
        (lambda: Body(401, b"{}"), Serving.UNAUTHORISED),
        (lambda: Body(403, b"{}"), Serving.UNAUTHORISED),
        (lambda: Body(404, b"no such model"), Serving.FAILED),
        (lambda: Body(400, b"no chat template"), Serving.FAILED),
        (lambda: Body(500, b"EngineDeadError"), Serving.BROKEN),
        (lambda: Body(200, ConnectionResetError("reset")), Serving.BROKEN),
        (lambda: Body(200, b'data: {"error": {"message": "EngineCore died"}}'), Serving.BROKEN),
        (hang, Serving.WEDGED),
        (lambda: tokens(done=True), Serving.DEGENERATE),
        (lambda: tokens(*["!"] * 8), Serving.DEGENERATE),
    ],
)
def test_every_answer_has_its_name(answer: Callable[[], Body], serving: Serving) -> None:
    """401 read as down was a false alarm that peers had; 503 is a start; 500 is a dead engine."""
    assert looked(answer).serving is serving


def test_a_second_generation_clears_a_first_bad_one() -> None:
    """Twice, or it is no fault."""
    for bad in (hang, lambda: tokens(*["!"] * 8), lambda: Body(500)):
        assert looked(bad, lambda: tokens("fine", " now")).serving is Serving.READY


def test_counters_that_move_are_no_wedge() -> None:
    """A long prefill of somebody else gives us no token for minutes, but the engine works."""
    assert (
        looked(hang, metrics=["out_total 7\nin_total 1", "out_total 7\nin_total 2"]).serving is Serving.BUSY
    )
    assert looked(hang, metrics=["out_total 7"]).serving is Serving.WEDGED


def test_a_wedge_that_is_believed_needs_one_generation_more_and_no_standstill() -> None:
    """`apply` looks again once it holds the lease: two minutes more would help nobody."""
    before = EndpointState(Serving.WEDGED, "twice, and its counters stand still")
    slept: list[float] = []

    def again(*generations: Callable[[], Body], **options: Any) -> EndpointState:
        head = Head(list(generations), **options)
        return look(head, QUESTION, sleep=slept.append, believed=before)  # type: ignore[arg-type]

    assert again(hang) == before
    assert slept == []
    assert again(lambda: tokens("Hello", " there")).serving is Serving.READY
    assert again(hang, metrics=["out_total 7", "out_total 8"]).serving is Serving.WEDGED
    assert slept, "it was judged anew"


def test_counters_that_cannot_be_read_are_no_evidence() -> None:
    """A false alarm is worse than a late one."""
    assert looked(hang, metrics=["something_else 7"]).serving is Serving.BUSY


def test_an_api_that_answers_nothing_at_all_is_wedged() -> None:
    """The head's processes are stopped: it was told as busy, so diff and apply said converged for ever."""
    state = looked(hang, deaf=True)
    assert state.serving is Serving.WEDGED
    assert "do not answer either" in state.detail
    head = Head([hang], deaf=True)
    slept: list[float] = []
    assert look(head, QUESTION, sleep=slept.append, believed=state) == state  # type: ignore[arg-type]
    assert slept == [], "apply judged it all anew"


def test_an_api_that_stops_to_answer_while_it_is_judged_is_wedged() -> None:
    """Its counters were read before, never after: it was told as busy, and apply said converged. Once is
    no evidence."""
    state = looked(hang, metrics=["out_total 7", ""])
    assert state.serving is Serving.WEDGED
    assert "do not answer either" in state.detail
    assert looked(hang, metrics=["out_total 7", "", "out_total 8"]).serving is Serving.BUSY
    assert looked(hang, metrics=["out_total 7", "", "out_total 7"]).serving is Serving.WEDGED
    assert looked(hang, metrics=["", "out_total 7"]).serving is Serving.BUSY


def test_a_slow_stream_that_gives_tokens_is_ready() -> None:
    """The deadline is for the first token to prove itself by; what comes late still came."""
    state = looked(lambda: Body(200, b'data: {"choices":[{"delta":{"content":"a"}}]}', TimeoutError()))
    assert state.serving is Serving.READY


def test_the_answer_is_closed() -> None:
    """A canary that leaks a channel a tick would end the connection of a watch."""
    made = tokens("a", "b")
    ask_once(Head([lambda: made]), QUESTION)  # type: ignore[arg-type]
    assert made.closed


def test_short_repetitions_are_words() -> None:
    """ "ha ha" is an answer; the same piece four times is not."""
    assert not degenerate(["ha", " ha"])
    assert not degenerate(["391"])
    assert degenerate(["!", "!", "!", "!"])
    assert degenerate([" ", "\n"])


def test_metrics_are_summed_over_labels() -> None:
    """vLLM labels its counters by engine; another metric with the same beginning is not counted."""
    text = 'out_total{engine="0"} 3\nout_total{engine="1"} 4.5\nout_total_created 99\nout 5\n'
    assert sum_of("out_total", text) == 7.5
    assert sum_of("missing", text) is None


def test_an_api_that_listens_on_one_address_is_asked_there() -> None:
    """``api.bind`` as one address: loopback is closed then, and nothing would ever be ready."""
    head = Head([lambda: Body(200)], metrics=["out_total 7"])
    look(head, replace(QUESTION, address="10.0.0.7"), sleep=lambda _: None)  # type: ignore[arg-type]
    assert set(head.addresses) == {"10.0.0.7"}


@pytest.mark.parametrize(
    ("bind", "asked"),
    [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("127.0.0.1", "127.0.0.1"), ("10.0.0.7", "10.0.0.7")],
)
def test_the_heads_own_address_of_the_api(bind: str, asked: str) -> None:
    assert ApiSpec(bind=bind, served_names=("tiny",)).own_address == asked


def test_a_web_page_is_not_shown_as_the_words_of_an_engine() -> None:
    """The API's port was another program's, and a row of the plan held the head of its HTML."""
    state = ask_once(Head([lambda: Body(501, b"\n<!DOCTYPE HTML>\n<html><body>no</body></html>")]), QUESTION)
    assert state.serving is Serving.BROKEN
    assert state.detail == "HTTP 501: a web page, which no engine sends"


def test_a_frozen_api_is_told_in_half_a_minute_to_who_only_looks() -> None:
    """Two generations and counters one after the other took ``status`` two minutes."""
    frozen = Head([hang], deaf=True)
    question = replace(QUESTION, deadline=60.0)
    state = glance(frozen, question, sleep=lambda _: None)  # type: ignore[arg-type]
    assert state.serving is Serving.WEDGED
    assert state.detail == "no answer within 15 s, and its counters do not answer either"
    assert frozen.waited <= 30


def test_who_only_looks_does_not_take_slow_for_frozen() -> None:
    """Its counters answer: it gets the whole patience."""
    slow = Head([hang, lambda: tokens("Hel", "lo")])
    assert glance(slow, QUESTION, sleep=lambda _: None).serving is Serving.READY  # type: ignore[arg-type]
    once_late = Head([hang, lambda: tokens("Hel", "lo")], metrics=["", "out_total 7"])
    assert glance(once_late, QUESTION, sleep=lambda _: None).serving is Serving.READY  # type: ignore[arg-type]
