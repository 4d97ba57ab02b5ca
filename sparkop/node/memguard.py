"""Kills the ranks of this node before its memory ends. Runs in a container from the engine's image.

Stdlib-only, Python 3.8 or newer. At zero available memory the machine stops answering, instead of the
container ending; so the ranks are killed while there is still something left. It needs nobody else: it reads
``/host/meminfo``, finds the containers by their labels, and kills them through Docker's socket. Before that
it writes, and syncs to the disk, ``trip.json`` in the state folder::

    {"version": 1, "at": 1.0, "available": 1, "floor": 1, "hashes": ["v1:..."], "containers": ["x-r0"],
     "pressure": "some avg10=...", "largest": [{"pid": 1, "name": "python3", "rss": 1}]}

The same numbers are then not launched again until someone changes or confirms them (resources/trip.py).
Everything is also in ``memguard.log`` there. It never ends by itself while it can read memory.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import time
from typing import Any, Callable
from urllib.parse import quote

MEMINFO = "/host/meminfo"
DOCKER_SOCKET = "/var/run/docker.sock"
STATE = "/state"
LOG_LIMIT = 4 << 20
"""Bytes of memguard.log after which it is started anew (the old one is kept once)."""
SLOWEST = 1.0
FASTEST = 0.02
FALL_RATE = 6 << 30
"""Bytes a second: the fastest growth that was measured while a model loads."""
SOFT_EVERY = 10.0
REFRESH = 5.0


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
        return int(header.split(None, 2)[1]), body

    def ranks(self, cluster: str) -> list[dict[str, Any]]:
        """The running rank containers of the cluster: id, name, hash."""
        labels = ["sparkop.cluster=" + cluster, "sparkop.role=rank"]
        filters = quote(json.dumps({"label": labels, "status": ["running", "paused", "restarting"]}))
        status, body = self.request("GET", "/containers/json?filters=" + filters)
        if status != 200:
            raise OSError("Docker answered %d" % status)
        return [
            {
                "id": found["Id"],
                "name": (found.get("Names") or ["/" + found["Id"][:12]])[0].lstrip("/"),
                "hash": (found.get("Labels") or {}).get("sparkop.hash", ""),
            }
            for found in json.loads(body.decode())
        ]

    def kill(self, identifier: str) -> int:
        """SIGKILL; the answer's status (404, 409: it is gone already)."""
        return self.request("POST", "/containers/%s/kill?signal=KILL" % identifier)[0]


class Guard:
    """Reads, decides, kills. ``available`` and ``clock`` are injected by tests."""

    def __init__(
        self,
        cluster: str,
        floor: int,
        soft_floor: int,
        interval: float,
        docker: Docker,
        state: str = STATE,
        available: Callable[[], int] | None = None,
    ) -> None:
        self.cluster = cluster
        self.floor = floor
        self.soft_floor = soft_floor
        self.interval = interval
        self.docker = docker
        self.state = state
        self.available = available or (lambda: mem_available(MEMINFO))
        self.known: list[dict[str, Any]] = []
        self.refreshed = 0.0
        self.told = 0.0

    def tick(self) -> float:
        """One look. Returns the seconds until the next: sooner, the nearer the floor is."""
        free = self.available()
        if free < self.floor:
            self.trip(free)
            return self.pause(free)
        now = time.monotonic()
        if now - self.refreshed >= REFRESH:
            self.refresh(now)
        if free < self.soft_floor and now - self.told >= SOFT_EVERY:
            self.told = now
            self.log("available %d MiB, under the soft floor; %s" % (free >> 20, names(largest())))
        return self.pause(free)

    def pause(self, free: int) -> float:
        """Time in which memory could fall to the floor at the fastest growth, within bounds."""
        left = max(0, free - self.floor) / FALL_RATE / 2
        return max(FASTEST, min(self.interval, SLOWEST, left))

    def refresh(self, now: float) -> None:
        """Know the ranks beforehand: when memory ends, even a question to Docker can take long."""
        self.refreshed = now
        try:
            self.known = self.docker.ranks(self.cluster)
        except (OSError, ValueError) as error:
            self.log("Docker does not answer: %s" % error)

    def trip(self, free: int) -> None:
        """Write the record first, then kill; what is killed already is not killed again."""
        try:
            ranks = self.docker.ranks(self.cluster)
        except (OSError, ValueError):
            ranks = self.known
        if not ranks:
            now = time.monotonic()
            if now - self.told >= SOFT_EVERY:
                self.told = now
                self.log(
                    "available %d MiB, under the floor, but no rank runs; %s" % (free >> 20, names(largest()))
                )
            return
        record = {
            "version": 1,
            "at": time.time(),
            "available": free,
            "floor": self.floor,
            "hashes": [rank["hash"] for rank in ranks],
            "containers": [rank["name"] for rank in ranks],
            "pressure": pressure(),
            "largest": largest(),
        }
        try:
            write_synced(os.path.join(self.state, "trip.json"), json.dumps(record).encode() + b"\n")
        except OSError as error:
            self.log("the record could not be written: %s" % error)
        for rank in ranks:
            try:
                answer = self.docker.kill(rank["id"])
                self.log(
                    "available %d MiB < %d MiB: killed %s (%d)"
                    % (free >> 20, self.floor >> 20, rank["name"], answer)
                )
            except OSError as error:
                self.log("%s could not be killed: %s" % (rank["name"], error))

    def log(self, text: str) -> None:
        """A line on stdout and in memguard.log; a full disk loses the line, not the guard."""
        line = "%s %s\n" % (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), text)
        path = os.path.join(self.state, "memguard.log")
        try:
            sys.stdout.write(line)
            sys.stdout.flush()
            if os.path.exists(path) and os.path.getsize(path) > LOG_LIMIT:
                os.replace(path, path + ".1")
            with open(path, "a", encoding="utf-8") as stream:
                stream.write(line)
        except OSError:
            pass


