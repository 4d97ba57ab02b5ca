"""Smoke: PASS, FAIL or not offered, for whatever a server does; nothing is capped and nothing hangs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sparkop.hosts.local import LocalHost
from sparkop.serving.api import CHAT, Api, Limits
from sparkop.serving.smoke import Check, Offer, Verdict, has_product, passed, red_before_blue, smoke
from tests.images.conftest import Stage
from tests.serving.conftest import DONE, KEY, Body, Head, api, delta, event, said

EVERYTHING = Offer(tools=True, reasoning=True, vision=True)
PARSERS = ("--enable-auto-tool-choice", "--tool-call-parser", "x", "--reasoning-parser", "x")


def whole(text: str) -> Body:
    return Body(
        200, json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}).encode()
    )


def thought(reasoning: str, content: str) -> Body:
    return Body(200, delta(reasoning=reasoning), delta(content=content), delta("stop"), DONE)


def call(name: str, *arguments: str) -> Body:
    first = delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": name, "arguments": ""}}])
    rest = [delta(tool_calls=[{"index": 0, "function": {"arguments": a}}]) for a in arguments]
    return Body(200, first, *rest, delta("tool_calls"), DONE)


def good(_path: str, body: Any) -> Body:
    """A model that can do everything."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return said("It is mild: no coat.")
    if isinstance(last["content"], list):
        return said("The left half is red and the right half is blue.")
    if body.get("tools"):
        return call("get_weather", '{"ci', 'ty": "Par', 'is"}')
    if not body.get("stream"):
        return whole("17 * 23 = 391")
    thought = [delta(reasoning="17 * 20 = 340, "), delta(reasoning="and 51.")]
    return Body(200, *thought, delta(content="39"), delta(content="1"), delta("stop"), DONE)


def verdicts(reply: Any, offer: Offer = EVERYTHING) -> dict[str, Check]:
    return {check.name: check for check in smoke(api(reply), offer, deadline=5)}


def test_a_good_model_passes_everything() -> None:
    checks = verdicts(good)
    assert {c.verdict for c in checks.values()} == {Verdict.PASS}
    assert passed(list(checks.values()))
    assert list(checks) == ["text", "streaming", "tool call", "reasoning", "vision", "thinking with tools"]


def test_no_request_has_an_output_cap_and_the_key_is_only_in_the_header() -> None:
    """A cap would hide a loop; principle 10."""
    head = Head(good)
    list(smoke(Api(head, 8000, "tiny", KEY), EVERYTHING))  # type: ignore[arg-type]
    assert len(head.asked) == 7
    for path, headers, body in head.asked:
        assert path == CHAT
        assert not {"max_tokens", "max_completion_tokens", "max_new_tokens"} & set(body)
        assert headers["Authorization"] == f"Bearer {KEY}"
        assert KEY not in json.dumps(body)


def test_the_loop_check_asks_as_an_agent_does() -> None:
    """Thinking and temperature are the server's own: with temperature 0 or thinking off the loop hides."""
    head = Head(good)
    list(smoke(Api(head, 8000, "tiny"), EVERYTHING))  # type: ignore[arg-type]
    first, second = (body for _, _, body in head.asked[-2:])
    for body in (first, second):
        assert set(body) == {"model", "messages", "tools", "stream"}
    assert [m["role"] for m in second["messages"]] == ["user", "assistant", "tool"]
    assert second["messages"][1]["tool_calls"][0]["id"] == second["messages"][2]["tool_call_id"]


def test_what_is_not_offered_is_not_asked() -> None:
    head = Head(good)
    offer = Offer(tools=False, reasoning=False, vision=False)
    checks = list(smoke(Api(head, 8000, "tiny"), offer))  # type: ignore[arg-type]
    assert [c.verdict for c in checks] == [Verdict.PASS] * 2 + [Verdict.NOT_OFFERED] * 4
    assert passed(checks)
    assert len(head.asked) == 2


def refuse_pictures(path: str, body: Any) -> Body:
    if isinstance(body["messages"][-1]["content"], list):
        return Body(400, json.dumps({"error": {"message": "tiny is not a multimodal model"}}).encode())
    return good(path, body)


def test_a_refused_picture_is_not_offered_unless_it_was_promised() -> None:
    unknown = verdicts(refuse_pictures, Offer(vision=None))["vision"]
    assert unknown.verdict is Verdict.NOT_OFFERED
    assert "not a multimodal model" in unknown.detail
    assert verdicts(refuse_pictures, Offer(vision=True))["vision"].verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda: call("get_weather", '{"city": "London"}'), "London"),
        (lambda: call("get_time", '{"city": "Paris"}'), "get_time"),
        (lambda: call("get_weather", '{"city": "Par'), "no JSON"),
        (lambda: call("get_weather", '["Paris"]'), "None"),
        (lambda: said("<tool_call>get_weather(Paris)</tool_call>"), "no tool call"),
        (lambda: Body(400, b'{"error": {"message": "needs --enable-auto-tool-choice"}}'), "auto-tool-choice"),
    ],
)
def test_a_wrong_tool_call_fails_and_says_what_came(answer: Any, words: str) -> None:
    """A parser that does not fit the model leaves the call in the text."""
    check = verdicts(lambda path, body: answer() if body.get("tools") else good(path, body))["tool call"]
    assert check.verdict is Verdict.FAIL
    assert words in check.detail
    assert "Paris" in check.asked
    assert check.answered


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda: said("391"), "no reasoning"),
        (lambda: thought("hm", "<think>so</think>391"), "parser"),
        (lambda: thought("17 * 23 = 391", "Well."), "no 391"),
    ],
)
def test_reasoning_must_be_beside_the_answer(answer: Any, words: str) -> None:
    def reply(path: str, body: Any) -> Body:
        return answer() if "chat_template_kwargs" in body else good(path, body)

    check = verdicts(reply)["reasoning"]
    assert check.verdict is Verdict.FAIL
    assert words in check.detail


