"""Reading OpenAI's answers: server-sent events, and what a chunk or a message says.

Engines differ: reasoning is in ``reasoning`` or ``reasoning_content``, a tool call may be split over chunks,
usage may be missing, a delta may be empty, and an engine that dies says so inside a stream of status 200.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, Literal

from sparkop.records import dataclass

Kind = Literal["content", "reasoning", "tool"]


class StreamError(ConnectionError):
    """The engine said inside its stream that it can't go on."""


@dataclass(frozen=True)
class Piece:
    """Some of the text of an answer. Of a tool call: its name, or some of its arguments."""

    kind: Kind
    text: str


def events(lines: Iterable[bytes]) -> Iterator[dict[str, Any] | None]:
    """The objects of a stream as they come; None when it says that it is done.

    Lines that are no event, and events that are no JSON object, are passed over. Raises StreamError for an
    object that is an error.
    """
    for line in lines:
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            yield None
            return
        event = parse(data)
        if not isinstance(event, dict):
            continue
        problem = error_of(event)
        if problem is not None:
            raise StreamError(problem)
        yield event


def parse(text: bytes | str) -> Any:
    """The JSON value; None for what is none, or is nested without end."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def printable(text: str) -> str:
    """``text`` without halves of characters, which JSON can carry and no terminal or file can."""
    return text.encode("utf-8", "replace").decode()


def error_of(document: object) -> str | None:
    """The words of an error document, of vLLM's, SGLang's or FastAPI's form; None when it is none."""
    if not isinstance(document, Mapping):
        return None
    error = document.get("error")
    if error is None and document.get("object") == "error":
        error = document
    if error is None and "choices" not in document:
        error = document.get("detail")
    if isinstance(error, Mapping):
        error = error.get("message") or json.dumps(error)
    if not error:
        return None
    return printable(error) if isinstance(error, str) else json.dumps(error)


def in_one_line(body: str, most: int) -> str:
    """The words of a body that is no answer, shortened; a web page has none: it is another program's, or a
    proxy's."""
    words = " ".join(body.split())
    return "a web page, which no engine sends" if words.startswith("<") else words[:most]


def pieces(event: Mapping[str, Any]) -> list[Piece]:
    """What a chunk of a chat or of a completion adds, without empty texts."""
    found: list[Piece] = []
    for choice in _mappings(event.get("choices")):
        delta = choice.get("delta")
        if isinstance(delta, Mapping):
            found += _of_message(delta)
        elif isinstance(choice.get("text"), str):
            found.append(Piece("content", choice["text"]))
    return [piece for piece in found if piece.text]


def has_text(event: Mapping[str, Any]) -> bool:
    """Whether this is a chunk of a completion, which stands for tokens even where its text is empty."""
    return any(isinstance(choice.get("text"), str) for choice in _mappings(event.get("choices")))


def finish_of(event: Mapping[str, Any]) -> str | None:
    """Why the answer ended, where this chunk or answer says so."""
    for choice in _mappings(event.get("choices")):
        if choice.get("finish_reason"):
            return str(choice["finish_reason"])
    return None


def usage_of(event: Mapping[str, Any]) -> dict[str, int]:
    """``prompt_tokens`` and ``completion_tokens``, those that are told."""
    usage = event.get("usage")
    if not isinstance(usage, Mapping):
        return {}
    names = ("prompt_tokens", "completion_tokens")
    return {name: usage[name] for name in names if isinstance(usage.get(name), int)}


@dataclass
class ToolCall:
    """One call, as far as it has come. ``arguments``: JSON text."""

    name: str = ""
    arguments: str = ""
    identity: str = ""


@dataclass
class Message:
    """An answer, put together from chunks or taken from a whole one."""

    calls: dict[int, ToolCall] = field(default_factory=dict)
    """By index."""
    _content: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)

    @property
    def content(self) -> str:
        return printable("".join(self._content))

    @property
    def reasoning(self) -> str:
        return printable("".join(self._reasoning))

    def add(self, message: Mapping[str, Any]) -> None:
        """Add a delta, or a whole message."""
        content = message.get("content")
        self._content.append(content if isinstance(content, str) else "")
        self._reasoning.append(_reasoning(message))
        for place, call in enumerate(_mappings(message.get("tool_calls"))):
            index = call.get("index")
            known = self.calls.setdefault(index if isinstance(index, int) else place, ToolCall())
            name, arguments = _function(call)
            known.name = known.name or name
            known.arguments += arguments
            known.identity = known.identity or str(call.get("id") or "")

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Add a chunk of a stream, or an answer that came whole."""
        for choice in _mappings(event.get("choices")):
            if isinstance(choice.get("text"), str):
                self._content.append(choice["text"])
            for name in ("delta", "message"):
                if isinstance(choice.get(name), Mapping):
                    self.add(choice[name])


def _of_message(message: Mapping[str, Any]) -> list[Piece]:
    found = [Piece("reasoning", _reasoning(message))]
    if isinstance(message.get("content"), str):
        found.append(Piece("content", message["content"]))
    for call in _mappings(message.get("tool_calls")):
        found += [Piece("tool", text) for text in _function(call)]
    return found


def _function(call: Mapping[str, Any]) -> tuple[str, str]:
    """Name and arguments, as far as this part has them; some servers send arguments as an object."""
    function = call.get("function")
    if not isinstance(function, Mapping):
        return "", ""
    arguments = function.get("arguments")
    if isinstance(arguments, Mapping):
        arguments = json.dumps(arguments)
    return printable(str(function.get("name") or "")), printable(str(arguments or ""))


def _reasoning(message: Mapping[str, Any]) -> str:
    """Under its one name or the other; an engine that sends both sends the same text twice."""
    for name in ("reasoning", "reasoning_content"):
        if isinstance(message.get(name), str) and message[name]:
            return str(message[name])
    return ""


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
