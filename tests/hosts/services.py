"""A small HTTP service on the loopback interface, as an engine's API would answer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Api(BaseHTTPRequestHandler):
    """GET answers who asked; POST streams three lines, the last one held back until `released` is set."""

    protocol_version = "HTTP/1.1"
    released = threading.Event()

    def do_GET(self) -> None:
        body = f"{self.path} {self.headers.get('Authorization')}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._chunk(b"first " + asked + b"\nsec")
        self._chunk(b"ond\r\n")
        self.released.wait(20)
        self._chunk(b"last\n")
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
        """Say nothing."""


@contextlib.contextmanager
def running_api(address: str = "127.0.0.1") -> Iterator[int]:
    """Its port."""
    Api.released.clear()
    with ThreadingHTTPServer((address, 0), Api) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            Api.released.set()
            server.shutdown()
            thread.join()
