"""Asking the served API, with the times at which the answer's parts came."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import field
from typing import Any

from sparkop.hosts.base import LOOPBACK, HttpResponse, ReadableHost
from sparkop.records import dataclass
from sparkop.serving.loop import LoopWatch, cycle
from sparkop.serving.stream import (
    Message,
    StreamError,
    error_of,
    events,
    finish_of,
    has_text,
    in_one_line,
    parse,
    pieces,
    usage_of,
)

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MOST_CHARACTERS = 4_000_000
"""Nothing is asked to be short, but reading ends here: about a million tokens."""
SHOWN = 240
"""Characters of an answer that a report shows."""


@dataclass(frozen=True)
class Limits:
    """When reading ends, as requests have no output cap. ``seconds`` for the whole answer."""

    seconds: float
    first_token: bool = False
    """Close after the first token."""


@dataclass(frozen=True)
class Hang:
    """Why no answer can come, and what to do about it."""

    cause: str
    remedy: str


@dataclass
class Answer:
    """What came. Times in seconds on one monotonic clock."""

    began: float
    status: int = 0
    """0: no HTTP answer."""
    error: str = ""
    """Why there is no whole answer, in the engine's or our words; empty when it came whole."""
    message: Message = field(default_factory=Message)
    arrivals: list[float] = field(default_factory=list)
    """When each chunk with a text came."""
    usage: dict[str, int] = field(default_factory=dict)
    finish: str | None = None
    done: bool = False
    """The stream said [DONE], or the answer came whole."""
    loop: str | None = None
    """What was repeated, when the answer went round in circles."""
    ended: float = 0.0
    hang: Hang | None = None
    """Why no token came, where that was found out."""

    @property
    def heard(self) -> float:
        """When the last token came; before the first, when it was asked."""
        return self.arrivals[-1] if self.arrivals else self.began

    @property
    def ok(self) -> bool:
        """A whole answer, that is no loop."""
        return self.status == 200 and not self.error and self.loop is None

    @property
    def first(self) -> float | None:
        """Seconds to the first token."""
        return self.arrivals[0] - self.began if self.arrivals else None

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    @property
    def told(self) -> str:
        """What was answered, for a human."""
        if self.status not in (0, 200):
            return self.error
        parts = [f"({self.message.reasoning.strip()})"] if self.message.reasoning.strip() else []
        parts += [self.message.content.strip()] if self.message.content.strip() else []
        parts += [f"{call.name}({call.arguments})" for call in self.message.calls.values()]
        text = " ".join(" ".join(parts).split())
        shown = text if len(text) <= SHOWN else f"{text[: SHOWN // 2]} ... {text[-SHOWN // 2 :]}"
        return (shown or "nothing") + (f" [{self.error}]" if self.error else "")


@dataclass(frozen=True)
class Api:
    """The API of a cluster, reached through its head's connection. ``key`` is never shown."""

    host: ReadableHost
    port: int
    model: str
    key: str | None = None
    address: str = LOOPBACK
    """The head's own address that the API listens on."""
    monotonic: Callable[[], float] = time.monotonic

    def __repr__(self) -> str:
        return f"Api(port={self.port}, model={self.model!r})"

    def get(self, path: str, timeout: float = 10.0) -> tuple[int, bytes]:
        """Status and body. Raises OSError, UnreachableError."""
        response = self.host.http(
            "GET", self.port, path, headers=self._headers, timeout=timeout, address=self.address
        )
        with closing(response):
            return response.status, response.read()

    def ask(self, path: str, body: Mapping[str, Any], limits: Limits, answer: Answer | None = None) -> Answer:
        """Send a request and read its answer. Raises UnreachableError when the node itself is away.

        Every other failure is in the answer's ``status`` and ``error``. ``answer``: filled as it comes, for
        who looks at it meanwhile.
        """
        answer = answer or Answer(began=self.monotonic())
        document = json.dumps({"model": self.model, **body}).encode()
        headers = {**self._headers, "Content-Type": "application/json"}
        try:
            response = self.host.http(
                "POST",
                self.port,
                path,
                headers=headers,
                body=document,
                timeout=limits.seconds,
                address=self.address,
            )
            with closing(response):
                answer.status = response.status
                if response.status != 200:
                    answer.error = f"HTTP {response.status}{_refusal(response)}"
                elif body.get("stream"):
                    self._read_stream(response, answer, limits)
                else:
                    self._read_whole(response, answer)
        except TimeoutError:
            answer.error = f"no whole answer within {limits.seconds:g} s"
        except StreamError as error:
            answer.error = f"an error inside the stream: {error}"
        except OSError as error:
            if answer.status:
                answer.error = f"the answer broke off: {error}"
            else:
                answer.error = f"nothing answers on port {self.port}: {error}"
        answer.ended = self.monotonic()
        return answer

    def _read_stream(self, response: HttpResponse, answer: Answer, limits: Limits) -> None:
        watches: dict[str, LoopWatch] = {}
        characters = 0
        for event in events(self._in_time(response.lines(), answer.began + limits.seconds)):
            if event is None:
                answer.done = True
                return
            now = self.monotonic()
            found = pieces(event)
            answer.message.add_event(event)
            answer.usage.update(usage_of(event))
            answer.finish = finish_of(event) or answer.finish
            # A first token may have no text of its own (half a character, a control token).
            if found or (limits.first_token and has_text(event)):
                answer.arrivals.append(now)
                if limits.first_token:
                    return
            for piece in found:
                characters += len(piece.text)
                answer.loop = watches.setdefault(piece.kind, LoopWatch()).add(piece.text)
                if answer.loop is not None:
                    answer.error = f"{answer.loop!r} again and again"
                    return
            if characters > MOST_CHARACTERS:
                answer.error = f"it did not end within {characters} characters"
                return
        if answer.finish is None:
            answer.error = "the stream ended without a reason"

    def _in_time(self, lines: Iterator[bytes], until: float) -> Iterator[bytes]:
        """Lines; raises TimeoutError after ``until``, whether they say something or only keep alive."""
        for line in lines:
            yield line
            if self.monotonic() > until:
                raise TimeoutError

    def _read_whole(self, response: HttpResponse, answer: Answer) -> None:
        document = parse(response.read())
        if not isinstance(document, dict):
            answer.error = "the answer is no JSON object"
            return
        answer.error = error_of(document) or ""
        answer.message.add_event(document)
        answer.loop = cycle(answer.message.content) or cycle(answer.message.reasoning)
        if answer.loop is not None:
            answer.error = f"{answer.loop!r} again and again"
        answer.usage = usage_of(document)
        answer.finish = finish_of(document)
        answer.done = True
        answer.arrivals.append(self.monotonic())

    @property
    def _headers(self) -> dict[str, str]:
        return {} if self.key is None else {"Authorization": f"Bearer {self.key}"}


def _refusal(response: HttpResponse) -> str:
    """The words of an answer that is no success, in one line, after a colon; empty when it has none."""
    try:
        content = response.read().decode("utf-8", "replace")
    except OSError as error:
        return f": its body broke off: {error}"
    text = error_of(parse(content)) or content
    words = in_one_line(text, SHOWN)
    return f": {words}" if words else ""
