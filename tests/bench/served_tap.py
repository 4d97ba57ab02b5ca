"""Runs on the head, by its own Python: hands one answer of the engine to two clients at the same moment.

`python3 -c PROGRAM PORT API_PORT KEY_FILE`. The first client posts as to the engine; its request is
held until the second, which learns from `GET /held` that one is there, posts anything to `/second`. Then
the request goes to the engine, with the key of KEY_FILE, and what comes goes to both, piece by piece.
"""

from __future__ import annotations

import http.client
import os
import queue
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WAIT = 300.0


class Meeting:
    """One first client's request; the second client brings its handler and waits until all is written."""

    def __init__(self) -> None:
        self.second: queue.Queue[BaseHTTPRequestHandler] = queue.Queue()
        self.over = threading.Event()


def serve(port: int, api_port: int, key: str) -> ThreadingHTTPServer:
    """The tap's server, not yet running."""
    held: queue.Queue[Meeting] = queue.Queue()
    announced: queue.Queue[Meeting] = queue.Queue()

    class Tap(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            if self.path != "/held":
                self.plain(*self.ask("GET", None))
                return
            try:
                announced.put(held.get(timeout=WAIT))
                self.plain(200, b"one is held")
            except queue.Empty:
                self.plain(504, b"nobody came")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.close_connection = True
            if self.path == "/second":
                meeting = announced.get(timeout=WAIT)
                meeting.second.put(self)
                meeting.over.wait(WAIT)
                return
            meeting = Meeting()
            held.put(meeting)
            try:
                self.forward(body, meeting.second.get(timeout=WAIT))
            finally:
                meeting.over.set()

        def forward(self, body: bytes, second: BaseHTTPRequestHandler) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", api_port, timeout=WAIT)
            headers = {"Content-Type": "application/json", "Authorization": "Bearer " + key}
            connection.request("POST", self.path, body, headers)
            answer = connection.getresponse()
            both = (self, second)
            for client in both:
                client.send_response(answer.status)
                client.send_header("Content-Type", answer.headers.get("Content-Type", "text/plain"))
                client.send_header("Connection", "close")
                client.end_headers()
            while part := answer.read1(65536):
                for client in both:
                    client.wfile.write(part)
                    client.wfile.flush()
            connection.close()

        def ask(self, method: str, body: bytes | None) -> tuple[int, bytes]:
            connection = http.client.HTTPConnection("127.0.0.1", api_port, timeout=WAIT)
            connection.request(method, self.path, body, {"Authorization": "Bearer " + key})
            answer = connection.getresponse()
            return answer.status, answer.read()

        def plain(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    return Server(("", port), Tap)


def end_with_ssh() -> None:
    """End when the connection that started this is closed."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    server = serve(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]).expanduser().read_text().strip())
    threading.Thread(target=end_with_ssh, daemon=True).start()
    print("ready", flush=True)
    server.serve_forever()
