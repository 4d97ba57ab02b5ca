"""The ranks of one engine: they meet at the master address, and every step needs all of them.

Rank 0 listens on the rendezvous port; the others connect and say who they are. A step is one line to each
other rank and one line back: a rank that is dead, frozen or cut off stops the whole group, as a collective of
a real engine does, and nobody notices before the next step.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

JOIN_SECONDS = 600.0
"""torch's default rendezvous timeout."""
POLL_SECONDS = 0.05


class PeerLostError(Exception):
    """Another rank has gone: its connection is closed."""


class StepTimeoutError(Exception):
    """Another rank did not take part in a step in time."""


class JoinError(Exception):
    """The ranks did not all meet, or do not fit together; the text says which."""


@dataclass
class Peer:
    rank: int
    connection: socket.socket
    unread: bytes = b""


@dataclass
class Group:
    """One rank's view of its group. `peers` is empty on a rank other than 0, whose only link is `leader`."""

    rank: int
    size: int
    fingerprint: str
    peers: list[Peer] = field(default_factory=list)
    leader: socket.socket | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _step: int = 0

    def gather(self, port: int, log: Callable[[str], None], seconds: float = JOIN_SECONDS) -> None:
        """Rank 0: wait until all others have joined. Raises JoinError, OSError when the port is taken."""
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("", port))
        listener.listen(16)
        deadline = time.monotonic() + seconds
        with listener:
            while len(self.peers) < self.size - 1:
                listener.settimeout(max(0.01, deadline - time.monotonic()))
                try:
                    connection, address = listener.accept()
                except TimeoutError:
                    missing = sorted(set(range(1, self.size)) - {peer.rank for peer in self.peers})
                    raise JoinError(f"timed out after {seconds:.0f} s waiting for ranks {missing}") from None
                self._admit(connection, address[0], log)
        for peer in self.peers:
            peer.connection.settimeout(None)
            peer.connection.sendall(b"go\n")

    def _admit(self, connection: socket.socket, address: str, log: Callable[[str], None]) -> None:
        connection.settimeout(5)
        try:
            hello = json.loads(read_line(connection))
            rank, fingerprint = int(hello["rank"]), str(hello["fingerprint"])
        except (OSError, ValueError, KeyError, TypeError):
            connection.close()  # a port scan or a health check
            return
        if fingerprint != self.fingerprint:
            raise JoinError(f"rank {rank} at {address} was started with other arguments")
        for stale in [peer for peer in self.peers if peer.rank == rank]:
            stale.connection.close()  # that rank was started again while this one waited
            self.peers.remove(stale)
        if not 0 < rank < self.size:
            raise JoinError(f"a rank {rank} at {address} wants to join a group of {self.size}")
        keep_alive(connection)
        self.peers.append(Peer(rank, connection))
        log(f"rank {rank} of {self.size} joined from {address}")

    def join(self, host: str, port: int, seconds: float = JOIN_SECONDS) -> None:
        """Another rank: connect to rank 0, as often as needed, and wait for its go. Raises JoinError."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                connection = socket.create_connection((host, port), timeout=2)
                connection.settimeout(None)
                keep_alive(connection)
                hello = {"rank": self.rank, "fingerprint": self.fingerprint}
                connection.sendall(json.dumps(hello).encode() + b"\n")
                if read_line(connection) == b"go":
                    self.leader = connection
                    return
            except OSError:
                pass
            if time.monotonic() > deadline:
                raise JoinError(f"timed out after {seconds:.0f} s connecting to {host}:{port}")
            time.sleep(0.2)

    def step(self, seconds: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Rank 0: one step of all ranks.

        Raises PeerLostError at once when a connection is closed, StepTimeoutError after `seconds`.
        """
        with self._lock:
            self._step += 1
            line = f"step {self._step}\n".encode()
            deadline = time.monotonic() + seconds
            for peer in self.peers:
                with contextlib.suppress(OSError):
                    peer.connection.sendall(line)
            for peer in self.peers:
                self._wait(peer, line, deadline, stop)

    def _wait(self, peer: Peer, line: bytes, deadline: float, stop: Callable[[], bool]) -> None:
        while line not in peer.unread:
            if stop() or time.monotonic() > deadline:
                raise StepTimeoutError(f"rank {peer.rank} did not answer")
            try:
                ready, _, _ = select.select([peer.connection], [], [], POLL_SECONDS)
                data = peer.connection.recv(4096) if ready else None
            except (OSError, ValueError) as error:
                raise PeerLostError(f"Connection closed by peer (rank {peer.rank}): {error}") from error
            if data == b"":
                raise PeerLostError(f"Connection closed by peer (rank {peer.rank})")
            peer.unread += data or b""
        peer.unread = peer.unread.partition(line)[2]

    def follow(self, wedged: Callable[[], bool]) -> str:
        """Another rank: take part in steps until rank 0 says stop ("stop") or is gone ("lost")."""
        assert self.leader is not None
        while True:
            try:
                line = read_line(self.leader)
            except OSError:
                return "lost"
            if line in (b"stop", b""):
                return "stop" if line else "lost"
            while wedged():
                time.sleep(POLL_SECONDS)
            try:
                self.leader.sendall(line + b"\n")
            except OSError:
                return "lost"

    def dismiss(self) -> None:
        """Rank 0: tell the others to end."""
        for peer in self.peers:
            with contextlib.suppress(OSError):
                peer.connection.sendall(b"stop\n")


def read_line(connection: socket.socket) -> bytes:
    """One line without its end; empty when the other side has closed."""
    line = b""
    while not line.endswith(b"\n"):
        byte = connection.recv(1)
        if not byte:
            return b""
        line += byte
    return line[:-1]


def keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def fingerprint(parts: Sequence[object]) -> str:
    """What all ranks must agree on, as one short word."""
    return hashlib.sha256(repr(list(parts)).encode()).hexdigest()[:16]
