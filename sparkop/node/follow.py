"""A rank's log, kept in files of the owner's while the rank runs: it outlives the container.

Stdlib-only, Python 3.8 or newer. The follower is a process of its own: no connection, terminal or parent
holds it. It ends with the container, so that `stop` and `destroy` end it too. ``logs.json`` in the state
folder tells the next observation whom it follows and which process that is::

    {"version": 1, "container": "<id>", "file": "logs/rank-0.log",
     "pid": 4711, "started": 8912345, "boot": "..."}

``unreadable`` instead of a process: this engine's logging driver gives nothing back. It is no unit
(units.py): a unit comes back by itself, this one ends for good with its container.
"""

from __future__ import annotations

import calendar
import json
import os
import signal
import socket
import struct
import time
from typing import Any, BinaryIO, Callable, Iterator

from . import lease, units, wire

NAME = "logs.json"
LARGEST = 16 << 20
"""Bytes of a file; then the next one begins."""
OLDER = 3
"""Files that are kept beside the one that is written: ``rank-0.log.1`` is the newest of them."""
AGAIN = 1.0
"""Seconds until an engine that went away is asked again."""
PATIENCE = 600.0
"""Seconds after which an engine that stays away is given up: the next observation starts another follower."""
LONGEST_STAMP = 64


def start(
    folder: str,
    engine: wire.Engine,
    container: dict[str, Any],
    file: str,
    masked: Callable[[bytes], bytes] = bytes,
) -> dict[str, Any]:
    """Keep the container's log in ``file`` (below ``folder``) from now on; found at work is success."""
    identity = str(container["Id"])
    before = read(folder)
    again = before.get("container") == identity
    woken = wake(before)
    if again and (before.get("unreadable") or lives(before)):
        return {"changed": woken}
    record: dict[str, Any] = {"version": 1, "container": identity, "file": file}
    try:
        engine.request("GET", _path(identity, "tail=0"))
    except wire.EngineError as error:
        if error.status == 404:
            raise
        lease.replace_file(os.path.join(folder, NAME), _json({**record, "unreadable": str(error)}), 0o644)
        return {"changed": True, "unreadable": str(error)}
    path = os.path.join(folder, file)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    if os.path.exists(path):  # the follower itself has nobody to tell it to
        wire.check_kind(path, os.stat(path).st_mode)
    tty = bool((container.get("Config") or {}).get("Tty"))

    def work() -> None:
        kept = Kept(path)
        if not again:
            kept.write(b"-- %s %s --\n" % (container["Name"].lstrip("/").encode(), identity[:12].encode()))
        follow(engine.path, identity, tty, kept, kept.last_stamp() if again else b"", masked)

    pid = detach(work)
    record.update(units.process(pid))
    lease.replace_file(os.path.join(folder, NAME), _json(record), 0o644)
    return {"changed": True}


def read(folder: str) -> dict[str, Any]:
    """Who follows; empty when nobody does, or that can't be told."""
    try:
        found = json.loads(wire.read_text(os.path.join(folder, NAME)))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def wake(record: dict[str, Any]) -> bool:
    """Let a follower that was stopped by a signal go on: it would keep nothing, and outlive its container."""
    own = units.identity_of(record)
    if own is None or units.state_of(own) != "paused":
        return False
    try:
        os.kill(own["pid"], signal.SIGCONT)
    except OSError:
        return False
    return True


def lives(record: dict[str, Any]) -> bool:
    """Whether the process of a record is still the one that wrote it."""
    return units.state_of(units.identity_of(record)) != "exited"


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True).encode() + b"\n"


def _path(identity: str, more: str) -> str:
    return "/containers/%s/logs?stdout=1&stderr=1&timestamps=1&%s" % (identity, more)


def detach(work: Any) -> int:
    """Run ``work`` in a process that nobody waits for, without any of our files; its process id."""
    reader, writer = os.pipe()
    first = os.fork()
    if first == 0:
        code = 1
        try:
            os.setsid()
            second = os.fork()
            if second:
                os.write(writer, b"%d" % second)
                os._exit(0)
            _alone()
            work()
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    os.waitpid(first, 0)
    with os.fdopen(reader, "rb") as told:
        return int(told.read())


