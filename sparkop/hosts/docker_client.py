"""The Docker SDK over streams that a node opens: each pooled HTTP connection is one of them."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import docker
import requests
import requests.adapters
import urllib3
import urllib3.connection
from docker.transport.basehttpadapter import BaseHTTPAdapter
from docker.utils.build import exclude_paths

from sparkop.hosts.channels import ChannelSocket
from sparkop.hosts.http import Dial

BASE = "http+docker://node"
POOL = 8


class _Connection(urllib3.connection.HTTPConnection):
    def __init__(self, dial: Dial, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._open = dial
        self._seconds = timeout

    def connect(self) -> None:
        try:
            stream = self._open(self._seconds)
        except OSError as error:
            raise urllib3.exceptions.NewConnectionError(self, str(error)) from error
        stream.settimeout(self._seconds)
        self.sock = stream


class _Pool(urllib3.connectionpool.HTTPConnectionPool):
    def __init__(self, dial: Dial, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout, maxsize=POOL)
        self._stream = (dial, timeout)

    def _new_conn(self) -> Any:
        return _Connection(*self._stream)

    def _get_conn(self, timeout: float | None = None) -> Any:  # noqa: ARG002 (urllib3's signature)
        """A stream that is still open (urllib3's own check wants a file descriptor of each)."""
        while True:
            try:
                connection = self.pool.get(block=False)  # type: ignore[union-attr]
            except queue.Empty:
                return self._new_conn()
            stream: Any = connection.sock if connection is not None else None
            if stream is None:
                return self._new_conn()
            if isinstance(stream, ChannelSocket) and not stream.dead:
                return connection
            connection.close()


class _Adapter(BaseHTTPAdapter):
    __attrs__ = (*requests.adapters.HTTPAdapter.__attrs__, "_pool")

    def __init__(self, dial: Dial, timeout: float) -> None:
        self._pool = _Pool(dial, timeout)
        super().__init__()

    def get_connection(self, url: Any, proxies: Any = None) -> Any:  # noqa: ARG002 (the SDK's signature)
        return self._pool

    def request_url(self, request: Any, proxies: Any) -> Any:  # noqa: ARG002
        return request.path_url

    def close(self) -> None:
        super().close()
        self._pool.close()


def connect(dial: Dial, timeout: float) -> docker.APIClient:
    """A client whose every connection is a stream of the node. ``timeout``: seconds for one answer.

    Raises docker.errors.DockerException when the engine does not answer.
    """
    client: Any = docker.APIClient(
        base_url="unix:///nowhere", version="1.44", timeout=int(timeout)
    )  # not used yet
    adapter = _Adapter(dial, timeout)
    client.mount(BASE, adapter)
    client.base_url = BASE
    client._custom_adapter = adapter
    client._version = client._retrieve_server_version()
    return client  # type: ignore[no-any-return]


def sent_of(folder: Path, ignored: Sequence[str]) -> set[str]:
    """What Docker's client sends of a build context, relative to it: all but what ``.dockerignore`` names."""
    return set(exclude_paths(str(folder), list(ignored)))
