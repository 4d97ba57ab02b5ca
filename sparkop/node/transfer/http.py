"""HTTP/1.1 for reading byte ranges: redirects, expiring addresses, servers that ignore Range, stalls."""

from __future__ import annotations

import http.client
import io
import re
import socket
import ssl
import struct
import subprocess
import time
import urllib.parse
import urllib.request
from email.utils import parsedate_to_datetime
from typing import Dict, List, Mapping, Optional, Tuple

from .files import TransferError

TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as stalled."""
GLANCE = 1.0
"""Seconds for which one read waits at most: who is told to stop need not wait for a source that stalls."""
REDIRECTS = 5

_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
Origin = Tuple[str, str, int]


STATE, WHY_KIND, WHY = "X-Sparkop-Source", "X-Sparkop-Why-Kind", "X-Sparkop-Why"
"""Headers of a refusal: the state of the node's own transfer, and the error with which that failed."""
VANISHED = "vanished"
_ENDS = {
    "failed": "gave up: its own transfer has failed",
    "cancelled": "gave up: its own transfer has been cancelled",
    VANISHED: "gave up: its own transfer has vanished",
    "done": "has lost what its own transfer fetched",
    "none": "does not fetch it either",
}


def in_words(error: Exception) -> str:
    """Why a connection failed. Python's error has often no words for it but its own name."""
    if isinstance(error, http.client.IncompleteRead):
        return "it ended early"
    return (isinstance(error, OSError) and error.strerror) or str(error) or "it was closed"


class RetryError(Exception):
    """It may work later: ``after`` is the server's own Retry-After in seconds, or None.

    ``alive``: the other side works on it, so that waiting is no sign of a fault.
    """

    def __init__(self, reason: str, after: Optional[float] = None, *, alive: bool = False) -> None:
        super().__init__(reason)
        self.after = after
        self.alive = alive


class ExpiredError(RetryError):
    """The address that a redirect gave no longer holds; ask again where it came from."""


class WrongSizeError(RetryError):
    """The file has another size than was listed: a proxy's page that passes, or a wrong list that stays."""


class SourceEndedError(RetryError):
    """The node that we copy from works on no transfer, and what we ask for is not there.

    ``pending``: who follows it may be about to start it.
    """

    def __init__(self, told: str, *, pending: bool) -> None:
        super().__init__(told, 1.0)
        self.pending = pending


def origin_of(url: str) -> Origin:
    """Scheme, host and port."""
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def place_of(url: str) -> str:
    """The address without its query, which may hold a signature: for messages."""
    parts = urllib.parse.urlsplit(url)
    return "%s://%s%s" % (parts.scheme, parts.netloc.rpartition("@")[2], parts.path)


def server_of(url: str) -> str:
    """Scheme and host: who says nothing says nothing of any file, and is told of once."""
    parts = urllib.parse.urlsplit(url)
    return "%s://%s" % (parts.scheme, parts.netloc.rpartition("@")[2])


class _PipeConnection(http.client.HTTPConnection):
    """HTTP over the standard input and output of a command (ssh)."""

    def __init__(self, command: List[str]) -> None:
        super().__init__("peer", timeout=TIMEOUT)
        self._command = command
        self._process: "Optional[subprocess.Popen[bytes]]" = None

    def connect(self) -> None:
        ours, theirs = socket.socketpair()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)  # fewer turns between ssh and us
        with theirs:
            handle = theirs.fileno()
            self._process = subprocess.Popen(
                self._command, stdin=handle, stdout=handle, stderr=subprocess.DEVNULL
            )
        ours.settimeout(self.timeout)
        self.sock = ours

    def close(self) -> None:
        super().close()
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait()


