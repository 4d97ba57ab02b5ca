"""Hosts for nodes. SSH is imported only when a node needs it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Literal, overload

from sparkop.hosts.base import LOOPBACK, Host, HttpResponse, Json, ReadableHost
from sparkop.hosts.ssh_options import Target
from sparkop.hosts.streams import Stream
from sparkop.hosts.way import Way, find_way
from sparkop.threads import Later

__all__ = ["ReadOnlyHost", "Target", "close_all", "connect_all"]


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
def connect_all(targets: Sequence[Target], *, writable: Literal[True]) -> Mapping[str, Host]: ...
@overload
def connect_all(targets: Sequence[Target], *, writable: Literal[False]) -> Mapping[str, ReadableHost]: ...
def connect_all(targets: Sequence[Target], *, writable: bool) -> Mapping[str, ReadableHost]:
    """The hosts of nodes, by name. Remote ones begin to connect beside the caller: the first use of one waits
    for that and gets its failure."""
    ways = {
        target.name: Later(partial(find_way, target), f"way to {target.name}")
        for target in targets
        if not target.local
    }
    hosts = {target.name: _host(target, ways.get(target.name)) for target in targets}
    return hosts if writable else {name: ReadOnlyHost(host) for name, host in hosts.items()}


def _host(target: Target, way: Later[Way] | None) -> Host:
    if way is None:
        from sparkop.hosts.local import LocalHost

        return LocalHost(target.name)
    with _without_spare_parts():
        from sparkop.hosts.ssh import SshHost
    host = SshHost(target)
    host.open_ahead(way)
    return host


@contextmanager
def _without_spare_parts() -> Iterator[None]:
    """Fabric's invoke imports what is never used here: unittest.mock, and so asyncio, for its users' tests,
    and two YAML libraries for files of settings that ``Config(lazy=True)`` does not read. They are 90
    modules, an eighth of a cold diff. Meanwhile empty modules stand in for them."""
    stand_ins = {name: ModuleType(name) for name in ("unittest.mock", "invoke.vendor.yaml")}
    if "invoke" in sys.modules or stand_ins.keys() & sys.modules.keys():
        yield
        return
    stand_ins["unittest.mock"].Mock = object  # type: ignore[attr-defined]
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name in stand_ins:
            del sys.modules[name]


def close_all(hosts: Iterable[ReadableHost]) -> None:
    """Close every host."""
    for host in hosts:
        host.close()
