"""What is asked of Docker for a container, and the one place where paramiko's private names are used."""

from __future__ import annotations

import http.client
import inspect
import re
import socket
from collections.abc import Iterator
from typing import Any

import docker
import docker.errors
import paramiko
import pytest
import requests
import urllib3

from sparkop.errors import UnreachableError
from sparkop.hosts import channels
from sparkop.hosts.base import ContainerOptions, ContainerSpec, Mount
from sparkop.hosts.docker_engine import EngineContainers, create_body
from sparkop.hosts.streams import lines_of


def test_everything_that_is_set_is_asked_for() -> None:
    spec = ContainerSpec(
        name="r0",
        image="i@sha256:1",
        labels={"sparkop.rank": "0"},
        arguments=("--model", "/m"),
        entrypoint=(),
        environment={"A": "1=2"},
        mounts=(Mount("~/w", "/w", read_only=True),),
        options=ContainerOptions(
            ipc="host",
            pid="host",
            privileged=True,
            gpus=True,
            shm_bytes=1 << 30,
            memory_bytes=1 << 33,
            ulimits={"memlock": -1},
            devices=("/dev/infiniband", "/dev/a:/dev/b:r"),
            capabilities=("IPC_LOCK",),
            cpuset="0-9",
            restart="unless-stopped",
            init=True,
            read_only_root=True,
            oom_score_adj=-900,
            security=("apparmor=unconfined",),
        ),
    )
    assert create_body(spec) == {
        "Image": "i@sha256:1",
        "Labels": {"sparkop.rank": "0"},
        "Cmd": ["--model", "/m"],
        "Entrypoint": [],
        "Env": ["A=1=2"],
        "HostConfig": {
            "NetworkMode": "host",
            "IpcMode": "host",
            "PidMode": "host",
            "Privileged": True,
            "ShmSize": 1 << 30,
            "Memory": 1 << 33,
            "CpusetCpus": "0-9",
            "Init": True,
            "ReadonlyRootfs": True,
            "OomScoreAdj": -900,
            "SecurityOpt": ["apparmor=unconfined"],
            "CapAdd": ["IPC_LOCK"],
            "RestartPolicy": {"Name": "unless-stopped"},
            "Ulimits": [{"Name": "memlock", "Soft": -1, "Hard": -1}],
            "Devices": [
                {
                    "PathOnHost": "/dev/infiniband",
                    "PathInContainer": "/dev/infiniband",
                    "CgroupPermissions": "rwm",
                },
                {"PathOnHost": "/dev/a", "PathInContainer": "/dev/b", "CgroupPermissions": "r"},
            ],
            "Mounts": [{"Type": "bind", "Source": "~/w", "Target": "/w", "ReadOnly": True}],
            "DeviceRequests": [{"Count": -1, "Capabilities": [["gpu"]]}],
        },
    }


def test_what_is_not_set_is_left_to_docker() -> None:
    body = create_body(ContainerSpec("r0", "i", {}))
    assert "Entrypoint" not in body  # the image's own
    assert body["Cmd"] is None
    assert body["HostConfig"] == {"NetworkMode": "host", "RestartPolicy": {"Name": "no"}}


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    error.__cause__ = cause
    return error


CUT = urllib3.exceptions.ProtocolError(
    "Connection broken: IncompleteRead(0 bytes read)", http.client.IncompleteRead(b"")
)


def nobody(cause: OSError | None = None) -> Any:
    text = "[Errno 111] Connection refused"
    return raised(urllib3.exceptions.NewConnectionError(None, text), cause)  # type: ignore[arg-type]


