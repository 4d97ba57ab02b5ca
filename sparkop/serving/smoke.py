"""Does the model do what it is there for: text, tools, pictures, reasoning, streaming.

No request has an output cap, as clients send none; reading ends by itself after ``deadline`` or in a loop.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Protocol

from sparkop.records import dataclass
from sparkop.serving.api import CHAT, Answer, Hang, Limits
from sparkop.serving.picture import data_url
from sparkop.serving.stream import ToolCall, parse

CITY = "Paris"
PRODUCT = "391"
SUM = "What is 17 * 23?"
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Name of the city."}},
            "required": ["city"],
        },
    },
}
WEATHER = f"What is the weather in {CITY}?"
REPORT = json.dumps({"city": CITY, "sky": "clear", "celsius": 18})
HALVES = "Which colour has the left half of this picture, and which the right half?"
THINK = {"chat_template_kwargs": {"thinking": True, "enable_thinking": True}}
"""DeepSeek's templates read the first, Qwen's the second; both ignore the other."""
NO_TOOLS = "the spec names no tool parser, or forbids that the model chooses"
REFUSED = (400, 404, 415, 422, 501)
"""What engines answer to something that they do not have."""


class Asks(Protocol):
    """What answers questions: the API."""

    def ask(self, path: str, body: Mapping[str, Any], limits: Limits) -> Answer: ...


class Verdict(StrEnum):
    """What a check found."""

    PASS = "PASS"  # noqa: S105
    FAIL = "FAIL"
    NOT_OFFERED = "not offered"


@dataclass(frozen=True)
class Offer:
    """What the spec and the model's configuration promise. ``vision`` None: nothing is known."""

    tools: bool = True
    reasoning: bool = True
    vision: bool | None = None


@dataclass(frozen=True)
class Check:
    """One ability. ``asked`` and ``answered`` are told when it fails."""

    name: str
    verdict: Verdict
    detail: str
    seconds: float = 0.0
    asked: str = ""
    answered: str = ""
    loop: str = ""
    """What was repeated, when the answer went round in circles."""
    hang: Hang | None = None
    """Why no answer came; then no other check is made."""


def smoke(api: Asks, offer: Offer, deadline: float = 180.0) -> Iterator[Check]:
    """One check after the other, each as soon as it is known. ``deadline``: seconds for each answer.

    Ends with the first one whose answer hangs. Raises UnreachableError when the node is away.
    """
    limits = Limits(deadline)
    checks: tuple[Callable[[Asks, Offer, Limits], Check], ...] = (
        _text, _streaming, _tool_call, _reasoning, _vision, _loop,
    )  # fmt: skip
    for check in checks:
        made = check(api, offer, limits)
        yield made
        if made.hang is not None:
            return


def passed(checks: list[Check]) -> bool:
    """Nothing that is offered failed."""
    return all(check.verdict is not Verdict.FAIL for check in checks)


