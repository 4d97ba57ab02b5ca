"""Hosts for nodes. SSH is imported only when a node needs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, overload

from sparkop.hosts.base import LOOPBACK, Host, HttpResponse, Json, ReadableHost
from sparkop.hosts.ssh_options import Target
from sparkop.hosts.streams import Stream

__all__ = ["ReadOnlyHost", "Target", "close_all", "connect"]


class ReadOnlyHost:
    """A host without its writing half: there is no method that could change the node."""

    def __init__(self, host: ReadableHost) -> None:
        self.__host = host

    @property
    def name(self) -> str:
        return self.__host.name

    def probe(self, request: Mapping[str, Json], *, timeout: float = 30.0) -> dict[str, Json]:
        return self.__host.probe(request, timeout=timeout)

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
        return self.__host.http(
            method, port, path, headers=headers, body=body, timeout=timeout, address=address
        )

    def read_file(self, path: str) -> bytes | None:
        return self.__host.read_file(path)

    def log_lines(self, container: str, *, tail: int, follow: bool = False) -> Stream[str]:
        return self.__host.log_lines(container, tail=tail, follow=follow)

    def close(self) -> None:
        self.__host.close()


@overload
def connect(target: Target, *, writable: Literal[True]) -> Host: ...
@overload
def connect(target: Target, *, writable: Literal[False]) -> ReadableHost: ...
def connect(target: Target, *, writable: bool) -> ReadableHost:
    """The host of a node. A remote one begins to connect beside the caller: the first use waits for that and
    gets its failure."""
    host: Host
    if target.local:
        from sparkop.hosts.local import LocalHost

        host = LocalHost(target.name)
    else:
        from sparkop.hosts.ssh import SshHost

        host = remote = SshHost(target)
        remote.open_ahead()
    return host if writable else ReadOnlyHost(host)


def close_all(hosts: Iterable[ReadableHost]) -> None:
    """Close every host."""
    for host in hosts:
        host.close()
