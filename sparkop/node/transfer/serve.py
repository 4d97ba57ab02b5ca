"""Hands files to other nodes: what is verified, and the durable blocks of what still arrives.

The same requests are answered on a TCP port (for a fabric that the spec calls trusted; a bearer token is
asked for) and on standard input and output, as the forced command of an ssh key (see ``peering.py``).
"""

from __future__ import annotations

import errno
import fcntl
import hmac
import json
import os
import re
import select
import socket
import termios
import threading
import time
import urllib.parse
from array import array
from contextlib import suppress
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from . import link
from .files import Block, File, TransferError, parse_file
from .http import STATE, WHY, WHY_KIND
from .ledger import agrees, read_json
from .place import Place
from .sent import WINDOW, Sent
from .status import is_alive

WAIT = 5.0
"""Seconds that a request waits for a block that is not here yet, before it is told to come again."""
POLL = 0.05
IDLE = 900.0
"""Seconds without a request after which the server ends."""
QUIET = 10.0
"""Seconds without a request after which the page cache of what was sent is let go."""
PIPES = 8
"""Processes that share the window behind what is sent: as many as a peer has streams over ssh (peers.py)."""
SEND = 4 << 20
IMAGE = "image/"
"""Of the path under which images are served, by their id."""

_SET_PIPE_SIZE = 1031
"""F_SETPIPE_SZ, which the fcntl module names only since Python 3.10."""
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


class Shelf:
    """The files on offer and what of them is here. Reads only."""

    def __init__(self, state: str) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._read: Tuple[int, int] = (0, 0)
        self._place = Place("/", None)
        self._files: Dict[str, File] = {}
        self._images: Set[str] = set()
        self.address = ""
        """This node's own on the fabric."""
        self._ledger: Tuple[int, Dict[str, Any]] = (0, {})
        self.look()

    def look(self) -> None:
        """Read the offer again when it was replaced. Raises TransferError when there is none."""
        path = os.path.join(self._state, "transfer", "share.json")
        try:
            status = os.stat(path)
        except FileNotFoundError:
            raise TransferError("place", "nothing is offered from here") from None
        stamp = (status.st_ino, status.st_mtime_ns)
        with self._lock:
            if stamp == self._read:
                return
            document = read_json(path)
            self._place = Place(document.get("directory") or "/", document.get("hub"))
            self._files = {item["path"]: parse_file(item) for item in document.get("files") or ()}
            self._images = set(document.get("images") or ())
            self.address = str(document.get("fabric") or "")
            self._read = stamp

    def file(self, path: str) -> Optional[File]:
        return self._files.get(path)

    def offers_image(self, identity: str) -> bool:
        return identity in self._images

    def source(self) -> Tuple[str, Dict[str, str]]:
        """This node's own transfer: ``running``, ``done``, ``failed``, ``cancelled``, ``none``, ``vanished``;
        with ``kind`` and ``message`` of the error with which it failed, else empty.

        ``vanished``: killed, or the node was without power, so that it could say nothing.
        """
        status = read_json(os.path.join(self._state, "transfer.json"))
        phase = str(status.get("phase", "none"))
        if phase not in ("done", "failed", "cancelled", "none"):
            phase = "running" if is_alive(status) else "vanished"
        return phase, status.get("error") or {}

    def path(self, file: File) -> str:
        """Where its bytes are, or will be."""
        return self._place.find(file)

    def open(self, file: File, start: int, end: int) -> Tuple[Optional[int], int]:
        """A handle on the bytes from ``start`` on, and how far they go (to ``end``); None: not here yet."""
        path = self._place.find(file)
        if agrees(path, self._entries().get(os.path.realpath(path)), file):
            return os.open(path, os.O_RDONLY), end
        staging = self._place.staging(file)
        try:
            handle = os.open(staging.partial, os.O_RDONLY)
        except OSError:  # not there, or a file where its folder belongs: how its transfer ends will tell
            return None, start
        durable = staging.durable(os.fstat(handle).st_ino)
        reached = _reach(staging.blocks, durable, start, end)
        if reached == start:
            os.close(handle)
            return None, start
        return handle, reached

    def _entries(self) -> Dict[str, Any]:
        """The ledger's files, read again when the ledger was replaced."""
        path = os.path.join(self._state, "ledger", "weights.json")
        try:
            stamp = os.stat(path).st_mtime_ns
        except FileNotFoundError:
            return {}
        if stamp != self._ledger[0]:
            self._ledger = (stamp, read_json(path).get("files", {}))
        return self._ledger[1]