def _user(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def _text(api: Asks, _offer: Offer, limits: Limits) -> Check:
    answer = api.ask(CHAT, {**_user(SUM), "temperature": 0}, limits)
    problem = answer.error or ("" if has_product(answer) else f"the answer has no {PRODUCT}")
    return _check("text", answer, problem, SUM, f"17 * 23 = {PRODUCT}")


def has_product(answer: Answer) -> bool:
    """391 as a number of its own, in what is said (not in what is thought)."""
    return re.search(rf"(?<![\d.]){PRODUCT}(?!\d)", answer.message.content) is not None


def _streaming(api: Asks, _offer: Offer, limits: Limits) -> Check:
    body = {**_user(SUM), "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
    answer = api.ask(CHAT, body, limits)
    problem = answer.error
    if not problem and not has_product(answer):
        problem = f"the streamed answer has no {PRODUCT}"
    if not problem and not answer.done:
        problem = "the stream ended without [DONE]"
    usage = "" if answer.usage else ", without usage"
    return _check("streaming", answer, problem, SUM, f"{len(answer.arrivals)} chunks{usage}")


def _tool_call(api: Asks, offer: Offer, limits: Limits) -> Check:
    if not offer.tools:
        return Check("tool call", Verdict.NOT_OFFERED, NO_TOOLS)
    answer = api.ask(CHAT, {**_user(WEATHER), "tools": [TOOL], "temperature": 0, "stream": True}, limits)
    problem = answer.error or tool_problem(list(answer.message.calls.values()))
    asked = f"{WEATHER} (with the tool get_weather)"
    return _check("tool call", answer, problem, asked, f"get_weather({CITY})")


def tool_problem(calls: list[ToolCall]) -> str:
    """What is wrong with the calls, if something is: one of get_weather for the city is asked for."""
    if not calls:
        return "no tool call"
    problems = []
    for call in calls:
        name = call.name or "a nameless tool"
        arguments = parse(call.arguments)
        if arguments is None:
            problems.append(f"arguments of {name} are no JSON: {call.arguments[:100]}")
            continue
        city = arguments.get("city") if isinstance(arguments, dict) else None
        if call.name != "get_weather":
            problems.append(f"a call of {name}")
        elif CITY.lower() not in str(city).lower():
            problems.append(f"the call names {city!r}, not {CITY}")
        else:
            return ""
    return "; ".join(problems)


def _reasoning(api: Asks, offer: Offer, limits: Limits) -> Check:
    if not offer.reasoning:
        return Check("reasoning", Verdict.NOT_OFFERED, "the spec names no reasoning parser")
    answer = api.ask(CHAT, {**_user(SUM), **THINK, "stream": True}, limits)
    thought, said = answer.message.reasoning, answer.message.content
    problem = answer.error
    if not problem and not thought.strip():
        problem = "no reasoning beside the answer"
    if not problem and ("<think>" in said or "</think>" in said):
        problem = "marks of thinking in the answer: the reasoning parser is not the model's"
    if not problem and not has_product(answer):
        problem = f"reasoning, but no {PRODUCT} in the answer"
    return _check("reasoning", answer, problem, f"{SUM} (thinking on)", f"{len(thought)} characters of it")


def _vision(api: Asks, offer: Offer, limits: Limits) -> Check:
    if offer.vision is False:
        return Check("vision", Verdict.NOT_OFFERED, "the model or the spec has no pictures")
    parts = [{"type": "image_url", "image_url": {"url": data_url()}}, {"type": "text", "text": HALVES}]
    body = {"messages": [{"role": "user", "content": parts}], "temperature": 0, "stream": True}
    answer = api.ask(CHAT, body, limits)
    if offer.vision is None and answer.status in REFUSED:
        return Check("vision", Verdict.NOT_OFFERED, answer.told, round(answer.seconds, 3))
    problem = answer.error or ("" if red_before_blue(answer.message.content) else "not red before blue")
    return _check("vision", answer, problem, f"{HALVES} (red, blue)", "red before blue")


def red_before_blue(text: str) -> bool:
    """Both colours are named, the left one first."""
    red, blue = (re.search(rf"\b{colour}\b", text, re.IGNORECASE) for colour in ("red", "blue"))
    return red is not None and blue is not None and red.start() < blue.start()


def _loop(api: Asks, offer: Offer, limits: Limits) -> Check:
    """As a coding agent asks: the server's own thinking and temperature, tools, no cap, two turns."""
    name = "thinking with tools"
    if not offer.tools:
        return Check(name, Verdict.NOT_OFFERED, NO_TOOLS)
    question = f"{WEATHER} Use the tool, then tell me whether I need a coat."
    first = api.ask(CHAT, {**_user(question), "tools": [TOOL], "stream": True}, limits)
    asked = f"{question} (with the tool get_weather, default settings)"
    calls = first.message.calls
    if not first.ok or not calls:
        return _check(name, first, _cause(first), asked, "no loop")
    turns = [*_user(question)["messages"], *_answered(calls)]
    second = api.ask(CHAT, {"messages": turns, "tools": [TOOL], "stream": True}, limits)
    return _check(name, second, _cause(second), f"{asked}, and the tool's result", "no loop, two turns")


def _answered(calls: dict[int, ToolCall]) -> list[dict[str, Any]]:
    """The model's own calls and the tool's results, as a client sends them back."""
    names = {index: call.identity or f"call_{index}" for index, call in calls.items()}
    own = [
        {
            "id": names[index],
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments or "{}"},
        }
        for index, call in calls.items()
    ]
    results = [{"role": "tool", "tool_call_id": names[index], "content": REPORT} for index in calls]
    return [{"role": "assistant", "content": None, "tool_calls": own}, *results]


def _cause(answer: Answer) -> str:
    if answer.loop is not None:
        return (
            f"only {answer.loop!r} comes: with tools send chat_template_kwargs {{enable_thinking: false}} or "
            "a temperature of 0.7 or lower; a poisoned prefix cache needs all ranks started again"
        )
    empty = not answer.message.content.strip() and not answer.message.calls
    return answer.error or ("an empty answer" if empty else "")


def _check(name: str, answer: Answer, problem: str, asked: str, good: str) -> Check:
    if problem:
        return Check(
            name,
            Verdict.FAIL,
            problem,
            round(answer.seconds, 3),
            asked,
            answer.told,
            loop=answer.loop or "",
            hang=answer.hang,
        )
    return Check(name, Verdict.PASS, good, round(answer.seconds, 3))
