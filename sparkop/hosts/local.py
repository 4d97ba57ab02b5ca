"""The machine that runs sparkop, as a node: no SSH."""

from __future__ import annotations

import socket
import subprocess
import sys

from sparkop.errors import UnreachableError
from sparkop.hosts.base import LOOPBACK
from sparkop.hosts.channels import SocketLike
from sparkop.hosts.machine import Machine
from sparkop.hosts.programs import PYTHON_OPTIONS, Program
from sparkop.node.wire import DOCKER_SOCKET


class LocalHost(Machine):
    """The same programs and protocols as over SSH, by this Python."""

    def run_program(
        self,
        program: Program,
        request: bytes,
        nonce: str,  # noqa: ARG002 (it runs to its end)
        timeout: float,
    ) -> tuple[bytes, bytes]:
        command = [sys.executable, *PYTHON_OPTIONS, "-c", program.statement]
        try:
            done = subprocess.run(
                command, input=program.source + request, capture_output=True, timeout=timeout
            )
        except subprocess.TimeoutExpired as error:
            raise UnreachableError(
                "The node's program did not end in time.", node=self.name, cause=f"no answer in {timeout:g} s"
            ) from error
        return done.stdout, done.stderr

    def dial_port(self, port: int, timeout: float, address: str = LOOPBACK) -> SocketLike:
        return socket.create_connection((address, port), timeout)

    def dial_docker(self, timeout: float) -> SocketLike:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout)
        try:
            connection.connect(DOCKER_SOCKET)
        except OSError:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Nothing is held open."""
