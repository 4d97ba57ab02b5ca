"""What the rest of sparkop may ask of a node. SSH, the local machine and the simulation implement it.

Reading and writing are two protocols, so that ``diff`` can be given hosts that can't write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from sparkop.hosts.streams import Stream
from sparkop.records import dataclass

Json = Any
"""A JSON value."""

VERSION = 1
"""Version of request and document. The programs travel with every sparkop, so both sides have the same."""

LOOPBACK = "127.0.0.1"
"""Where a node reaches its own services, unless they listen on one other address only."""


@dataclass(frozen=True)
class Fence:
    """Proof that the writer holds the lease. Every mutating step is refused by the node when it is stale."""

    cluster: str
    holder: str
    token: int
    directory: str
    """State directory of the cluster on the node, as in the spec (``~`` is expanded there)."""


@dataclass(frozen=True)
class ContainerSpec:
    """A container to create, in the words of ``docker run``."""

    name: str
    image: str
    labels: Mapping[str, str]
    arguments: Sequence[str] = ()
    entrypoint: Sequence[str] | None = None
    """None keeps the image's own."""
    environment: Mapping[str, str] | None = None
    mounts: Sequence[Mount] = ()
    options: ContainerOptions | None = None

    @property
    def restart_policy(self) -> str:
        """Docker's; it starts what ends by itself again unless this is ``no``."""
        return self.options.restart if self.options else "no"


@dataclass(frozen=True)
class Mount:
    """A bind mount. ``source`` may start with ``~`` (the node's home)."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True)
class ContainerOptions:
    """Settings of a container beside what it runs. Sizes in bytes; -1 in a limit is unlimited."""

    network: str = "host"
    ipc: str | None = None
    pid: str | None = None
    privileged: bool = False
    gpus: bool = False
    shm_bytes: int | None = None
    memory_bytes: int | None = None
    ulimits: Mapping[str, int] | None = None
    devices: Sequence[str] = ()
    capabilities: Sequence[str] = ()
    cpuset: str | None = None
    restart: str = "no"
    init: bool = False
    read_only_root: bool = False
    oom_score_adj: int | None = None
    security: Sequence[str] | None = None
    """``--security-opt`` of ``docker run``."""


class Containers(Protocol):
    """The node's Docker engine, for writing and for streams; what is observed comes from the probe.

    Every call raises BlockedError when the engine refuses, UnreachableError when it does not answer or the
    reply is lost; writes raise LeaseHeldError when the fence is stale. Each writing step is checked against
    the lease on the node, under its lock; a pull and a build are checked once, at their beginning.
    """

    def run(self, spec: ContainerSpec, fence: Fence) -> str:
        """Create and start; returns the id. A container of that name with the same labels is success."""
        ...

    def remove(self, name: str, fence: Fence, *, grace: float) -> None:
        """Stop (SIGTERM, ``grace`` seconds, SIGKILL) and remove; absent is success."""
        ...

    def kill(self, name: str, fence: Fence) -> None:
        """SIGKILL; absent or stopped is success."""
        ...

    def pull(self, reference: str, fence: Fence) -> Iterator[Json]:
        """Pull; yields the engine's progress objects (``status``, ``id``, ``progressDetail``).

        Must be read to its end: an iterator that is dropped breaks the pull off.
        """
        ...

    def build(
        self,
        context: bytes,
        tag: str,
        *,
        arguments: Mapping[str, str],
        labels: Mapping[str, str],
        fence: Fence,
    ) -> Iterator[Json]:
        """Build an image of ``context``, a tar file with a Dockerfile, by the engine's classic builder.

        Yields the engine's objects: ``stream`` with output, and ``error`` last when a step failed. Must be
        read to its end, as ``pull``.
        """
        ...

    def logs(self, name: str, *, tail: int, follow: bool = False) -> Stream[bytes]:
        """Lines of stdout and stderr, oldest first."""
        ...

    def events(self, filters: Mapping[str, Sequence[str]]) -> Stream[Json]:
        """Docker events; ends silently when the engine goes away."""
        ...


class HttpResponse(Protocol):
    """An answer of an HTTP service of the node."""

    status: int

    def read(self) -> bytes: ...

    def lines(self) -> Iterator[bytes]:
        """Lines of the body as they arrive."""
        ...

    def close(self) -> None: ...


class ReadableHost(Protocol):
    """A node, for reading only."""

    @property
    def name(self) -> str: ...

    def probe(self, request: Mapping[str, Json], *, timeout: float = 30.0) -> dict[str, Json]:
        """Everything observed, in one round trip, as one JSON document (see node/probe.py).

        Raises UnreachableError when the node does not answer, or its answer is no whole document of this
        request.
        """
        ...

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
        """A request to a service of the node, by one of the node's own addresses. Raises OSError when nothing
        listens there.

        ``timeout`` is for the connection, the answer's head, and each read of its body.
        """
        ...

    def read_file(self, path: str) -> bytes | None:
        """A file of the node; None when it does not exist. Raises PermissionError."""
        ...

    def log_lines(self, container: str, *, tail: int, follow: bool = False) -> Stream[str]:
        """The container's log lines, oldest first.

        Raises BlockedError when there is no such container, UnreachableError.
        """
        ...

    def close(self) -> None: ...


class Host(ReadableHost, Protocol):
    """A node, for reading and writing. Every write carries the fence."""

    def act(
        self,
        action: str,
        arguments: Mapping[str, Json],
        fence: Fence,
        *,
        timeout: float = 60.0,
    ) -> dict[str, Json]:
        """One effect by the node's own program (node/act.py), under the node's fence lock.

        Raises LeaseHeldError when the fence is stale, UnreachableError when the reply is lost (the effect
        may have happened: every action is safe to repeat).
        """
        ...

    @property
    def containers(self) -> Containers: ...
