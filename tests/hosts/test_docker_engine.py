"""What is asked of Docker for a container, and the one place where paramiko's private names are used."""

from __future__ import annotations

import inspect
import re

import paramiko
import pytest

from sparkop.hosts import channels
from sparkop.hosts.base import ContainerOptions, ContainerSpec, Mount
from sparkop.hosts.docker_engine import create_body
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
