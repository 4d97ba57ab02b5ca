"""SSH channels that behave as sockets, so that http.client and urllib3 can speak over them."""

from __future__ import annotations

import io
import socket
import threading
import time
from typing import Any, Literal, Protocol

import paramiko
from paramiko.common import cMSG_CHANNEL_OPEN


class SocketLike(Protocol):
    """The part of a socket that HTTP needs."""

    def sendall(self, data: bytes) -> None: ...
    def makefile(self, mode: Literal["rb"]) -> Any: ...
    def settimeout(self, timeout: float | None) -> None: ...
    def gettimeout(self) -> float | None: ...
    def close(self) -> None: ...


LAST_WORD = 0.5
"""Seconds in which a connection that has failed has ended."""


class ChannelSocket:
    """A paramiko channel as a socket. Closing it waits for the files made of it, as with a socket.

    ``head``: bytes that were received already.
    """

    def __init__(self, channel: paramiko.Channel, head: bytes = b"") -> None:
        self.channel = channel
        self._head = head
        self._files = 0
        self._closed = False
        self._lock = threading.Lock()

    def recv_into(self, buffer: Any) -> int:
        view = memoryview(buffer)
        if self._head:
            data, self._head = self._head[: len(view)], self._head[len(view) :]
        else:
            data = self.channel.recv(len(view))
            if not data and len(view) and self._lost():
                raise ConnectionResetError("the connection to the node is lost")
        view[: len(data)] = data
        return len(data)

    def _lost(self) -> bool:
        """No end of the stream has come: it is not over, nobody will hear more of it."""
        transport = self.channel.get_transport()
        if self.channel.eof_received or transport is None:
            return False
        transport.join(LAST_WORD)  # it wakes who reads a moment before it ends
        return not transport.is_active()

    def sendall(self, data: bytes) -> None:
        self.channel.sendall(data)

    def makefile(self, mode: Literal["rb"]) -> io.BufferedReader:
        with self._lock:
            self._files += 1
        return io.BufferedReader(socket.SocketIO(self, mode))  # type: ignore[arg-type]

    def settimeout(self, timeout: float | None) -> None:
        self.channel.settimeout(timeout)

    def gettimeout(self) -> float | None:
        return self.channel.gettimeout()

    def shutdown(self, how: int) -> None:
        """Only closing the channel wakes who reads from it: paramiko's own shutdown does not."""
        if how == socket.SHUT_WR:
            self.channel.shutdown_write()
        else:
            self.channel.close()

    @property
    def dead(self) -> bool:
        """The other side has ended it, or the connection is gone."""
        transport = self.channel.get_transport()
        gone = self.channel.closed or self.channel.eof_received
        return bool(gone) or not (transport and transport.is_active())

    def close(self) -> None:
        self._closed = True
        self._close_unused()

    def _decref_socketios(self) -> None:
        """`socket.SocketIO` calls this when it is closed."""
        with self._lock:
            self._files -= 1
        if self._closed:
            self._close_unused()

    def _close_unused(self) -> None:
        if self._files <= 0:
            self.channel.close()


def open_streamlocal(transport: Any, path: str, timeout: float) -> paramiko.Channel:
    """A channel to a unix socket of the server (OpenSSH PROTOCOL, section 2.4).

    paramiko can't open this kind itself: this is its `Transport.open_channel` with the fields of this kind,
    by the same private names (held by tests/hosts/test_channels.py). Raises paramiko.SSHException when the
    server refuses; it does not say whether by policy or because nothing listens.
    """
    if not transport.active:
        raise paramiko.SSHException("the connection is closed")
    window = transport._sanitize_window_size(None)
    packet = transport._sanitize_packet_size(None)
    with transport.lock:
        number = transport._next_channel()
        request = paramiko.Message()
        request.add_byte(cMSG_CHANNEL_OPEN)
        request.add_string("direct-streamlocal@openssh.com")
        request.add_int(number)
        request.add_int(window)
        request.add_int(packet)
        request.add_string(path)
        request.add_string("")
        request.add_int(0)
        channel: Any = paramiko.Channel(number)
        opened = threading.Event()
        transport._channels.put(number, channel)
        transport.channel_events[number] = opened
        transport.channels_seen[number] = True
        channel._set_transport(transport)
        channel._set_window(window, packet)
    transport._send_user_message(request)
    end = time.monotonic() + timeout
    while not opened.wait(0.1):
        if not transport.active:
            raise transport.get_exception() or paramiko.SSHException("the connection broke")
        if time.monotonic() > end:
            raise paramiko.SSHException("the server did not open the channel in time")
    if transport._channels.get(number) is None:
        raise transport.get_exception() or paramiko.SSHException("the server refused the channel")
    return channel  # type: ignore[no-any-return]
