"""The one reader of OpenAI's answers: what real engines send, whole or in pieces."""

from __future__ import annotations

import contextlib
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkop.serving.stream import Message, StreamError, error_of, events, finish_of, pieces, usage_of
from tests.serving.conftest import DONE, delta, event


def message_of(*lines: bytes) -> Message:
    message = Message()
    for each in events(lines):
        if each is not None:
            message.add_event(each)
    return message


def test_comments_rubbish_and_what_follows_done_are_passed_over() -> None:
    lines = [
        b": ping",
        b"",
        b"event: x",
        b"data: {",
        b"data: 7",
        delta(content="a"),
        DONE,
        delta(content="b"),
    ]
    found = list(events(lines))
    assert [None if e is None else pieces(e)[0].text for e in found] == ["a", None]


@pytest.mark.parametrize(
    "document",
    [
        {"error": {"message": "EngineCore died", "code": 500}},
        {"error": "EngineCore died"},
        {"object": "error", "message": "EngineCore died", "code": 500},
    ],
)
def test_an_error_inside_a_stream_of_status_200_is_an_error(document: dict[str, Any]) -> None:
    """An engine that dies in the middle must not look like a short answer."""
    with pytest.raises(StreamError, match="EngineCore died"):
        list(events([delta(content="a"), event(document), DONE]))


def test_a_null_error_beside_choices_is_none() -> None:
    assert error_of({"choices": [], "error": None, "detail": "x"}) is None
    assert error_of({"detail": "Not Found"}) == "Not Found"


@given(st.text(max_size=40), st.lists(st.integers(0, 60), max_size=6), st.booleans())
def test_a_tool_call_is_the_same_however_it_is_split(city: str, cuts: list[int], indexed: bool) -> None:
    """Users met arguments that come a character at a time."""
    text = json.dumps({"city": city})
    places = sorted({0, *(min(cut, len(text)) for cut in cuts), len(text)})
    parts = [text[a:b] for a, b in pairwise(places)]
    index = {"index": 0} if indexed else {}
    first = {**index, "id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": ""}}
    lines = [delta(tool_calls=[first])]
    lines += [delta(tool_calls=[{**index, "function": {"arguments": part}}]) for part in parts]
    call = message_of(*lines, delta("tool_calls"), DONE).calls[0]
    assert (call.name, call.identity, json.loads(call.arguments)) == ("get_weather", "c1", {"city": city})


def part(index: int, **function: str) -> dict[str, Any]:
    return {"index": index, "function": function}


def test_two_calls_at_once_stay_apart() -> None:
    lines = [
        delta(tool_calls=[part(0, name="a", arguments="{")]),
        delta(tool_calls=[part(1, name="b", arguments="[1")]),
        delta(tool_calls=[part(0, arguments="}"), part(1, arguments="]")]),
    ]
    calls = message_of(*lines).calls
    assert [(c.name, c.arguments) for c in calls.values()] == [("a", "{}"), ("b", "[1]")]


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_kept_apart_under_either_name(name: str) -> None:
    message = message_of(delta(**{name: "hm "}), delta(**{name: "yes"}), delta(content="391"))
    assert (message.reasoning, message.content) == ("hm yes", "391")


def test_reasoning_sent_under_both_names_counts_once() -> None:
    assert message_of(delta(reasoning="hm", reasoning_content="hm")).reasoning == "hm"


def test_empty_deltas_and_absent_choices_are_no_tokens() -> None:
    empty: list[dict[str, Any]] = [
        {}, {"choices": None}, {"choices": []}, {"choices": [{}]}, {"choices": [None]},
        {"choices": [{"delta": {"content": "", "tool_calls": None}}]}, {"choices": [{"text": ""}]},
    ]  # fmt: skip
    assert [pieces(each) for each in empty] == [[]] * len(empty)


@pytest.mark.parametrize("function", [None, "x", [], {"name": None, "arguments": None}])
def test_a_call_without_a_function_is_no_crash(function: object) -> None:
    assert message_of(delta(tool_calls=[{"index": 0, "function": function}])).calls[0].name == ""


def test_arguments_as_an_object_are_json_text() -> None:
    call = {"function": {"name": "f", "arguments": {"city": "Paris"}}}
    assert json.loads(message_of(delta(tool_calls=[call])).calls[0].arguments) == {"city": "Paris"}


NAMES = ["choices", "delta", "message", "content", "tool_calls", "function", "usage", "error", "text"]
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
)


@given(ANY_JSON)
def test_no_document_of_any_shape_is_a_crash(document: Any) -> None:
    """A gateway between us and the engine sends what it likes."""
    found: list[Any] = []
    with contextlib.suppress(StreamError):
        found = list(events([event(document)]))
    for each in found:
        Message().add_event(each)
        assert all(piece.text for piece in pieces(each))
        assert all(isinstance(count, int) for count in usage_of(each).values())
        assert finish_of(each) is None or finish_of(each)


def test_a_document_without_end_and_half_a_character_are_no_crash() -> None:
    """A recursion error is no ValueError; half a character would crash the report."""
    lines = [b"data: " + b"[" * 200_000, b'data: {"choices":[{"delta":{"content":"a\\ud800"}}]}']
    assert message_of(*lines).content == "a?"


def test_usage_may_be_missing_or_null() -> None:
    assert usage_of({"usage": None}) == usage_of({}) == {}
    assert usage_of({"usage": {"prompt_tokens": 3, "completion_tokens": None}}) == {"prompt_tokens": 3}


def test_a_whole_answer_is_read_as_a_streamed_one() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    whole = {"choices": [{"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    message = Message()
    message.add_event(whole)
    assert (message.content, message.calls[0].name, finish_of(whole)) == ("", "f", "tool_calls")
