"""Unfragmented pings from one address to another: what an MTU is worth is seen only end to end.

Stdlib-only, Python 3.8 or newer. A ping socket where the kernel lets this user have one, else a raw one.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from typing import Any

TRIES = 3
SECONDS = 0.5
"""How long one answer is waited for; a fabric answers within a millisecond."""
IP_MTU_DISCOVER, PROBE = 10, 3
"""ip(7): set the don't-fragment bit and ask the interface's MTU only, not a remembered one."""
REQUEST, REPLY = 8, 0
HEADERS = 28
"""Bytes of the IPv4 and ICMP headers."""


def ping(address: str, source: str, size: int) -> dict[str, Any]:
    """One address; ``size`` is that of the whole packet. Raises OSError when no socket can be had."""
    for attempt in range(TRIES):
        with icmp_socket() as sock:
            sock.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, PROBE)
            sock.bind((source, 0))
            began = time.monotonic()
            try:
                sock.sendto(message(attempt, size - HEADERS), (address, 0))
            except OSError as error:
                if error.errno == errno.EMSGSIZE:
                    return {"answered": False, "reason": "larger than the sender's own MTU"}
                return {"answered": False, "reason": os.strerror(error.errno or 0)}
            if answered(sock, address, attempt, began + SECONDS):
                return {"answered": True, "seconds": time.monotonic() - began}
    return {"answered": False, "reason": "no answer"}


def icmp_socket() -> socket.socket:
    """A ping socket; a raw one where the user may have no ping socket. Raises PermissionError."""
    try:
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
    except PermissionError:
        return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


def message(sequence: int, payload: int) -> bytes:
    """An echo request. A ping socket replaces identifier and checksum by its own."""
    body = b"sparkop".ljust(max(payload, 7), b".")
    identifier = os.getpid() & 0xFFFF
    head = struct.pack("!BBHHH", REQUEST, 0, 0, identifier, sequence)
    return struct.pack("!BBHHH", REQUEST, 0, checksum(head + body), identifier, sequence) + body


def checksum(data: bytes) -> int:
    """Of the Internet (RFC 1071)."""
    total: int = sum(struct.unpack("!%dH" % ((len(data) + 1) // 2), data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def answered(sock: socket.socket, address: str, sequence: int, deadline: float) -> bool:
    """Whether this echo request is answered until ``deadline``, a moment of time.monotonic."""
    raw = sock.type & socket.SOCK_RAW == socket.SOCK_RAW
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        sock.settimeout(left)
        try:
            data, sender = sock.recvfrom(1 << 16)
        except socket.timeout:
            return False
        except OSError:  # the network said that it can't be delivered
            return False
        start = (data[0] & 15) * 4 if raw and data else 0
        if len(data) < start + 8 or sender[0] != address:
            continue
        kind, _, _, identifier, number = struct.unpack_from("!BBHHH", data, start)
        if kind == REPLY and number == sequence and (not raw or identifier == os.getpid() & 0xFFFF):
            return True