def endless(token: str) -> Iterator[bytes]:
    while True:
        yield delta(content=token)


class Endless(Body):
    """A stream that never ends by itself."""

    def __init__(self, token: str) -> None:
        super().__init__(200)
        self.token, self.given = token, 0

    def lines(self) -> Iterator[bytes]:
        for line in endless(self.token):
            self.given += 1
            yield line


def test_token_0_for_ever_is_a_loop_that_ends_soon() -> None:
    """HTTP 200, `!` until the context is full."""
    made: list[Endless] = []

    def reply(path: str, body: Any) -> Body:
        if not body.get("tools"):
            return good(path, body)
        made.append(Endless("!"))
        return made[-1]

    check = verdicts(reply)["thinking with tools"]
    assert check.verdict is Verdict.FAIL
    assert "'!'" in check.detail
    assert "enable_thinking" in check.detail
    assert "!!!" in check.answered
    assert all(each.given < 100 and each.closed for each in made)


def test_a_loop_in_the_second_turn_is_seen() -> None:
    """The poisoned prefix is often that of the tool's result."""

    def reply(path: str, body: Any) -> Body:
        return Endless("!") if body["messages"][-1]["role"] == "tool" else good(path, body)

    assert verdicts(reply)["thinking with tools"].verdict is Verdict.FAIL


def test_an_error_inside_the_stream_fails_with_its_words() -> None:
    def reply(path: str, body: Any) -> Body:
        if not body.get("stream"):
            return good(path, body)
        return Body(200, delta(content="391"), event({"error": {"message": "EngineCore died"}}), DONE)

    checks = verdicts(reply)
    assert "EngineCore died" in checks["streaming"].detail
    assert checks["streaming"].verdict is Verdict.FAIL
    assert checks["text"].verdict is Verdict.PASS


def test_a_stream_that_breaks_off_is_no_answer() -> None:
    cut = verdicts(lambda path, body: Body(200, delta(content="391"), ConnectionResetError("reset")))
    assert cut["streaming"].verdict is Verdict.FAIL
    short = verdicts(
        lambda path, body: Body(200, delta(content="391")) if body.get("stream") else whole("391")
    )
    assert short["streaming"].verdict is Verdict.FAIL
    assert "without" in short["streaming"].detail


def test_a_server_that_only_keeps_alive_is_left_after_the_deadline() -> None:
    """Comments reset every read's timeout; the whole answer has one of its own."""

    class Pings(Body):
        def lines(self) -> Iterator[bytes]:
            while True:
                time.sleep(0.01)
                yield b": ping"

    began = time.monotonic()
    answer = api(lambda path, body: Pings(200)).ask(CHAT, {"stream": True}, Limits(0.2))
    assert time.monotonic() - began < 5
    assert "0.2 s" in answer.error


def test_391_stands_alone_and_is_said() -> None:
    def answer(text: str) -> bool:
        return has_product(api(lambda path, body: said(text)).ask(CHAT, {"stream": True}, Limits(5)))

    assert answer("The product is **391**.")
    assert not answer("13910")
    assert not answer("3910")


@pytest.mark.parametrize(
    ("text", "right"),
    [("Left: Red. Right: Blue.", True), ("blue, then red", False), ("Reddish blue", False), ("red", False)],
)
def test_red_comes_before_blue(text: str, right: bool) -> None:
    assert red_before_blue(text) is right


def test_against_a_real_server_in_both_manners(stage: Stage) -> None:
    """Reasoning in its own field, split tool calls, a PNG that is decoded, keys: over real HTTP."""
    vllm = stage.vllm(*PARSERS, "--api-key", KEY, key=KEY, LAB_STANDIN_TOKEN_SECONDS="0.0002")
    sglang = stage.sglang("--tool-call-parser", "x", "--reasoning-parser", "x")
    for process, key in ((vllm.ready(), KEY), (sglang.ready(), None)):
        model = process.ask("/v1/models").json["data"][0]["id"]
        served = Api(LocalHost("here"), process.port, model, key)
        found = list(smoke(served, EVERYTHING, deadline=20))
        assert [c.verdict for c in found] == [Verdict.PASS] * 6, found
    vllm.fault("degenerate")
    broken = Api(LocalHost("here"), vllm.port, str(stage.model), KEY)
    found = list(smoke(broken, EVERYTHING, deadline=20))
    assert {c.verdict for c in found} == {Verdict.FAIL}
    assert "'!'" in found[-1].detail