def _reach(blocks: List[Block], durable: Set[int], start: int, end: int) -> int:
    """The end of the unbroken run of durable blocks that holds ``start``."""
    reached = start
    for block in blocks:
        if block.offset + block.length <= start:
            continue
        if block.index not in durable or block.offset > reached:
            break
        reached = block.offset + block.length
        if reached >= end:
            return end
    return reached


class Handler(BaseHTTPRequestHandler):
    """GET of a file with a Range."""

    protocol_version = "HTTP/1.1"
    shelf: Shelf
    token: Optional[str] = None
    timeout = 120
    used_at = time.monotonic()
    sent: Sent

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass

    def do_GET(self) -> None:
        Handler.used_at = time.monotonic()
        if self.token is not None:
            shown = self.headers.get("Authorization") or ""
            if not hmac.compare_digest(shown.encode(), ("Bearer " + self.token).encode()):
                return self._refuse(401)
        try:
            self.shelf.look()
        except TransferError:
            return self._refuse(404)
        path = urllib.parse.unquote(self.path.lstrip("/"))
        if path == link.PATH:
            return self._measure()
        if path.startswith(IMAGE):
            return self._send_image(path[len(IMAGE) :])
        file = self.shelf.file(path)
        match = _RANGE.fullmatch(self.headers.get("Range") or "")
        if file is None:
            return self._refuse(404)
        if not match or not int(match.group(1)) <= int(match.group(2)) < file.size:
            return self._refuse(416)
        start, end = int(match.group(1)), int(match.group(2)) + 1
        handle, reached = self._wait(file, start, end)
        if handle is None:
            return self._refuse(503, self.shelf.source())
        try:
            self._send(file, handle, start, reached)
        finally:
            os.close(handle)
            self.sent.add(self.shelf.path(file), start, reached)

    def _wait(self, file: File, start: int, end: int) -> Tuple[Optional[int], int]:
        deadline = time.monotonic() + WAIT
        while True:
            handle, reached = self.shelf.open(file, start, end)
            if handle is not None or time.monotonic() > deadline or self.shelf.source()[0] != "running":
                return handle, reached
            time.sleep(POLL)

    def _measure(self) -> None:
        """Open a port for one measurement of the link: two lines, where it is and how it went for us."""
        address = self.shelf.address
        self.close_connection = True
        try:
            offered, serve = link.offer(address)
        except OSError:
            return self._refuse(503)
        self._begin_chunks()
        write_chunk(self._write, memoryview(json.dumps(offered).encode() + b"\n"))
        with suppress(OSError):
            write_chunk(self._write, memoryview(json.dumps(serve()).encode() + b"\n"))
            write_chunk(self._write, memoryview(b""))

    def _begin_chunks(self) -> None:
        """An answer of unknown length; without a word of closing, at which a client would end its ssh."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def _send_image(self, identity: str) -> None:
        """An image on offer, in chunks; an engine that fails in the middle breaks it off."""
        from . import images

        self.close_connection = True
        try:
            if not self.shelf.offers_image(identity) or images.find(identity) is None:
                return self._refuse(404)
        except (OSError, images.RefusalError):
            return self._refuse(503)
        self._begin_chunks()  # at once: an engine takes its time before the first byte
        with suppress(OSError, HTTPException, images.RefusalError):
            images.export(identity, self._write)

    def _write(self, data: memoryview) -> None:
        Handler.used_at = time.monotonic()
        while len(data):
            data = data[self.wfile.write(data) or len(data) :]

    def _refuse(self, code: int, source: Optional[Tuple[str, Dict[str, str]]] = None) -> None:
        self.send_response(code)
        if source is not None:
            state, error = source
            self.send_header(STATE, state)
            self.send_header(WHY_KIND, str(error.get("kind", "")))
            self.send_header(WHY, urllib.parse.quote(str(error.get("message", ""))))
            self.send_header("Retry-After", "1")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, file: File, handle: int, start: int, end: int) -> None:
        self.send_response(206)
        self.send_header("Content-Range", "bytes %d-%d/%d" % (start, end - 1, file.size))
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        self.wfile.flush()
        send_file(self.wfile.fileno(), handle, start, end)


def send_file(target: int, handle: int, start: int, end: int) -> None:
    """Bytes of a file to a socket or pipe, without a copy where the kernel can."""
    while start < end:
        try:
            count = os.sendfile(target, handle, start, min(SEND, end - start))
        except BlockingIOError:  # a socket with a timeout
            if not select.select([], [target], [], Handler.timeout)[1]:
                raise TimeoutError("the receiver takes nothing") from None
            continue
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS):
                raise
            count = os.write(target, os.pread(handle, min(1 << 20, end - start), start))
        if not count:
            raise ConnectionError("the file became shorter while it was sent")
        start += count


def write_chunk(write: Callable[[memoryview], object], data: memoryview) -> None:
    """A chunk of HTTP/1.1; an empty one ends the body."""
    write(memoryview(b"%x\r\n" % len(data)))
    if len(data):
        write(data)
    write(memoryview(b"\r\n"))


class _StdioHandler(Handler):
    """One connection on standard input and output."""

    def setup(self) -> None:
        self.rfile = os.fdopen(0, "rb", buffering=0)  # type: ignore[assignment]
        self.wfile = os.fdopen(1, "wb", buffering=0, closefd=False)  # type: ignore[assignment]

    def finish(self) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A receiver that went away is no fault here."""

    def server_bind(self) -> None:
        """Without the base class's look-up of a host name, which may take seconds."""
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])


