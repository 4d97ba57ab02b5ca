"""Which ranks run, by Docker's socket, and a hold on each that kills without Docker."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from typing import Any
from urllib.parse import quote

from . import reading

DOCKER_SOCKET = "/var/run/docker.sock"


class Docker:
    """Docker's API over its socket; HTTP/1.0, so that the end of the stream ends the body."""

    def __init__(self, path: str = DOCKER_SOCKET, timeout: float = 5.0) -> None:
        self.path = path
        self.timeout = timeout

    def request(self, method: str, path: str) -> tuple[int, bytes]:
        """Status and body. Raises OSError when the engine does not answer."""
        head = "%s %s HTTP/1.0\r\nHost: docker\r\nContent-Length: 0\r\n\r\n" % (method, path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(self.timeout)
            connection.connect(self.path)
            connection.sendall(head.encode())
            received = b""
            while True:
                part = connection.recv(1 << 16)
                if not part:
                    break
                received += part
        header, _, body = received.partition(b"\r\n\r\n")
        try:
            return int(header.split(None, 2)[1]), body
        except (IndexError, ValueError):  # an engine that ended meanwhile leaves an empty answer
            raise OSError("Docker's answer has no status: %r" % header[:80]) from None

    def ranks(self, cluster: str) -> list[dict[str, Any]]:
        """The running rank containers of the cluster, as Docker lists them. Raises OSError, ValueError."""
        labels = ["sparkop.cluster=" + cluster, "sparkop.role=rank"]
        filters = quote(json.dumps({"label": labels, "status": ["running", "paused", "restarting"]}))
        status, body = self.request("GET", "/containers/json?filters=" + filters)
        if status != 200:
            raise OSError("Docker answered %d" % status)
        found = json.loads(body.decode())
        return found if isinstance(found, list) else []

    def pid(self, identifier: str) -> int:
        """Process 1 of a container, by the host's number; 0: it has none, or none that can be understood.
        Raises OSError."""
        status, body = self.request("GET", "/containers/%s/json" % identifier)
        if status != 200:
            return 0
        try:
            return int(json.loads(body.decode())["State"]["Pid"])
        except (ValueError, KeyError, TypeError):
            return 0

    def kill(self, identifier: str) -> int:
        """SIGKILL; the answer's status (404, 409: it is gone already). Raises OSError."""
        return self.request("POST", "/containers/%s/kill?signal=KILL" % identifier)[0]


class Rank:
    """A running rank container.

    ``descriptor`` holds process 1 of its pid namespace: the kernel ends all the others with it, and no other
    process can have that number meanwhile. None: only Docker can kill it. ``stamp`` and ``numbers``: its
    labels sparkop.hash and sparkop.memory.
    """

    def __init__(
        self,
        identifier: str,
        name: str,
        stamp: str,
        descriptor: int | None,
        numbers: str = "",
        pid: int = 0,
    ) -> None:
        self.identifier = identifier
        self.name = name
        self.stamp = stamp
        self.numbers = numbers
        self.pid = pid
        self.descriptor = descriptor
        self.killed_at: float | None = None

    @property
    def ended(self) -> bool:
        """Its process 1 is gone. Unknown counts as no."""
        return self.descriptor is not None and ended(self.descriptor)

    def known(self) -> dict[str, Any]:
        """By which a guard that starts while Docker is frozen finds it again."""
        return {
            "id": self.identifier,
            "name": self.name,
            "stamp": self.stamp,
            "numbers": self.numbers,
            "pid": self.pid,
        }

    def kill(self) -> bool:
        """SIGKILL by the kernel; False when that was not possible."""
        if self.descriptor is None:
            return False
        try:
            signal.pidfd_send_signal(self.descriptor, signal.SIGKILL)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return True

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def ended(descriptor: int, seconds: float = 0.0) -> bool:
    """Whether the process of a pidfd is gone, at last after ``seconds``."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(int(seconds * 1000)))


def hold(identifier: str, pid: int, proc: str = "/proc") -> int | None:
    """A descriptor of a container's process 1; None when this guard can't see it, or may not kill it.

    The process is checked after it is held: its number could have passed to another one meanwhile. Signal 0
    asks for the right to kill: AppArmor refuses it for a privileged container.
    """
    if pid <= 0:
        return None
    try:
        descriptor = os.pidfd_open(pid)
    except (OSError, OverflowError):  # gone, or a number that no process has
        return None
    try:
        signal.pidfd_send_signal(descriptor, 0)
        if identifier in reading.cgroup(pid, proc):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def rehearse() -> float:
    """Kill a process of our own in the way that ranks are killed; seconds. Raises OSError."""
    import time

    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        descriptor = os.pidfd_open(child)
        began = time.monotonic()
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        if not ended(descriptor, 5.0):
            raise OSError("a killed process did not end within 5 s")
        took = time.monotonic() - began
        os.close(descriptor)
        return took
    except OSError:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.waitpid(child, 0)
