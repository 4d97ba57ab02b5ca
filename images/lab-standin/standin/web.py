"""The HTTP interface, in either manner."""

from __future__ import annotations

import hmac
import json
import os
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standin import requests
from standin.answers import BadRequestError
from standin.engine import Engine, EngineDeadError, sglang_metrics, vllm_metrics
from standin.requests import Job, Limits

VLLM_OPEN = ("/health", "/metrics", "/version", "/load", "/ping", "/tokenize")
SGLANG_OPEN = ("/health", "/ready", "/metrics")
VERSION = {"vllm": "0.33.0", "sglang": "0.5.23"}


class Server(ThreadingHTTPServer):
    """Serves one engine. `keys` empty: no authentication."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], engine: Engine, limits: Limits, keys: list[str], *,
        metrics: bool, details: bool, force_usage: bool,
    ) -> None:  # fmt: skip
        self.engine, self.limits, self.keys = engine, limits, keys
        self.metrics, self.details, self.force_usage = metrics, details, force_usage
        super().__init__(address, Handler)

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_name = "standin"  # BaseHTTPServer would look the address up in the DNS
        self.server_port = self.socket.getsockname()[1]


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        engine, path = self.server.engine, self.path.partition("?")[0]
        if not self._allowed(path):
            return
        if path in ("/health", "/health_generate"):
            self._health()
        elif path == "/metrics" and self.server.metrics:
            text = vllm_metrics(engine) if engine.manner.name == "vllm" else sglang_metrics(engine)
            self._send(200, text.encode(), "text/plain; version=0.0.4")
        elif path == "/v1/models":
            entry = {
                "id": engine.manner.model, "object": "model", "created": int(engine.started),
                "owned_by": engine.manner.name, "root": engine.manner.model,
                "max_model_len": engine.manner.context,
            }  # fmt: skip
            self._json(200, {"object": "list", "data": [entry]})
        elif path == "/version":
            self._json(200, {"version": VERSION[engine.manner.name]})
        elif path in ("/server_info", "/get_server_info") and engine.manner.name == "sglang":
            self._json(200, {"version": VERSION["sglang"], "context_length": engine.manner.context})
        else:
            self._json(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self._allowed(path):
            return
        if path not in ("/v1/chat/completions", "/v1/completions"):
            self._json(404, {"detail": "Not Found"})
            return
        chat = path == "/v1/chat/completions"
        engine = self.server.engine
        for word, status in (("loading", 503), ("broken", 500)):
            if engine.faults.on(word):
                self._error(status, f"told to be {word}", "ServerError")
                return
        try:
            document = json.loads(body)
            if not isinstance(document, dict):
                raise BadRequestError("the body is not a JSON object")
            name = document.setdefault("model", engine.manner.model)
            if name != engine.manner.model and engine.manner.name == "vllm":
                self._error(404, f"The model `{name}` does not exist.", "NotFoundError", "model")
                return
            job = requests.read(
                document, chat, self.server.limits,
                degenerate=engine.faults.on("degenerate"), force_usage=self.server.force_usage,
            )  # fmt: skip
        except (ValueError, BadRequestError) as error:
            self._error(400, str(error), "BadRequestError")
            return
        tokens = engine.generate(job.prompt, job.all_pieces, job.reason)
        try:
            if job.stream:
                self._stream(job, tokens)
            else:
                answer = requests.whole(job, tokens, self.server.limits, details=self.server.details)
                self._json(200, answer)
        except EngineDeadError:
            text = "EngineCore encountered an issue. See stack trace (above) for the root cause."
            self._error(500, text, "InternalServerError")
        except OSError:
            self.close_connection = True  # the client has gone
        finally:
            tokens.close()  # type: ignore[attr-defined]

    def _stream(self, job: Job, tokens: Iterator[str]) -> None:
        chunks = requests.chunks(job, tokens, self.server.limits, details=self.server.details)
        first = next(chunks)  # an engine that is dead already answers with a status
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._event(json.dumps(first))
        try:
            for chunk in chunks:
                self._event(json.dumps(chunk))
        except EngineDeadError:
            self._event(json.dumps({"error": {"message": "EngineCore encountered an issue.", "code": 500}}))
        self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, text: str) -> None:
        data = f"data: {text}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _health(self) -> None:
        engine = self.server.engine
        if engine.manner.name == "vllm":
            self._send(503 if engine.dead else 200, b"")
            return
        deep = os.environ.get("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "1") != "0"
        seconds = float(os.environ.get("SGLANG_HEALTH_CHECK_TIMEOUT", "20"))
        healthy = not engine.dead and (not deep or engine.healthy(seconds))
        self._send(200 if healthy else 503, b"")

    def _allowed(self, path: str) -> bool:
        """Whether the request carries a key, or needs none; else it is answered with 401."""
        if not self.server.keys:
            return True
        if self.server.engine.manner.name == "vllm":
            open_path = path.startswith(VLLM_OPEN)
        else:
            open_path = path.startswith(SGLANG_OPEN)
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        right = any(hmac.compare_digest(given.encode(), key.encode()) for key in self.server.keys)
        if open_path or (scheme == "Bearer" and right):
            return True
        self._json(401, {"error": "Unauthorized"})
        return False

    def _error(self, status: int, message: str, kind: str, parameter: str | None = None) -> None:
        if self.server.engine.manner.name == "vllm":
            self._json(
                status, {"error": {"message": message, "type": kind, "param": parameter, "code": status}}
            )
        else:
            document = {
                "object": "error",
                "message": message,
                "type": kind,
                "param": parameter,
                "code": status,
            }
            self._json(status, document)

    def _json(self, status: int, document: dict[str, Any]) -> None:
        self._send(status, json.dumps(document).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002, ARG002
        if "/health" not in self.path and "/metrics" not in self.path:
            print(
                f'INFO:     {self.address_string()} - "{self.requestline}" {args[1] if len(args) > 1 else ""}'
            )


class DummyHealth(BaseHTTPRequestHandler):
    """What a follower of SGLang serves: always green, whatever happens."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        healthy = self.path.startswith(("/health", "/ping"))
        self.send_response(200 if healthy else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass
