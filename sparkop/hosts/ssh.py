"""A node over SSH: one warm connection, opened at first use and again after it broke."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import paramiko

from sparkop.errors import UnreachableError
from sparkop.hosts.base import LOOPBACK
from sparkop.hosts.channels import ChannelSocket, SocketLike, open_streamlocal
from sparkop.hosts.machine import Machine
from sparkop.hosts.programs import Program, new_nonce, probe_program, relay_program, whole_length
from sparkop.hosts.ssh_link import CHANNEL_TIMEOUT, Link, open_link
from sparkop.hosts.ssh_options import Target
from sparkop.hosts.way import Way, broken, why_broken
from sparkop.node.wire import DOCKER_SOCKET
from sparkop.threads import Later

MOST_LINKS = 4
"""Connections to a server that limits sessions (MaxSessions); one is enough for all others."""
FORBIDDEN = 1
"""SSH_OPEN_ADMINISTRATIVELY_PROHIBITED (RFC 4254, 5.1)."""
PART = 1 << 16
NOISE = 4 << 20
"""Bytes that start-up files may print around an answer."""
CLOSE_PATIENCE = 0.5
"""Seconds."""
SESSION_PAUSE = 0.2

_BROKEN = (paramiko.SSHException, EOFError, OSError)


class SshHost(Machine):
    """Threads may share it: each call is a channel of its own."""

    def __init__(self, target: Target) -> None:
        super().__init__(target.name)
        self.target = target
        self._links: list[Link] = []
        self._ahead: Later[tuple[Link, paramiko.Channel | None]] | None = None
        """The first connection while nobody has waited for it yet, with a probe that was started on it."""
        self._idle: dict[str, paramiko.Channel] = {}
        """Programs on the node that wait for their next request: a warm one answers within milliseconds."""
        self._lock = threading.Lock()
        self._ended = threading.Condition()
        """Told when a session has ended and another may begin."""
        self._relay_docker = False
        self._relay_ports = False

    def open(self) -> None:
        """Connect now; else the first use does. Raises UnreachableError."""
        self._link()

    def open_ahead(self, way: Later[Way]) -> None:
        """Connect, and start the probe, in a thread. The first use waits for it, and gets its failure."""
        self._ahead = Later(lambda: self._opened(way.result()), f"connect {self.name}")

    def _opened(self, way: Way) -> tuple[Link, paramiko.Channel | None]:
        link = open_link(self.target, way)
        try:
            channel = link.transport.open_session(timeout=CHANNEL_TIMEOUT)
            _start(channel, probe_program(), CHANNEL_TIMEOUT)
        except _BROKEN:
            return link, None  # the first use tells why
        return link, channel

    def close(self) -> None:
        """Never waits for a connection that is still being made: it is closed once it is there."""
        if self._lock.acquire(timeout=CLOSE_PATIENCE):
            self._lock.release()
            self._close()
        else:
            Later(self._close, f"close {self.name}")

    def _close(self) -> None:
        with self._lock:
            links, self._links = self._links, []
            self._idle.clear()
            ahead, self._ahead = self._ahead, None
        for link in links:
            link.close()
        if ahead is None:
            return
        if ahead.ended(0):
            _close_unused(ahead)
        else:
            Later(partial(_close_unused, ahead), f"close {self.name}")

    # Connections

    def _take_ahead(self) -> None:
        """Wait for the connection that was begun ahead. The lock is held."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return
        link, channel = ahead.result()
        self._links.append(link)
        if channel is not None:
            self._idle[probe_program().name] = channel

    def _link(self) -> Link:
        """The warm connection."""
        with self._lock:
            self._take_ahead()
            self._links = [link for link in self._links if link.alive]
            if not self._links:
                self._links.append(open_link(self.target))
            return self._links[0]

    def _session(self, timeout: float) -> paramiko.Channel:
        """A channel for a command, on one more connection when the server limits sessions."""
        end = time.monotonic() + timeout
        self._link()
        while True:
            for link in list(self._links):
                try:
                    return link.transport.open_session(timeout=CHANNEL_TIMEOUT)
                except paramiko.SSHException:  # refused; which kind is lost when threads are refused at once
                    if not link.alive:
                        raise
            if time.monotonic() > end:
                raise UnreachableError(
                    "The SSH server opens no more sessions.",
                    node=self.name,
                    remedy="Raise MaxSessions in its sshd_config.",
                )
            self._make_room()

    def _make_room(self) -> None:
        """For one more session: end the programs that only wait, else connect once more, else wait."""
        with self._lock:
            idle, self._idle = self._idle, {}
            if not idle and len(self._links) < MOST_LINKS:
                self._links.append(open_link(self.target))
                return
        for channel in idle.values():
            channel.close()
        with self._ended:
            self._ended.wait(SESSION_PAUSE)

    # Programs

    def run_program(
        self, program: Program, request: bytes, nonce: str, timeout: float
    ) -> tuple[bytes, bytes]:
        end = time.monotonic() + timeout
        try:
            with self._channel_of(program, timeout) as channel:
                return self._converse(channel, request, nonce, end)
        except TimeoutError as error:
            raise UnreachableError(
                "The node does not answer.", node=self.name, cause=f"no answer in {timeout:g} s"
            ) from error
        except _BROKEN as error:
            raise broken(error, self.name) from error

    @contextmanager
    def _channel_of(self, program: Program, timeout: float) -> Iterator[paramiko.Channel]:
        """A channel to the running program; it stays for the next request when its answer came whole.

        A second request at the same time gets a program of its own.
        """
        with self._lock:
            self._take_ahead()
            channel = self._idle.pop(program.name, None)
        if channel is None or ChannelSocket(channel).dead:
            channel = self._session(timeout)
            _start(channel, program, timeout)
        kept = False
        try:
            yield channel
            with self._lock:
                kept = not channel.eof_received and program.name not in self._idle
                if kept:
                    self._idle[program.name] = channel
        finally:
            if not kept:
                channel.close()
                with self._ended:
                    self._ended.notify_all()

    def _converse(
        self, channel: paramiko.Channel, request: bytes, nonce: str, end: float
    ) -> tuple[bytes, bytes]:
        channel.settimeout(max(0.1, end - time.monotonic()))
        channel.sendall(request)
        trailer = f"\nend {nonce}\n".encode()
        output = bytearray()
        most: int | None = None
        while trailer not in output[-PART - len(trailer) :]:
            left = end - time.monotonic()
            if left <= 0:  # parts that keep coming would never let one wait run out
                raise TimeoutError
            channel.settimeout(left)
            part = channel.recv(PART)
            if not part:
                return bytes(output), self._said(channel, end)
            output += part
            if len(output) > (most or NOISE):
                whole = whole_length(output, nonce) if most is None else None
                if whole is None:
                    raise self._flooded()
                most = whole + NOISE
        return bytes(output), b""

    def _flooded(self) -> UnreachableError:
        return UnreachableError(
            "The node's answer can't be read.",
            node=self.name,
            cause=f"it prints more than {NOISE >> 20} MiB that are no answer",
            remedy="See what its start-up files print: ssh -T, with a command, should print nothing else.",
        )

    def _said(self, channel: paramiko.Channel, end: float) -> bytes:
        """Standard error of a program that gave no answer."""
        said = bytearray()
        channel.settimeout(max(0.1, min(2.0, end - time.monotonic())))
        while part := channel.recv_stderr(PART):
            said += part
        transport = channel.get_transport()
        if transport is None or not transport.is_active():
            raise EOFError
        if channel.exit_status_ready() and channel.recv_exit_status() == 127:
            said += b"\nIs python3 installed on the node?"
        return bytes(said)

    # Streams

    def dial_port(self, port: int, timeout: float, address: str = LOOPBACK) -> SocketLike:
        relayed = {"address": address, "port": port}
        if self._relay_ports:
            return self._relay(relayed, timeout)
        try:
            transport = self._link().transport
            place = (address, port)
            return ChannelSocket(transport.open_channel("direct-tcpip", place, ("", 0), timeout=timeout))
        except paramiko.ChannelException as error:
            if error.code != FORBIDDEN:
                raise ConnectionRefusedError(f"nothing listens there on {self.name}") from error
        except (paramiko.SSHException, EOFError) as error:
            raise ConnectionError(why_broken(error)) from error
        except UnreachableError as error:
            raise ConnectionError(f"{error.message} {error.cause or ''}") from error
        self._relay_ports = True
        return self._relay(relayed, timeout)

    def dial_docker(self, timeout: float) -> SocketLike:
        if not self._relay_docker:
            try:
                return ChannelSocket(open_streamlocal(self._link().transport, DOCKER_SOCKET, timeout))
            except paramiko.ChannelException:
                pass  # forbidden, or no engine: the relay tells which
            except (paramiko.SSHException, EOFError) as error:
                raise ConnectionError(why_broken(error)) from error
            except UnreachableError as error:
                raise ConnectionError(f"{error.message} {error.cause or ''}") from error
        stream = self._relay({"unix": DOCKER_SOCKET}, timeout)
        self._relay_docker = True
        return stream

    def _relay(self, place: dict[str, object], timeout: float) -> ChannelSocket:
        """The same stream through a program on the node. Raises OSError when nothing listens there."""
        nonce, program = new_nonce(), relay_program()
        request = json.dumps({"nonce": nonce, **place}).encode() + b"\n"
        try:
            channel = self._session(timeout)
            channel.settimeout(timeout)
            channel.exec_command(program.command)
            channel.sendall(program.source + request)
            return ChannelSocket(channel, _after_greeting(channel, nonce))
        except UnreachableError as error:
            raise ConnectionError(f"{error.message} {error.cause or ''}") from error
        except (paramiko.SSHException, EOFError) as error:
            raise ConnectionError(why_broken(error)) from error


def _close_unused(opened: Later[tuple[Link, paramiko.Channel | None]]) -> None:
    with suppress(Exception):  # what failed has nothing to close
        opened.result()[0].close()


def _start(channel: paramiko.Channel, program: Program, timeout: float) -> None:
    channel.settimeout(timeout)
    channel.exec_command(program.command)
    channel.sendall(program.source)


def _after_greeting(channel: paramiko.Channel, nonce: str) -> bytes:
    """Skip what start-up files print; the bytes that came after the relay's greeting."""
    ready, failed = f"\nsparkop {nonce} 0\n".encode(), f"\nfailed {nonce} ".encode()
    received = b""
    while ready not in received:
        if failed in received and received.endswith(b"\n"):
            channel.close()
            reason = received.partition(failed)[2].decode("utf-8", "replace").strip()
            raise ConnectionRefusedError(reason)
        part = channel.recv(PART)
        if not part:
            channel.close()
            raise ConnectionError("the node's relay gave no answer")
        received += part
    return received.partition(ready)[2]