class Body:
    """The bytes of an answer: ``start`` is their offset in the file, ``length`` their number, if known."""

    def __init__(
        self,
        response: http.client.HTTPResponse,
        start: int,
        length: Optional[int],
        whose: str,
        connection: Optional[socket.socket],
    ) -> None:
        """``whose``: what the source is called. ``connection``: where the bytes come from, if it is known."""
        self._response = response
        self._left = length
        self.whose = whose
        self._socket = connection if length is not None else None
        self._drained = False
        self._heard_at = time.monotonic()
        self.start = start

    def read_into(self, buffer: memoryview) -> Optional[int]:
        """Some bytes, at least one; 0 at the end; None: none have come yet, ask again.

        Raises RetryError for a body that ends early, for a connection that fails or stalls.
        """
        if self._left == 0:
            return 0
        try:
            count = self._receive(buffer if self._left is None else buffer[: self._left])
        except socket.timeout:
            count = None
        except (OSError, http.client.HTTPException) as error:
            raise RetryError("the connection to %s failed: %s" % (self.whose, in_words(error))) from None
        if count is None:
            if self._socket is None or time.monotonic() - self._heard_at >= TIMEOUT:
                raise RetryError("%s has sent nothing for %d s" % (self.whose, TIMEOUT))
            return None
        self._heard_at = time.monotonic()
        if self._left is not None:
            if not count:
                raise RetryError("the answer of %s ended early" % self.whose)
            self._left -= count
        return count

    def _receive(self, buffer: memoryview) -> Optional[int]:
        """Straight from the socket, once what came with the headers is read: whole buffers in one call, for
        each of which threads take turns. None when nothing came for a while."""
        if self._socket is None:
            return self._response.readinto(buffer)
        if not self._drained:
            count = self._came_with_headers(buffer)
            if count is not None:
                return count
        if type(self._socket) is not socket.socket:  # TLS
            return self._socket.recv_into(buffer)
        try:
            return self._socket.recv_into(buffer, len(buffer), socket.MSG_WAITALL)
        except BlockingIOError:  # the kernel's own timeout
            return None

    def _came_with_headers(self, buffer: memoryview) -> Optional[int]:
        """Without waiting for more; None when there is nothing (any more)."""
        source, connection = self._response.fp, self._socket
        if source is None or connection is None:
            return 0
        connection.setblocking(False)
        try:
            count: Optional[int] = source.readinto1(buffer)
        except ssl.SSLWantReadError:
            count = None
        self._drained = count is None or len(buffer) >= io.DEFAULT_BUFFER_SIZE
        if type(connection) is socket.socket:
            connection.setblocking(True)
            patience = struct.pack("@ll", int(GLANCE), int(GLANCE % 1 * 1e6))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
        else:
            connection.settimeout(GLANCE)
        return count

    @property
    def whole(self) -> bool:
        """Everything was read: the connection can be used again."""
        return self._left == 0

    def close(self) -> None:
        self._response.close()


