"""The stand-in engine as a process of this machine, and a head that answers what a test says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkop.serving.api import Api
from tests.images.conftest import stage as stage

KEY = "sentinel-key-0123456789"


class Body:
    """An HTTP answer; an exception among the lines is raised when it is reached."""

    def __init__(self, status: int, *lines: bytes | Exception) -> None:
        self.status = status
        self._lines = lines
        self.closed = False

    def lines(self) -> Iterator[bytes]:
        for line in self._lines:
            if isinstance(line, Exception):
                raise line
            yield line

    def read(self) -> bytes:
        return b"\n".join(self.lines())

    def close(self) -> None:
        self.closed = True


def event(document: object) -> bytes:
    return b"data: " + json.dumps(document).encode()


def delta(finish: str | None = None, **fields: Any) -> bytes:
    """A chunk of a chat."""
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]})


DONE = b"data: [DONE]"


def said(text: str) -> Body:
    """A streamed answer, a word a chunk, without usage."""
    return Body(200, delta(role="assistant", content=""), *(delta(content=w + " ") for w in text.split()),
                delta("stop"), DONE)  # fmt: skip


@dataclass
class Head:
    """A head whose API answers by ``reply``; keeps what was asked."""

    reply: Callable[[str, Any], Body]
    asked: list[tuple[str, Mapping[str, str], Any]] = field(default_factory=list)
    name: str = "spark-1"

    def http(
        self, method: str, port: int, path: str, *, headers: Mapping[str, str] | None = None,
        body: bytes | None = None, timeout: float = 30.0, address: str = "127.0.0.1",
    ) -> Body:  # fmt: skip
        document = json.loads(body) if body else None
        self.asked.append((path, headers or {}, document))
        return self.reply(path, document)


def api(reply: Callable[[str, Any], Body]) -> Api:
    return Api(Head(reply), 8000, "tiny", KEY)  # type: ignore[arg-type]
