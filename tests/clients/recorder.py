"""A server of the OpenAI API that keeps every request and answers from a script."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Request:
    """One request. Header names are small letters."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Recorder:
    """Answers ``hello from the recorder``; a call of ``tool`` first, when a request offers that tool."""

    url: str
    requests: list[Request] = field(default_factory=list)
    tool: tuple[str, dict[str, Any]] | None = None

    def last(self) -> Request:
        """The newest request."""
        assert self.requests, "no request has arrived"
        return self.requests[-1]

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """The whole answer as one delta."""
        offered = {each["function"]["name"] for each in body.get("tools") or ()}
        answered = any(message["role"] == "tool" for message in body["messages"])
        if self.tool is not None and self.tool[0] in offered and not answered:
            name, arguments = self.tool
            call = {"name": name, "arguments": json.dumps(arguments)}
            return {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": call}]}
        return {"content": "hello from the recorder"}


@contextmanager
def recorder() -> Iterator[Recorder]:
    """A recorder on a free port of 127.0.0.1; ``url`` is the base URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            found.requests.append(Request(self.path, headers, body))
            delta = found.answer(body)
            reason = "tool_calls" if "tool_calls" in delta else "stop"
            usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
            chunks: list[dict[str, Any]] = [
                {"choices": [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}]},
                {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
                {"choices": [], "usage": usage},
            ]
            common = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
            text = "".join(f"data: {json.dumps(common | chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
            self._send("text/event-stream", text.encode())

        def do_GET(self) -> None:
            self._send("application/json", b'{"object": "list", "data": []}')

        def _send(self, kind: str, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Recorder(f"http://127.0.0.1:{server.server_address[1]}/v1")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