class Client:
    """The connections of one stream, one per origin, kept open. Not for several threads."""

    def __init__(self, command: Optional[List[str]] = None, node: str = "") -> None:
        """``node``: what it is called that has the files; empty for a hub, which its addresses name."""
        self._command = command
        self._node = node
        self._open: Dict[Origin, http.client.HTTPConnection] = {}
        self._proxies = urllib.request.getproxies()

    def request(self, url: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        """One GET, no redirects followed. Raises RetryError when the connection fails."""
        origin = origin_of(url)
        fresh = origin not in self._open
        try:
            return self._send(origin, url, headers)
        except (OSError, http.client.HTTPException) as error:
            self.drop(url)
            if fresh or isinstance(error, socket.timeout):
                raise RetryError(self._failed(url, error)) from None
        try:  # a kept connection may have been closed by the server in the meantime
            return self._send(origin, url, headers)
        except (OSError, http.client.HTTPException) as error:
            self.drop(url)
            raise RetryError(self._failed(url, error)) from None

    def _send(self, origin: Origin, url: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        connection = self._open.get(origin)
        if connection is None:
            connection = self._open[origin] = self._connect(origin)
        parts = urllib.parse.urlsplit(url)
        target = (parts.path or "/") + ("?" + parts.query if parts.query else "")
        if connection.sock is not None:
            connection.sock.settimeout(TIMEOUT)  # it was shorter while a body was read
        if self._proxy(origin) and origin[0] == "http":
            target = url
        connection.request("GET", target, headers=dict(headers))
        return connection.getresponse()

    def _failed(self, url: str, error: Exception) -> str:
        whose = self._node or server_of(url)
        if isinstance(error, socket.timeout):
            return "%s does not answer: nothing came for %d s" % (whose, TIMEOUT)
        return "%s: %s" % (whose, in_words(error))

    def _proxy(self, origin: Origin) -> str:
        if self._command is not None or urllib.request.proxy_bypass(origin[1]):
            return ""
        return self._proxies.get(origin[0], "")

    def _connect(self, origin: Origin) -> http.client.HTTPConnection:
        if self._command is not None:
            return _PipeConnection(self._command)
        scheme, host, port = origin
        proxy = self._proxy(origin)
        if proxy:
            _, proxy_host, proxy_port = origin_of(proxy if "://" in proxy else "http://" + proxy)
            if scheme == "http":
                return http.client.HTTPConnection(proxy_host, proxy_port, timeout=TIMEOUT)
            tunnel = http.client.HTTPSConnection(
                proxy_host, proxy_port, timeout=TIMEOUT, context=ssl.create_default_context()
            )
            tunnel.set_tunnel(host, port)
            return tunnel
        if scheme == "https":
            return http.client.HTTPSConnection(
                host, port, timeout=TIMEOUT, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT)

    def socket(self, url: str) -> Optional[socket.socket]:
        """The connection to the origin of an address."""
        connection = self._open.get(origin_of(url))
        return connection.sock if connection is not None else None

    def drop(self, url: str) -> None:
        """Close the connection to the origin of an address."""
        connection = self._open.pop(origin_of(url), None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
        self._open.clear()


class Reader:
    """Ranges of one repository file. Remembers where the redirect led; shared by all streams of the file."""

    def __init__(
        self, url: str, name: str, size: int, hashes: Tuple[str, ...], token: str, *, peer: str
    ) -> None:
        """``peer``: what the node is called that has the file; empty when it is the hub."""
        self.url = url
        self.name = name
        self.ranges = True
        """False once the server has answered a range with the whole file."""
        self._size = size
        self._hashes = hashes
        self._token = token
        self._peer = peer
        self._direct: Optional[str] = None

    def open(self, client: Client, start: int, length: int) -> Tuple[str, Body]:
        """Bytes ``start`` to ``start + length``, or a part of them that begins there, or the whole file.

        Returns the address that answered and the body. Raises RetryError, TransferError.
        """
        remembered = self._direct
        url = remembered or self.url
        for _ in range(REDIRECTS):
            response = client.request(url, self._headers(url, start, length))
            status = response.status
            if status in (301, 302, 303, 307, 308):
                self._check_identity(response)
                location = urllib.parse.urljoin(url, response.headers.get("Location", ""))
                response.read()
                if urllib.parse.urlsplit(location).scheme not in ("http", "https"):
                    raise TransferError("network", "%s redirects to %s" % (place_of(url), place_of(location)))
                url = self._direct = location
                continue
            if status in (200, 206):
                return url, self._body(client, url, response, start, length)
            self._refused(client, url, response)
        raise TransferError("network", "%s redirects in a circle" % place_of(self.url))

    def _headers(self, url: str, start: int, length: int) -> Dict[str, str]:
        headers = {"Accept-Encoding": "identity", "User-Agent": "sparkop"}
        if self._size:
            headers["Range"] = "bytes=%d-%d" % (start, start + length - 1)
        if self._token and origin_of(url) == origin_of(self.url):
            headers["Authorization"] = "Bearer " + self._token
        return headers

    def _check_identity(self, response: http.client.HTTPResponse) -> None:
        """The hub names the file's hash and size beside its redirect: another one is another file."""
        tag = (response.headers.get("X-Linked-Etag") or "").strip('W/"')
        if re.fullmatch(r"[0-9a-f]{64}", tag) and self._hashes and tag not in self._hashes:
            raise TransferError("content", "the hub now has another %s (%s...)" % (self.name, tag[:12]))
        size = response.headers.get("X-Linked-Size") or ""
        if size.isdigit() and int(size) != self._size:
            raise TransferError(
                "content", "the hub now has %s with %s bytes, not %d" % (self.name, size, self._size)
            )

    def _body(
        self, client: Client, url: str, response: http.client.HTTPResponse, start: int, asked: int
    ) -> Body:
        self._check_identity(response)
        text = response.headers.get("Content-Length") or ""
        length = int(text) if text.isdigit() and not response.chunked else None
        total, first = length, 0
        if response.status == 206:
            match = _RANGE.fullmatch(response.headers.get("Content-Range") or "")
            if not match or int(match.group(1)) != start:
                client.drop(url)
                raise RetryError("%s answered with another range" % place_of(url))
            first = start
            total = int(match.group(3)) if match.group(3) != "*" else None
        elif start or (asked < self._size):
            self.ranges = False
        if total is not None and total != self._size:
            client.drop(url)
            self._forget(url)
            raise WrongSizeError("%s has %d bytes, not %d" % (place_of(url), total, self._size))
        return Body(response, first, length, self._peer or server_of(url), client.socket(url))

    def _forget(self, url: str) -> None:
        if url == self._direct:
            self._direct = None

    def _refused(self, client: Client, url: str, response: http.client.HTTPResponse) -> None:
        """Raise what this status means."""
        status = response.status
        state = response.headers.get(STATE, "")
        after = _retry_after(response)
        code = response.headers.get("X-Error-Code", "")
        client.drop(url)
        if self._peer and state in _ENDS:
            told = _told_end(self._peer, state, response.headers)
            raise SourceEndedError(told, pending=state not in ("failed", "cancelled"))
        if url != self.url and status in (400, 401, 403, 404, 410):
            self._forget(url)
            raise ExpiredError("%s answered %d" % (place_of(url), status))
        if status in (401, 403):
            raise _no_access(self.name, url, status, code, bool(self._token))
        if status in (404, 410):
            raise TransferError("missing", "%s answered %d for %s" % (place_of(url), status, self.name))
        if status in (408, 416, 425, 429) or status >= 500:
            raise RetryError("%s answered %d" % (place_of(url), status), after, alive=state == "running")
        raise TransferError("network", "%s answered %d" % (place_of(url), status))


def _told_end(node: str, state: str, headers: http.client.HTTPMessage) -> str:
    """How the transfer of the node that we copy from ended; of one that gave up for the node behind it, how
    that one's did: the first of a chain is the one to see to."""
    why = urllib.parse.unquote(headers.get(WHY, ""))
    if why and headers.get(WHY_KIND) == "source":
        return why
    return "%s %s%s" % (node, _ENDS[state], " (%s)" % why if why else "")


def _no_access(name: str, url: str, status: int, code: str, with_token: bool) -> TransferError:
    what = "%s: access refused by %s (%d%s)" % (name, origin_of(url)[1], status, " " + code if code else "")
    if code == "GatedRepo":
        return TransferError(
            "refused",
            what,
            "accept the model's terms on its page, with the account of HF_TOKEN or `hf auth login`",
        )
    if with_token:
        return TransferError(
            "refused", what, "use a token that may read this repository (HF_TOKEN or `hf auth login`)"
        )
    return TransferError("refused", what, "set HF_TOKEN or run `hf auth login`: the repository needs a token")


def _retry_after(response: http.client.HTTPResponse) -> Optional[float]:
    text = (response.headers.get("Retry-After") or "").strip()
    if text.isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError, IndexError):
        return None
