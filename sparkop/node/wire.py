"""What the programs of a node share: the framed answer, and Docker's API over its unix socket.

Stdlib-only, Python 3.8 or newer. HTTP/1.0 over a plain socket instead of http.client, whose import alone
costs as much as the rest of a probe.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import struct
from io import BufferedReader

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing is a twelfth of what a probe takes to start
    from typing import Any, BinaryIO, Iterator

HALTED = ("T", "t")
"""States of a process that a signal or a debugger has stopped."""
DOCKER_SOCKET = "/var/run/docker.sock"


def requests(stream: BinaryIO) -> Iterator[dict[str, Any]]:
    """The requests on standard input, one JSON object a line, as they come; until its end."""
    for line in iter(stream.readline, b""):
        request = json.loads(line.decode())
        if not isinstance(request, dict):
            raise ValueError("the request is no JSON object")
        yield request


def write_answer(stream: BinaryIO, nonce: str, answer: dict[str, Any]) -> None:
    """Write the answer in a frame that can be told from whatever a shell's start-up files print.

    ``sparkop <nonce> <bytes>``, newline, JSON, newline, ``end <nonce>``, newline.
    """
    payload = json.dumps(answer, separators=(",", ":")).encode()
    head = "\nsparkop %s %d\n" % (nonce, len(payload))
    stream.write(head.encode() + payload + ("\nend %s\n" % nonce).encode())
    stream.flush()


def process_fields(pid: int) -> list[str]:
    """What the kernel says of a process, from its state on; nothing of one that is gone."""
    return (maybe("/proc/%d/stat" % pid) or "").rpartition(")")[2].split()


def in_the_way(path: str) -> str:
    """The first thing on a path, from its end, that is there: where a folder is wanted, the file instead."""
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def describe(error: BaseException) -> str:
    """An error in one line; of a rename the path that it was to have."""
    if isinstance(error, SilentEngineError):
        error = error.reason
    if isinstance(error, OSError) and error.strerror:
        path = error.filename2 or error.filename
        if isinstance(error, (NotADirectoryError, FileExistsError)) and isinstance(path, str):
            path = in_the_way(path)
        text = error.strerror + (": %s" % path if path else "")
    else:
        text = str(error)
    return "%s: %s" % (type(error).__name__, text)


def expand(path: str, state: str | None = None) -> str:
    """``~`` is the home; a relative path is below the state folder."""
    path = os.path.expanduser(path)
    if not os.path.isabs(path):
        if state is None:
            raise ValueError("a relative path without a state folder: %s" % path)
        path = os.path.join(os.path.expanduser(state), path)
    return path


def standin(reference: str) -> str | None:
    """The tag of an image that came from another node; None for a reference without a digest.

    An engine knows a repo digest only of what it pulled itself.
    """
    name, _, digest = reference.partition("@sha256:")
    head, colon, tag = name.rpartition(":")
    return "%s:sparkop-%s" % (head if colon and "/" not in tag else name, digest) if digest else None


class NotRegularError(OSError):
    """A FIFO, a socket or a device where a file belongs: opened as a file, it may never answer."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EINVAL, "Not a regular file", path)


def regular(path: str) -> BufferedReader:
    """A file, open for reading. Raises NotRegularError, and never waits for whoever writes to a FIFO."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise NotRegularError(path) from None
        raise
    try:
        check_kind(path, os.fstat(handle).st_mode)
        return os.fdopen(handle, "rb")
    except OSError:
        os.close(handle)
        raise


def check_kind(path: str, mode: int) -> None:
    """Raise IsADirectoryError or NotRegularError for what is no file."""
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        raise NotRegularError(path)


def read_text(path: str) -> str:
    """A small file. Raises OSError, also for what is no regular file."""
    with regular(path) as stream:
        return stream.read().decode("utf-8", "replace")


def maybe(path: str) -> str | None:
    """A small file of sysfs or /proc, stripped; None when it is absent or has no value now."""
    try:
        return read_text(path).strip()
    except OSError:
        return None


def number(text: str | None) -> int | None:
    """A whole number; None for any other text."""
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def listed(folder: str) -> list[str]:
    """Names in a folder; none when it does not exist."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


class EngineError(Exception):
    """The Docker engine answered with an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__("Docker: %s (%d)" % (text, status))
        self.status = status
        self.text = text


class SilentEngineError(OSError):
    """The Docker engine gave no answer: what it did, or will do, is unknown. Told by its ``reason``."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Engine:
    """Docker's API. Every call is a connection of its own.

    ``version`` and ``api_version`` are those of the last answer: every answer tells them in its header.
    """

    def __init__(self, path: str = DOCKER_SOCKET, timeout: float = 10.0) -> None:
        self.path = path
        self.timeout = timeout
        self.version: str | None = None
        self.api_version: str | None = None

    def request(self, method: str, path: str, body: Any = None, timeout: float | None = None) -> bytes:
        """The body of the answer. Raises EngineError, or SilentEngineError when there is none."""
        data = b"" if body is None else json.dumps(body).encode()
        # An HTTP/1.0 request is answered without chunks, and the end of the stream ends the body.
        head = (
            "%s %s HTTP/1.0\r\nHost: docker\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        )
        asked = (head % (method, path, len(data))).encode() + data
        try:
            received = self._exchange(asked, self.timeout if timeout is None else timeout)
        except OSError as error:
            raise SilentEngineError(error) from error
        header, _, content = received.partition(b"\r\n\r\n")
        status = int(header.split(None, 2)[1])
        self._note_versions(header.decode("latin-1"))
        if status >= 400:
            try:
                text = str(json.loads(content.decode())["message"])
            except (ValueError, KeyError, TypeError):
                text = content.decode("utf-8", "replace")[:500]
            raise EngineError(status, text)
        return content

    def _exchange(self, asked: bytes, timeout: float) -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout)
            connection.connect(self.path)
            connection.sendall(asked)
            received = b"".join(iter(lambda: connection.recv(1 << 18), b""))
        if b"\r\n\r\n" not in received:
            raise ConnectionError("the Docker engine closed the connection")
        return received

    def _note_versions(self, header: str) -> None:
        """``Api-Version: 1.47`` and ``Server: Docker/27.5.1 (linux)``."""
        for line in header.split("\r\n")[1:]:
            name, _, value = line.partition(":")
            if name.lower() == "api-version":
                self.api_version = value.strip()
            elif name.lower() == "server":
                self.version = value.strip().partition("/")[2].partition(" ")[0]

    def json(self, method: str, path: str, body: Any = None, timeout: float | None = None) -> Any:
        """As `request`, the body as JSON (None when it is empty)."""
        content = self.request(method, path, body, timeout)
        return json.loads(content.decode()) if content else None


def log_parts(raw: bytes) -> Iterator[bytes]:
    """The payloads of a multiplexed log: 8 bytes of stream and length before each."""
    while len(raw) >= 8:
        size = struct.unpack_from(">I", raw, 4)[0]
        yield raw[8 : 8 + size]
        raw = raw[8 + size :]


def log_text(raw: bytes) -> str:
    """A log as text, whether it comes in parts (the usual) or as it is (a container with a terminal)."""
    framed = len(raw) >= 8 and raw[0] in (0, 1, 2) and raw[1:4] == b"\0\0\0"
    return (b"".join(log_parts(raw)) if framed else raw).decode("utf-8", "replace")
