"""A node's Docker engine.

What changes containers runs on the node (node/act.py), under the same lock as the lease, so a writer whose
lease is gone can't. Streams (pull, build, logs, events) come by the Docker SDK over the node's connection.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from sparkop.errors import BlockedError
from sparkop.hosts.base import ContainerOptions, ContainerSpec, Fence, Json
from sparkop.hosts.silent_docker import silent_engine
from sparkop.hosts.streams import Opened, Stream, lines_of
from sparkop.node.wire import describe

if TYPE_CHECKING:
    import docker

    from sparkop.hosts.channels import SocketLike

ANSWER_SECONDS = 60.0
"""The longest that the engine may take for an answer that is no stream."""

BUILD_SECONDS = 900
"""The longest that one step of a build may say nothing."""


class Way(Protocol):
    """What the engine's node gives."""

    @property
    def name(self) -> str: ...

    def act(
        self, action: str, arguments: Mapping[str, Json], fence: Fence, *, timeout: float = 60.0
    ) -> dict[str, Json]: ...

    def dial_docker(self, timeout: float) -> SocketLike: ...


class EngineContainers:
    """`sparkop.hosts.base.Containers` of a real node."""

    def __init__(self, node: Way) -> None:
        self._node = node
        self._client: docker.APIClient | None = None
        self._lock = threading.Lock()

    def run(self, spec: ContainerSpec, fence: Fence) -> str:
        arguments = {"name": spec.name, "config": create_body(spec)}
        return str(self._node.act("container.run", arguments, fence, timeout=120.0)["id"])

    def remove(self, name: str, fence: Fence, *, grace: float) -> None:
        arguments = {"name": name, "grace": grace}
        self._node.act("container.remove", arguments, fence, timeout=grace + 60.0)

    def kill(self, name: str, fence: Fence) -> None:
        self._node.act("container.kill", {"name": name}, fence)

    def pull(self, reference: str, fence: Fence) -> Iterator[Json]:
        self._node.act("lease.check", {}, fence)
        with self._told():
            for progress in self._api().pull(reference, stream=True, decode=True):
                if "error" in progress:
                    raise BlockedError(
                        f"{reference} can't be pulled: {progress['error']}", node=self._node.name
                    )
                yield progress

    def build(
        self,
        context: bytes,
        tag: str,
        *,
        arguments: Mapping[str, str],
        labels: Mapping[str, str],
        fence: Fence,
    ) -> Iterator[Json]:
        self._node.act("lease.check", {}, fence)
        with self._told():
            yield from self._api().build(
                fileobj=io.BytesIO(context),
                custom_context=True,
                tag=tag,
                buildargs=dict(arguments),
                labels=dict(labels),
                rm=True,
                forcerm=True,
                decode=True,
                timeout=BUILD_SECONDS,
            )

    def logs(self, name: str, *, tail: int, follow: bool = False) -> Stream[bytes]:
        def produce(opened: Opened) -> Iterator[bytes]:
            with self._told():
                parts = self._api().logs(name, stream=True, follow=follow, tail=tail)
                opened(parts)
                yield from lines_of(parts)

        return Stream(produce)

    def events(self, filters: Mapping[str, Sequence[str]]) -> Stream[Json]:
        wanted = {key: list(values) for key, values in filters.items()}

        def produce(opened: Opened) -> Iterator[Json]:
            with self._told(ends_silently=True):
                told = self._api().events(filters=wanted, decode=True)
                opened(told)
                yield from told

        return Stream(produce)

    def _api(self) -> docker.APIClient:
        """The SDK's client; made once, its streams are opened as they are needed."""
        from sparkop.hosts.docker_client import connect

        with self._lock:
            if self._client is None:
                self._client = connect(self._node.dial_docker, ANSWER_SECONDS)
            return self._client

    @contextmanager
    def _told(self, *, ends_silently: bool = False) -> Iterator[None]:
        """The SDK's failures as ours."""
        import docker.errors
        import requests
        import urllib3

        try:
            yield
        except docker.errors.APIError as error:
            raise BlockedError(
                f"The node could not do it: Docker: {error.explanation or error}", node=self._node.name
            ) from error
        except (
            docker.errors.DockerException,
            requests.RequestException,
            urllib3.exceptions.HTTPError,
            OSError,
        ) as error:
            if ends_silently:
                return
            raise silent_engine(reason_of(error), node=self._node.name) from error