def answer_on_stdio(state: str) -> None:
    """Serve one connection until it ends."""
    with suppress(OSError):  # not a pipe
        fcntl.fcntl(1, _SET_PIPE_SIZE, 1 << 20)  # fewer turns between us and sshd
    _StdioHandler.shelf = Shelf(state)
    _StdioHandler.sent = Sent(WINDOW // PIPES)
    try:
        _StdioHandler(None, ("ssh", 0), None)  # type: ignore[arg-type]
    finally:
        _wait_for_reader()
        _StdioHandler.sent.let_go()


def _wait_for_reader() -> None:
    """A pipe holds pages of the file until they are read: they can't be let go before."""
    waiting, deadline = array("i", [0]), time.monotonic() + WAIT
    with suppress(OSError):  # not a pipe
        while time.monotonic() < deadline:
            fcntl.ioctl(1, termios.FIONREAD, waiting)
            if not waiting[0]:
                return
            time.sleep(POLL)


def bind(state: str, address: str, token: str) -> ThreadingHTTPServer:
    """A server on the fabric address, at a free port. Raises OSError."""
    handler = type("Bound", (Handler,), {"shelf": Shelf(state), "sent": Sent(), "token": token})
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server_class = type("BoundServer", (_Server,), {"address_family": family})
    server: ThreadingHTTPServer = server_class((address, 0), handler)
    return server


def serve_until_idle(server: ThreadingHTTPServer, stop: threading.Event) -> None:
    """Answer until nobody has asked for a while."""
    thread = threading.Thread(target=server.serve_forever, args=(0.5,), daemon=True)
    thread.start()
    sent: Sent = server.RequestHandlerClass.sent  # type: ignore[attr-defined]
    while not stop.wait(1.0):
        quiet = time.monotonic() - Handler.used_at
        if quiet > QUIET:
            sent.let_go()
        if quiet > IDLE:
            break
    server.shutdown()
    sent.let_go()