def _alone() -> None:
    """Keep nothing of the caller's: not its streams, not the state folder's lock, not its folder."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    os.closerange(3, 4096)
    os.chdir("/")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with open("/proc/self/comm", "w") as name:
            name.write("sparkop-logs")
    except OSError:
        pass


class Kept:
    """The files. What can't be written (a full disk) is lost, and never waited for."""

    def __init__(self, path: str, largest: int = LARGEST, older: int = OLDER) -> None:
        self.path = path
        self.largest = largest
        self.older = older
        self.whole = True
        """The last line has its end."""

    def write(self, data: bytes) -> None:
        try:
            self._turn(len(data))
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                os.fchmod(descriptor, 0o600)
                os.write(descriptor, data)
            finally:
                os.close(descriptor)
        except OSError:
            return
        self.whole = data.endswith(b"\n")

    def _turn(self, more: int) -> None:
        """Begin the next file when this one is full, at the end of a line."""
        try:
            size = os.stat(self.path).st_size
        except FileNotFoundError:
            return
        if not self.whole or size + more <= self.largest:
            return
        for number in range(self.older - 1, 0, -1):
            if os.path.exists("%s.%d" % (self.path, number)):
                os.replace("%s.%d" % (self.path, number), "%s.%d" % (self.path, number + 1))
        os.replace(self.path, self.path + ".1")

    def last_stamp(self) -> bytes:
        """The time of the last line that is kept; empty without one."""
        for path in (self.path, self.path + ".1"):
            try:
                with wire.regular(path) as stream:
                    stream.seek(max(0, os.fstat(stream.fileno()).st_size - (1 << 16)))
                    lines = stream.read().splitlines()
            except OSError:
                continue
            stamps = [stamp for stamp in map(stamp_of, lines) if stamp]
            if stamps:
                return stamps[-1]
        return b""


def stamp_of(line: bytes) -> bytes:
    """``2026-11-30T17:00:00.123456789Z``, where a line begins with it."""
    stamp = line[:LONGEST_STAMP].partition(b" ")[0]
    return stamp if stamp.endswith(b"Z") and stamp[10:11] == b"T" else b""


def since(stamp: bytes) -> str:
    """A stamp as the engine wants it: seconds since 1970 and nanoseconds."""
    whole, _, fraction = stamp.decode().rstrip("Z").partition(".")
    seconds = calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S"))
    return "%d.%s" % (seconds, (fraction + "000000000")[:9])


def follow(
    engine: str, identity: str, tty: bool, kept: Kept, last: bytes, masked: Callable[[bytes], bytes] = bytes
) -> None:
    """Write what comes until the container has ended, and what it said last. The engine may go away
    meanwhile."""
    while True:
        state = state_of(engine, identity)
        if not state:
            return
        try:
            for part in stream(engine, identity, tty, last):
                kept.write(masked(part))
        except (OSError, ValueError):
            pass
        if state != "running":
            return
        time.sleep(AGAIN)
        last = kept.last_stamp()


def stream(engine: str, identity: str, tty: bool, last: bytes) -> Iterator[bytes]:
    """The log after ``last``, as it comes. Raises OSError, or ValueError for what is no log."""
    more = "follow=1" + ("&since=" + since(last) if last else "")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(30.0)
        connection.connect(engine)
        connection.sendall(b"GET %s HTTP/1.0\r\nHost: docker\r\n\r\n" % _path(identity, more).encode())
        with connection.makefile("rb") as answer:
            if b" 200 " not in answer.readline(1024):
                raise ValueError("the engine refuses")
            while answer.readline(1 << 16).strip():
                pass
            connection.settimeout(None)  # a rank may be silent for hours
            for part in _raw(answer) if tty else _frames(answer):
                if not (last and b"" < stamp_of(part) <= last):
                    yield part


def _raw(answer: BinaryIO) -> Iterator[bytes]:
    return iter(answer.readline, b"")


def _frames(answer: BinaryIO) -> Iterator[bytes]:
    """8 bytes of stream and length before each part."""
    while True:
        head = answer.read(8)
        if len(head) < 8:
            return
        yield answer.read(struct.unpack(">I", head[4:])[0])


def state_of(engine: str, identity: str) -> str:
    """``running`` or another state; empty for a container that is gone, or an engine that stays away."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            found = wire.Engine(engine).json("GET", "/containers/%s/json" % identity)
            return str((found.get("State") or {}).get("Status"))
        except wire.EngineError as error:
            if error.status == 404:
                return ""
        except (OSError, ValueError):
            pass
        time.sleep(AGAIN)
    return ""