def reason_of(error: BaseException) -> str:
    """Why the engine did not answer, as a node's programs describe it: what happened to the connection, not
    what the libraries on the way made of it. (They wrap each other's errors, and their texts are tuples and
    addresses of objects.)"""
    import http.client

    import requests
    import urllib3

    chain = _chain(error)
    opening = next((e for e in chain if isinstance(e, urllib3.exceptions.NewConnectionError)), None)
    if opening is not None:
        return describe(opening.__cause__ or ConnectionError("none to its socket was taken"))
    timeouts = (TimeoutError, requests.Timeout, urllib3.exceptions.TimeoutError)
    if any(isinstance(e, timeouts) for e in chain):
        return "TimeoutError: it was silent for too long"
    broken = (
        ConnectionError,
        http.client.HTTPException,
        requests.ConnectionError,
        requests.exceptions.ChunkedEncodingError,
        urllib3.exceptions.ProtocolError,
        EOFError,
    )
    if any(isinstance(e, broken) for e in chain):
        return (
            "ConnectionResetError: the connection ended in the middle of its answer: Docker was stopped or "
            "restarted there, or the node went away"
        )
    return describe(chain[-1]) if str(chain[-1]) else "it gave no reason"


def _chain(error: BaseException) -> list[BaseException]:
    """The error and all that it was made of, the first cause last."""
    found: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        each = waiting.pop(0)
        if isinstance(each, BaseException) and each not in found:
            found.append(each)
            waiting += [*each.args, getattr(each, "reason", None), each.__cause__, each.__context__]
    return found


def create_body(spec: ContainerSpec) -> dict[str, Any]:
    """The container in the words of Docker's API (POST /containers/create)."""
    options = spec.options or ContainerOptions()
    body: dict[str, Any] = {
        "Image": spec.image,
        "Labels": dict(spec.labels),
        "Cmd": list(spec.arguments) or None,
        "Env": [f"{key}={value}" for key, value in (spec.environment or {}).items()],
        "HostConfig": host_config(spec, options),
    }
    if spec.entrypoint is not None:
        body["Entrypoint"] = list(spec.entrypoint)
    return body


def host_config(spec: ContainerSpec, options: ContainerOptions) -> dict[str, Any]:
    """``HostConfig``: only what is set, so that the engine's own defaults stay."""
    settings: dict[str, Any] = {
        "NetworkMode": options.network,
        "IpcMode": options.ipc,
        "PidMode": options.pid,
        "Privileged": options.privileged or None,
        "ShmSize": options.shm_bytes,
        "Memory": options.memory_bytes,
        "CpusetCpus": options.cpuset,
        "Init": options.init or None,
        "ReadonlyRootfs": options.read_only_root or None,
        "OomScoreAdj": options.oom_score_adj,
        "SecurityOpt": list(options.security or ()) or None,
        "CapAdd": list(options.capabilities) or None,
        "RestartPolicy": {"Name": options.restart},
        "Ulimits": [
            {"Name": name, "Soft": limit, "Hard": limit} for name, limit in (options.ulimits or {}).items()
        ]
        or None,
        "Devices": [device(text) for text in options.devices] or None,
        "Mounts": [
            {"Type": "bind", "Source": m.source, "Target": m.target, "ReadOnly": m.read_only}
            for m in spec.mounts
        ]
        or None,
        "DeviceRequests": [{"Count": -1, "Capabilities": [["gpu"]]}] if options.gpus else None,
    }
    return {key: value for key, value in settings.items() if value is not None}


def device(text: str) -> dict[str, str]:
    """``--device`` of docker run: ``host[:container[:permissions]]``."""
    host, _, rest = text.partition(":")
    container, _, permissions = rest.partition(":")
    return {
        "PathOnHost": host,
        "PathInContainer": container or host,
        "CgroupPermissions": permissions or "rwm",
    }