def mem_available(path: str) -> int:
    """MemAvailable in bytes. Raises OSError or ValueError."""
    with open(path, "rb", buffering=0) as stream:
        for line in stream.read(4096).splitlines():
            if line.startswith(b"MemAvailable:"):
                return int(line.split()[1]) * 1024
    raise ValueError("no MemAvailable in " + path)


def pressure() -> str:
    """The kernel's measure of tasks that wait for memory; empty where it has none."""
    try:
        with open("/proc/pressure/memory", encoding="ascii") as stream:
            return stream.readline().strip()
    except OSError:
        return ""


def largest(count: int = 3) -> list[dict[str, Any]]:
    """The processes with the most memory that this container sees; resident bytes."""
    found: list[dict[str, Any]] = []
    for pid in os.listdir("/proc"):
        if not pid.isdigit():
            continue
        try:
            with open("/proc/%s/statm" % pid, encoding="ascii") as stream:
                pages = int(stream.read().split()[1])
            with open("/proc/%s/comm" % pid, encoding="utf-8", errors="replace") as stream:
                name = stream.read().strip()
        except (OSError, ValueError, IndexError):
            continue
        found.append({"pid": int(pid), "name": name, "rss": pages * os.sysconf("SC_PAGE_SIZE")})
    return sorted(found, key=lambda each: each["rss"], reverse=True)[:count]


def names(processes: list[dict[str, Any]]) -> str:
    return ", ".join("%s (%d) %d MiB" % (p["name"], p["pid"], p["rss"] >> 20) for p in processes)


def write_synced(path: str, content: bytes) -> None:
    """Whole and on the disk: what is done next may be the last thing this machine does."""
    draft = path + ".draft"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(draft, path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Kills the ranks of a node before its memory ends.")
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--floor", type=int, required=True, help="bytes of MemAvailable")
    parser.add_argument("--soft-floor", type=int, required=True, help="bytes; under it processes are logged")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two readings at most")
    asked = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    guard = Guard(asked.cluster, asked.floor, asked.soft_floor, asked.interval, Docker())
    guard.log(
        "guarding %s: floor %d MiB, available %d MiB"
        % (asked.cluster, asked.floor >> 20, guard.available() >> 20)
    )
    while True:
        try:
            pause = guard.tick()
        except (OSError, ValueError) as error:
            guard.log("memory could not be read: %s" % error)
            pause = asked.interval
        time.sleep(pause)


if __name__ == "__main__":
    sys.exit(main())
