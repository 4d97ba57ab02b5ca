"""A small hub for tests of the transfer, with the faults that a real one shows.

Two origins: the hub redirects large files to its store by signed addresses, as the public one does."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.node import xet_standin

LARGE = 1 << 20


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class Faults:
    """What goes wrong. Counters count down; 0 or None is no fault."""

    statuses: list[tuple[int, str | None]] = field(default_factory=list)
    """Next answers of the hub itself: status and Retry-After."""
    store_statuses: list[tuple[int, str | None]] = field(default_factory=list)
    ignore_range: bool = False
    cut: int = 0
    """So many answers end after half of their bytes."""
    stall: int = 0
    """So many answers stop after half of their bytes and say nothing more."""
    mute: bool = False
    """Answers stop after their headers and say nothing more."""
    flip: int = 0
    """So many answers have one byte changed."""
    flip_always: bool = False
    other_range: bool = False
    """Answers name a range that was not asked for."""
    linked_etag: str | None = None
    expire_after: int | None = None
    """A signed address holds for so many requests."""
    rate: int = 0
    """Bytes a second a connection."""
    gate: threading.Event | None = None
    """Answers of the store wait for it."""


@dataclass
class Hub:
    """A repository and the log of what was asked."""

    repository: str
    commit: str
    files: dict[str, bytes]
    token: str | None = None
    xet: bool = False
    """Large files are said to lie in the chunk store, as all do on the public hub; plain HTTP works too."""
    faults: Faults = field(default_factory=Faults)
    log: list[dict[str, Any]] = field(default_factory=list)
    base: str = ""
    store: str = ""
    sent: int = 0
    uses: dict[str, int] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        """Prefix of every file."""
        return f"{self.base}/{self.repository}/resolve/{self.commit}/"

    def job_files(self, *names: str) -> list[dict[str, Any]]:
        """As a job lists them."""
        return [self.entry(name) for name in names or sorted(self.files)]

    def entry(self, name: str) -> dict[str, Any]:
        data = self.files[name]
        known = {"sha256": self.digest(name)} if len(data) >= LARGE else {"git": git_sha1(data)}
        return {"path": name, "size": len(data), **known}

    def tree(self) -> list[dict[str, Any]]:
        """As the hub's API lists them."""
        entries = []
        for name, data in sorted(self.files.items()):
            entry: dict[str, Any] = {"type": "file", "path": name, "size": len(data), "oid": git_sha1(data)}
            if len(data) >= LARGE:
                entry["lfs"] = {"oid": self.digest(name), "size": len(data), "pointerSize": 135}
                if self.xet:
                    entry["xetHash"] = xet_standin.file_hash(name)
            entries.append(entry)
        return entries

    def digest(self, name: str) -> str:
        """SHA-256 of a file, made once."""
        if name not in self.digests:
            self.digests[name] = sha256(self.files[name])
        return self.digests[name]

    def named(self, xet_hash: str) -> str:
        """The file with this hash at the chunk store."""
        return next(name for name in self.files if xet_standin.file_hash(name) == xet_hash)

    def take(self, name: str) -> bool:
        """Count a fault down."""
        with self.lock:
            left = getattr(self.faults, name)
            if left:
                setattr(self.faults, name, left - 1)
            return bool(left)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub
    is_store = False

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub, faults = self.hub, self.hub.faults
        parts = urllib.parse.urlsplit(self.path)
        with hub.lock:
            hub.log.append(
                {
                    "store": self.is_store,
                    "path": urllib.parse.unquote(parts.path),
                    "range": self.headers.get("Range"),
                    "authorization": self.headers.get("Authorization"),
                    "at": time.monotonic(),
                }
            )
            queue = faults.store_statuses if self.is_store else faults.statuses
            fault = queue.pop(0) if queue else None
        if fault is not None:
            return self.plain(fault[0], **({"Retry-After": fault[1]} if fault[1] else {}))
        if self.is_store:
            return self.from_store(parts)
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            code = 403 if self.headers.get("Authorization") else 401
            return self.plain(code, **{"X-Error-Code": "GatedRepo"})
        return self.from_hub(urllib.parse.unquote(parts.path))

    def from_hub(self, path: str) -> None:
        hub = self.hub
        if match := re.fullmatch(rf"/api/models/{hub.repository}(?:/revision/([^/]+))?", path):
            if match[1] not in (None, "main", hub.commit):
                return self.plain(404, **{"X-Error-Code": "RevisionNotFound"})
            return self.json({"id": hub.repository, "sha": hub.commit, "siblings": []})
        if path == f"/api/models/{hub.repository}/tree/{hub.commit}":
            return self.json(hub.tree())
        if path == f"/api/models/{hub.repository}/xet-read-token/{hub.commit}" and hub.xet:
            return self.plain(200, **xet_standin.token_headers(hub.store))
        prefix = f"/{hub.repository}/resolve/{hub.commit}/"
        if not path.startswith(f"/{hub.repository}/") and not path.startswith(
            f"/api/models/{hub.repository}"
        ):
            return self.plain(404, **{"X-Error-Code": "RepoNotFound"})
        name = path.removeprefix(prefix)
        if name not in hub.files:
            return self.plain(404, **{"X-Error-Code": "EntryNotFound"})
        data = hub.files[name]
        if len(data) < LARGE:
            return self.send(data, f'"{git_sha1(data)}"')
        with hub.lock:
            signature = str(len(hub.uses))
            hub.uses[signature] = 0
        location = f"{hub.store}/{urllib.parse.quote(name)}?signature={signature}"
        etag = hub.faults.linked_etag or hub.digest(name)
        headers = {
            "X-Linked-Etag": f'"{etag}"',
            "X-Linked-Size": str(len(data)),
            "X-Repo-Commit": hub.commit,
        }
        if hub.xet:
            way = f"{hub.base}/api/models/{hub.repository}/xet-read-token/{hub.commit}"
            headers.update({"X-Xet-Hash": xet_standin.file_hash(name), "Link": f'<{way}>; rel="xet-auth"'})
        self.plain(302, Location=location, **headers)

    def from_store(self, parts: urllib.parse.SplitResult) -> None:
        hub = self.hub
        if match := re.fullmatch(r"/v1/reconstructions/([0-9a-f]{64})", parts.path):
            name = hub.named(match[1])
            size, asked = len(hub.files[name]), self.headers.get("Range")
            answer = xet_standin.reconstruction(name, size, hub.store, asked)
            return self.json(answer) if answer else self.plain(416)
        if match := re.fullmatch(r"/xorbs/([0-9a-f]{64})/(\d+)", parts.path):
            return self.send_xorb(hub.files[hub.named(match[1])], int(match[2]))
        if parts.path.startswith(("/v1/", "/v2/")):
            return self.plain(404)
        signature = urllib.parse.parse_qs(parts.query)["signature"][0]
        with hub.lock:
            hub.uses[signature] += 1
            expired = hub.faults.expire_after is not None and hub.uses[signature] > hub.faults.expire_after
        if expired:
            return self.plain(403)
        data = hub.files[urllib.parse.unquote(parts.path.lstrip("/"))]
        if hub.faults.gate is not None:
            hub.faults.gate.wait(60)
        self.send(data, '"store-etag"')

    def plain(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def json(self, document: Any) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send(self, data: bytes, etag: str) -> None:
        hub, faults = self.hub, self.hub.faults
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        start, end = 0, len(data)
        if match and not faults.ignore_range:
            start, end = int(match[1]), min(int(match[2]) + 1, len(data))
            self.send_response(206)
            shown = start + hub.faults.other_range
            self.send_header("Content-Range", f"bytes {shown}-{end - 1}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("ETag", etag)
        if not self.is_store:
            self.send_header("X-Repo-Commit", hub.commit)
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        if self.command == "HEAD":
            return
        body = memoryview(data)[start:end]
        if faults.flip_always or hub.take("flip"):
            changed = bytearray(body)
            changed[len(changed) // 2] ^= 1
            body = memoryview(changed)
        if faults.mute or hub.take("stall"):
            self.write(body[: 0 if faults.mute else len(body) // 2])
            self.connection.settimeout(120)
            with suppress(OSError):
                self.connection.recv(1)  # until the client gives up
            self.close_connection = True
            return
        if hub.take("cut"):
            self.write(body[: len(body) // 2])
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.write(body)

    def send_xorb(self, data: bytes, number: int) -> None:
        """A range of a xorb."""
        asked = self.headers.get("Range")
        length = xet_standin.length_of(len(data), number, asked)
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"{asked.replace('=', ' ')}/*")
        self.send_header("Content-Length", str(length))
        self.end_headers()
        body = bytearray(b"".join(xet_standin.stored(data, number, asked)))
        if self.hub.take("flip"):
            body[len(body) // 2] ^= 1
        self.write(memoryview(body))

    def write(self, body: memoryview) -> None:
        if not self.hub.faults.rate and len(body) >= 4 * LARGE:
            return self.send_whole(body)
        step = 1 << 18
        for offset in range(0, len(body), step):
            piece = body[offset : offset + step]
            self.wfile.write(piece)
            with self.hub.lock:
                self.hub.sent += len(piece)
            if self.hub.faults.rate:
                time.sleep(len(piece) / self.hub.faults.rate)

    def send_whole(self, body: memoryview) -> None:
        """Without a turn for other threads in between: benchmarks measure the client."""
        self.connection.setblocking(True)
        self.connection.sendall(body)
        with self.hub.lock:
            self.hub.sent += len(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


@contextmanager
def running(hub: Hub, tls: ssl.SSLContext | None = None) -> Iterator[Hub]:
    """The hub and its store, on loopback."""
    servers = []
    for name, is_store in (("base", False), ("store", True)):
        handler = type("Handler", (_Handler,), {"hub": hub, "is_store": is_store})
        server = _Server(("127.0.0.1", 0), handler)
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        scheme = "https" if tls is not None else "http"
        setattr(hub, name, f"{scheme}://127.0.0.1:{server.server_address[1]}")
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        servers.append(server)
    try:
        yield hub
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
