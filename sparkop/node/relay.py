"""Passes bytes between standard input and output and a socket, for a server that forwards nothing.

Stdlib-only, Python 3.8 or newer. The first line of standard input is JSON: ``nonce``, and ``address`` and
``port`` (``"127.0.0.1"``, 8000) or ``unix`` (``"/var/run/docker.sock"``). Once connected it writes
``sparkop <nonce> 0`` on a line of its own, so that what start-up files printed can be told from the stream;
else ``failed <nonce> <why>``.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from typing import BinaryIO


def main(stdin: BinaryIO, stdout: BinaryIO) -> int:
    """Pass one connection on until either side ends it. Returns the exit status."""
    request = json.loads(stdin.readline().decode())
    nonce = str(request["nonce"])
    try:
        connection = connect(request)
    except OSError as error:
        stdout.write(("\nfailed %s %s\n" % (nonce, error.strerror or error)).encode())
        stdout.flush()
        return 1
    stdout.write(("\nsparkop %s 0\n" % nonce).encode())
    stdout.flush()
    threading.Thread(target=send, args=(stdin, connection), daemon=True).start()
    while True:
        data = connection.recv(1 << 16)
        if not data:
            os._exit(0)  # an orderly end would wait for the thread that reads standard input
        stdout.write(data)
        stdout.flush()


def connect(request: dict[str, object]) -> socket.socket:
    """Raises OSError when nothing listens there."""
    if "unix" in request:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(str(request["unix"]))
        return connection
    connection = socket.create_connection((str(request["address"]), int(str(request["port"]))), 10)
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def send(stdin: BinaryIO, connection: socket.socket) -> None:
    """Pass standard input on; its end is told to the other side."""
    try:
        while True:
            data = stdin.read1(1 << 16)  # type: ignore[attr-defined]  # a BufferedReader: what there is
            if not data:
                break
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the other side has ended: the reader sees it