POOL = urllib3.HTTPConnectionPool("localhost")
NEVER = urllib3.exceptions.ReadTimeoutError(POOL, "/build", "Read timed out. (read timeout=60)")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (CUT, "ended in the middle"),
        (requests.exceptions.ChunkedEncodingError(CUT), "ended in the middle"),
        (
            requests.ConnectionError(("Connection aborted.", ConnectionResetError(104, "reset"))),
            "ended in the",
        ),
        (
            requests.ConnectionError(urllib3.exceptions.MaxRetryError(POOL, "/build", nobody())),
            "none to its socket was taken; sudo systemctl start docker",
        ),
        (
            nobody(ConnectionRefusedError(111, "Connection refused")),
            "Connection refused; sudo systemctl start docker",
        ),
        (
            nobody(FileNotFoundError(2, "No such file or directory")),
            "there is no /var/run/docker.sock; sudo systemctl start docker",
        ),
        (
            nobody(ConnectionRefusedError("No such file or directory")),  # by the relay
            "there is no /var/run/docker.sock; sudo systemctl start docker",
        ),
        (
            nobody(PermissionError(13, "Permission denied")),
            "Permission denied; sudo usermod -aG docker $USER",
        ),
        (nobody(ConnectionError("The node does not answer. no route")), "The node does not answer. no route"),
        (requests.ReadTimeout(NEVER), "silent for too long; sudo systemctl restart docker"),
        (TimeoutError("timed out"), "silent for too long; sudo systemctl restart docker"),
        (
            raised(docker.errors.DockerException(f"Error while fetching server API version: {CUT}"), CUT),
            "ended in the middle",
        ),
        (OSError(113, "No route to host"), "No route to host"),
        (docker.errors.DockerException("it is too old"), "it is too old"),
    ],
)
def test_what_the_libraries_raise_is_told_in_words(error: BaseException, words: str) -> None:
    """Whatever wraps whatever: a person reads what happened, and what to do."""

    class Away:
        name = "spark-1"

        def act(self, *_: object, **__: object) -> dict[str, object]:
            return {}

        def dial_docker(self, timeout: float) -> Any:
            raise error

    containers = EngineContainers(Away())
    containers._client = Raises(error)  # type: ignore[assignment]
    with pytest.raises(UnreachableError) as caught:
        list(containers.build(b"", "t", arguments={}, labels={}, fence=None))  # type: ignore[arg-type]
    cause = caught.value.cause or ""
    assert words in f"{cause}; {caught.value.remedy}"
    assert not re.search(r"[('\[]|\bErrno|[a-z]Error\b|IncompleteRead|0x", cause)
    assert "then the same command again" in (caught.value.remedy or "")
    assert caught.value.node == "spark-1"


class Raises:
    """The SDK's client, whose build ends like that."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def build(self, **_: object) -> Iterator[Any]:
        yield {"stream": "Step 1/2"}
        raise self._error


def test_an_engine_that_is_killed_in_the_middle_of_a_build_is_told_in_words() -> None:
    """The real client on a real socket that ends in the middle of an answer."""
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    version = '{"ApiVersion": "1.44"}'
    answers = [
        f"{head}Content-Length: {len(version)}\r\nConnection: close\r\n\r\n{version}",
        f'{head}Transfer-Encoding: chunked\r\n\r\n15\r\n{{"stream": "Step 1"}}\r\n\r\n',
    ]

    class Killed:
        name = "spark-1"

        def act(self, *_: object, **__: object) -> dict[str, object]:
            return {}

        def dial_docker(self, timeout: float) -> Any:
            ours, theirs = socket.socketpair()
            theirs.sendall(answers.pop(0).encode())
            theirs.shutdown(socket.SHUT_WR)
            ends.append(theirs)
            return ours

    ends: list[socket.socket] = []
    building = EngineContainers(Killed()).build(b"", "t", arguments={}, labels={}, fence=None)  # type: ignore[arg-type]
    with pytest.raises(UnreachableError) as caught:
        list(building)
    for end in ends:
        end.close()
    assert not answers
    assert "ended in the middle of its answer" in (caught.value.cause or "")


@pytest.mark.parametrize(
    ("parts", "lines"),
    [
        ([], []),
        ([b"a\nb"], [b"a", b"b"]),
        ([b"a", b"b\r\n", b"\n"], [b"ab", b""]),
        ([b"a\r", b"\nb\n"], [b"a", b"b"]),
    ],
)
def test_lines_of_parts(parts: list[bytes], lines: list[bytes]) -> None:
    assert list(lines_of(iter(parts))) == lines


def test_the_private_names_of_paramiko_are_still_those_of_its_own_open_channel() -> None:
    """open_streamlocal repeats Transport.open_channel: one that does it otherwise must be looked at."""
    ours = inspect.getsource(channels.open_streamlocal)
    theirs = inspect.getsource(paramiko.Transport.open_channel)
    used = set(re.findall(r"transport\.(_\w+|channel_events|channels_seen|lock|active)", ours))
    assert "_channels" in used
    assert used <= set(re.findall(r"self\.(\w+)", theirs))
    assert set(re.findall(r"channel\.(_\w+)", ours)) <= set(re.findall(r"chan\.(_\w+)", theirs))
