"""A Docker engine on a socket, as far as the memory guard asks it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote


@dataclass
class Engine:
    """A Docker engine on a socket: lists ranks, tells their pid, takes kills; ``frozen`` does not answer;
    ``says``: what it answers instead, as when it ends with a request open."""

    path: Path
    ranks: list[dict[str, object]] = field(default_factory=list)
    pid: int = 0
    frozen: bool = False
    says: bytes | None = None
    asked: list[str] = field(default_factory=list)

    def answer(self, request: str) -> bytes:
        method, path = request.split(" ")[:2]
        self.asked.append(f"{method} {unquote(path)}")
        if method == "POST":
            return b"HTTP/1.0 204 No Content\r\n\r\n"
        listing = path.startswith("/containers/json")
        body = json.dumps(self.ranks if listing else {"State": {"Pid": self.pid}})
        return b"HTTP/1.0 200 OK\r\n\r\n" + body.encode()

    @property
    def kills(self) -> list[str]:
        return [line for line in self.asked if line.startswith("POST")]


@contextmanager
def docker(folder: Path) -> Iterator[Engine]:
    """A running one with one rank."""
    made = Engine(folder / "docker.sock")
    made.ranks = [{"Id": "abc", "Names": ["/x-r0"], "Labels": {"sparkop.hash": "v1:77"}}]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(made.path))
        listener.listen()
        kept = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                if made.frozen:
                    kept.append(connection)
                    continue
                with connection:
                    if made.says is not None:
                        connection.recv(65536)
                        connection.sendall(made.says)
                        continue
                    connection.sendall(made.answer(connection.recv(65536).decode()))

        threading.Thread(target=serve, daemon=True).start()
        yield made
        listener.shutdown(socket.SHUT_RDWR)
