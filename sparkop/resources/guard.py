"""The container of the memory guard, as it should be on a node. Pure; ``memguard`` is the resource."""

from __future__ import annotations

from dataclasses import replace

from sparkop.engines.common import image_reference
from sparkop.hosts.base import ContainerOptions, ContainerSpec, Mount
from sparkop.resources.labels import ROLE_GUARD, common
from sparkop.resources.stamped import hash_of, text_of
from sparkop.spec.hashing import desired_hash
from sparkop.spec.models import ClusterSpec

PROGRAM = "memguard.py"
"""Name of the program in the state folder."""


def guard_name(cluster: str) -> str:
    """Name of the guard's container."""
    return f"{cluster}-memguard"


def guard_container(spec: ClusterSpec, state: str) -> ContainerSpec | None:
    """The guard of a node, labelled; None when the spec wants none. ``state``: absolute state folder.

    It runs from the engine's image (which is there anyway and has Python), reads the node's own meminfo and
    asks the node's Docker engine to kill, so that it depends on no connection and on no controller. It has
    no network. Docker starts it again after a reboot, before anyone asks for ranks.
    """
    guard = spec.memory.guard
    if not guard.enabled:
        return None
    container = ContainerSpec(
        name=guard_name(spec.name),
        image=image_reference(spec),
        labels={},
        entrypoint=("python3", "-u", f"/sparkop/{PROGRAM}"),
        arguments=(
            "--cluster",
            spec.name,
            "--floor",
            str(int(guard.action_floor)),
            "--soft-floor",
            str(int(guard.soft_floor)),
            "--interval",
            f"{float(guard.interval):g}",
        ),
        mounts=(
            Mount(f"{state}/{PROGRAM}", f"/sparkop/{PROGRAM}", read_only=True),
            Mount(state, "/state"),
            Mount("/proc/meminfo", "/host/meminfo", read_only=True),
            Mount("/var/run/docker.sock", "/var/run/docker.sock"),
        ),
        options=ContainerOptions(network="none", restart="unless-stopped", oom_score_adj=-900),
    )
    labels = common(spec.name, ROLE_GUARD, hash_of(container), text_of(container), desired_hash(spec))
    return replace(container, labels=labels)
