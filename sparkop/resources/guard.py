"""The container of the memory guard, as it should be on a node. Pure; ``memguard`` is the resource."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache

from sparkop.engines.common import image_reference
from sparkop.hosts.base import ContainerOptions, ContainerSpec, Mount
from sparkop.resources.bundle import bundle
from sparkop.resources.labels import ROLE_GUARD, common
from sparkop.resources.stamped import hash_of, text_of
from sparkop.spec.hashing import desired_hash
from sparkop.spec.models import ClusterSpec


@cache
def program() -> bytes:
    """The guard's program, as this sparkop ships it: a zip file that Python runs."""
    return bundle("memguard")


@cache
def program_file() -> str:
    """Its name in the state folder. Another program has another name, so that a guard that still runs the
    old one differs in its container's mounts, and is replaced."""
    return f"memguard-{hashlib.sha256(program()).hexdigest()[:12]}.pyz"


def guard_name(cluster: str) -> str:
    """Name of the guard's container."""
    return f"{cluster}-memguard"


def guard_container(spec: ClusterSpec, state: str, weights: str) -> ContainerSpec | None:
    """The guard of a node, labelled; None when the spec wants none. ``state``, ``weights``: absolute folders.

    It runs from the engine's image (which is there anyway and has Python). What it is given, and why:

    * the host's pid namespace: it holds process 1 of each rank by a pidfd, and kills without Docker
    * IPC_LOCK and no memlock limit: none of its pages is ever waited for
    * SYS_NICE: realtime priority, so that it looks on time also when every core is busy
    * an OOM score of -900: the kernel's own killer takes others first
    * Docker's socket: to know which containers are ranks, and to kill where the kernel does not let it
    * the checkpoint, read-only: to give its page cache back while a rank loads
    * no network, no GPU, no devices; its root file system is read-only

    Docker starts it again after a reboot and after its own failures, before anyone asks for ranks.
    """
    guard = spec.memory.guard
    if not guard.enabled:
        return None
    file = program_file()
    container = ContainerSpec(
        name=guard_name(spec.name),
        image=image_reference(spec),
        labels={},
        entrypoint=("python3", "-I", "-S", "-u", f"/sparkop/{file}"),
        arguments=(
            "--cluster",
            spec.name,
            "--floor",
            str(int(guard.action_floor)),
            "--hard-floor",
            str(int(guard.hard_floor)),
            "--soft-floor",
            str(int(guard.soft_floor)),
            "--interval",
            f"{float(guard.interval):g}",
        ),
        mounts=(
            Mount(f"{state}/{file}", f"/sparkop/{file}", read_only=True),
            Mount(state, "/state"),
            Mount(weights, "/weights", read_only=True),
            Mount("/var/run/docker.sock", "/var/run/docker.sock"),
        ),
        options=ContainerOptions(
            network="none",
            pid="host",
            capabilities=("IPC_LOCK", "SYS_NICE"),
            ulimits={"memlock": -1},
            restart="always",
            read_only_root=True,
            oom_score_adj=-900,
        ),
    )
    labels = common(spec.name, ROLE_GUARD, hash_of(container), text_of(container), desired_hash(spec))
    return replace(container, labels=labels)
