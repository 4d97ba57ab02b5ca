"""What the real hosts share: all but how a program is run and a stream is opened."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sparkop.errors import UnreachableError
from sparkop.hosts.base import LOOPBACK, VERSION, Fence, HttpResponse, Json
from sparkop.hosts.channels import SocketLike
from sparkop.hosts.docker_engine import EngineContainers
from sparkop.hosts.programs import (
    Program,
    act_program,
    new_nonce,
    parse_answer,
    probe_program,
    probed_document,
    raise_act_error,
)
from sparkop.hosts.streams import Stream


class Machine(ABC):
    """A real node. Threads may share it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._containers = EngineContainers(self)

    @property
    def name(self) -> str:
        return self._name

    @property
    def containers(self) -> EngineContainers:
        return self._containers

    @abstractmethod
    def run_program(
        self, program: Program, request: bytes, nonce: str, timeout: float
    ) -> tuple[bytes, bytes]:
        """Run a program of `sparkop.node` with the request on standard input; what it wrote to stdout and
        stderr, at least until the end of its answer. Raises UnreachableError."""

    @abstractmethod
    def dial_port(self, port: int, timeout: float, address: str = LOOPBACK) -> SocketLike:
        """A stream to a TCP port of the node, by one of its own addresses. Raises OSError when nothing
        listens there."""

    @abstractmethod
    def dial_docker(self, timeout: float) -> SocketLike:
        """A stream to the node's Docker socket. Raises OSError when no engine answers."""

    @abstractmethod
    def close(self) -> None:
        """End the connections."""

    def probe(self, request: Mapping[str, Json], *, timeout: float = 30.0) -> dict[str, Json]:
        nonce = new_nonce()
        asked = json.dumps({"version": VERSION, **request, "nonce": nonce}).encode() + b"\n"
        output, said = self.run_program(probe_program(), asked, nonce, timeout)
        return probed_document(output, nonce, node=self.name, said=said)

    def act(
        self, action: str, arguments: Mapping[str, Json], fence: Fence, *, timeout: float = 60.0
    ) -> dict[str, Json]:
        nonce = new_nonce()
        request = {
            "version": VERSION,
            "nonce": nonce,
            "action": action,
            "arguments": dict(arguments),
            "fence": asdict(fence),
            "timeout": timeout,
        }
        text = json.dumps(request).encode() + b"\n"
        output, said = self.run_program(act_program(), text, nonce, timeout + 5)
        answer = parse_answer(output, nonce, node=self.name, said=said)
        raise_act_error(answer, node=self.name)
        result: dict[str, Any] = answer["result"]
        return result

    def read_file(self, path: str) -> bytes | None:
        document = self.probe({"sections": ["contents"], "contents": [path]})
        found: Mapping[str, str | None] = document.get("contents") or {}
        if path not in found:
            reason = document["errors"].get(f"contents:{path}") or document["errors"].get("contents")
            if reason and reason.startswith("PermissionError"):
                raise PermissionError(f"{self.name}: {reason}")
            raise UnreachableError(f"{path} can't be read.", node=self.name, cause=reason)
        content = found[path]
        return None if content is None else b64decode(content)

    def http(
        self,
        method: str,
        port: int,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout: float = 30.0,
        address: str = LOOPBACK,
    ) -> HttpResponse:
        from sparkop.hosts import http  # here: a cold diff asks no service while no rank runs

        return http.request(lambda t: self.dial_port(port, t, address), method, path, headers, body, timeout)

    def log_lines(self, container: str, *, tail: int, follow: bool = False) -> Stream[str]:
        lines = self._containers.logs(container, tail=tail, follow=follow)
        return lines.map(lambda line: line.decode("utf-8", "replace"))
