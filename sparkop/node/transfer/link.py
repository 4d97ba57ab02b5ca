"""What the link between two nodes carries, measured in a moment before a long copy.

The source opens a port on its fabric address for this one measurement and sends bytes that mean nothing; the
receiver throws them away unread. A processor that can't do more says nothing about the link: then it is tried
again, and in the end said to be unknown.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import threading
import time
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from .http import Client, RetryError

PATH = "speed"
"""Of the request that opens the port."""
STREAMS = 4
SECONDS = 0.3
TRIES = 3
PAUSE = 0.5
"""Seconds between two tries."""
ANSWER = 5.0
"""Seconds for connections and answers."""
BUSY = 0.6
"""Share of the time in which threads ran or waited for a processor, from which on those were the limit."""
HEALTHY = 1 / 8
"""Of the link's own speed. A degraded half of a Spark's link carries 13 of 200 Gb/s, a healthy one 92."""
LONG = 1 << 30
"""Bytes of a copy that is worth the look."""


class Busy:
    """How much of a time the threads of a measurement were held up by the processor."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held = 0.0

    def run(self, work: Callable[[], None]) -> None:
        """In a thread of its own."""
        before = _on_processor()
        work()
        with self._lock:
            self._held += _on_processor() - before

    def share(self, seconds: float, threads: int) -> float:
        return self._held / max(seconds * min(threads, os.cpu_count() or 1), 1e-9)


def _on_processor() -> float:
    """Seconds that this thread ran or waited for its turn."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            ran, waited, _ = file.read().split()
        return (int(ran) + int(waited)) / 1e9
    except (OSError, ValueError):
        return time.thread_time()


def offer(address: str) -> Tuple[Dict[str, Any], Callable[[], Dict[str, float]]]:
    """Port and token for one measurement, and what waits for it: the sender's ``busy`` share.

    Raises OSError.
    """
    listener = socket.create_server(
        (address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET
    )
    listener.settimeout(ANSWER)
    token = os.urandom(16).hex()

    def serve() -> Dict[str, float]:
        with listener:
            return _send_all(listener, token.encode())

    return {"port": listener.getsockname()[1], "token": token}, serve


def _send_all(listener: socket.socket, token: bytes) -> Dict[str, float]:
    busy, threads = Busy(), []
    data = bytes(1 << 20)
    began = time.monotonic()

    def send(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(ANSWER)
            if hmac.compare_digest(connection.recv(len(token), socket.MSG_WAITALL), token):
                while time.monotonic() < began + 4 * ANSWER:
                    connection.sendall(data)

    for _ in range(STREAMS):
        connection, _peer = listener.accept()
        threads.append(threading.Thread(target=busy.run, args=(partial(send, connection),), daemon=True))
        threads[-1].start()
    began = time.monotonic()
    for thread in threads:
        thread.join(4 * ANSWER)
    return {"busy": busy.share(time.monotonic() - began, STREAMS)}


def measure(address: str, port: int, token: str) -> Tuple[float, float]:
    """Bytes a second from a node that offers, and our own busy share. Raises OSError."""
    connections: List[socket.socket] = []
    counts = [0] * STREAMS
    busy = Busy()
    try:
        for _ in range(STREAMS):
            connections.append(socket.create_connection((address, port), ANSWER))
            connections[-1].sendall(token.encode())
        began = time.monotonic()

        def receive(number: int) -> None:
            scratch = bytearray(1 << 20)
            with suppress(OSError):
                while time.monotonic() < began + SECONDS:  # MSG_TRUNC: thrown away where it arrives
                    count = connections[number].recv_into(scratch, len(scratch), socket.MSG_TRUNC)
                    if not count:
                        return
                    counts[number] += count

        threads = [
            threading.Thread(target=busy.run, args=(lambda n=number: receive(n),))
            for number in range(STREAMS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - began
    finally:
        for connection in connections:
            connection.close()
    return sum(counts) / took, busy.share(took, STREAMS)


def look(
    source: Mapping[str, Any], command: Optional[List[str]], url: str, headers: Mapping[str, str]
) -> str:
    """What is wrong with the link to a source, or that it can't be told, in words; empty when all is well, or
    when the source does not say.

    A figure that tells of no healthy link is doubted: what stood in the way may be over in a moment.
    """
    speed = int(source.get("speed") or 0)
    address = str(source.get("address") or "")
    if not speed or not address:
        return ""
    found: List[Tuple[float, float]] = []
    while len(found) < TRIES:
        if found:
            time.sleep(PAUSE)
        measured = _try_once(address, command, url, headers)
        if measured is None:
            break
        found.append(measured)
        if is_healthy(speed, measured[0]):
            return ""
    return verdict(address, speed, found)


def _try_once(
    address: str, command: Optional[List[str]], url: str, headers: Mapping[str, str]
) -> Optional[Tuple[float, float]]:
    """Bytes a second, and the larger busy share of both ends; None when the source does not take part."""
    client = Client(command)
    try:
        response = client.request(url, headers)
        if response.status != 200:
            response.read()
            return None
        offered = json.loads(response.readline())
        rate, busy = measure(address, int(offered["port"]), str(offered["token"]))
        theirs = float(json.loads(response.readline())["busy"])
        response.read()
        return rate, max(busy, theirs)
    except (OSError, HTTPException, RetryError, ValueError, KeyError, TypeError):
        return None
    finally:
        client.close()


def is_healthy(speed: int, rate: float) -> bool:
    """``speed``: of the link, in Mb/s; ``rate`` in bytes a second."""
    return rate * 8 / 1e6 >= speed * HEALTHY


def verdict(address: str, speed: int, found: Sequence[Tuple[float, float]]) -> str:
    """In words, of the rates and busy shares that were found; the best rate counts. Empty: it is healthy."""
    rate = max((rate for rate, _ in found), default=0.0)
    if not found or is_healthy(speed, rate):
        return ""
    told = "%.1f of %d Gb/s" % (rate * 8 / 1e9, speed // 1000)
    if all(busy >= BUSY for _, busy in found):
        return (
            "whether the link to %s is degraded is unknown: the processors are busy, and %s went through "
            "in the best of %d tries" % (address, told, len(found))
        )
    return (
        "the link to %s carries %s: degraded. Plug the cable in again at both ends, "
        "then look at sparkop doctor" % (address, told)
    )
