"""The memory guard as it should be on a node: a container or a unit. Pure; ``memguard`` is the resource."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from functools import cache

from sparkop.engines.common import image_reference
from sparkop.hosts.base import ContainerOptions, ContainerSpec, Mount
from sparkop.resources.bundle import bundle
from sparkop.resources.labels import ROLE_GUARD, common
from sparkop.resources.stamped import hash_of, text_of
from sparkop.spec.models import ClusterSpec

_PROGRAM = re.compile(r"memguard-([0-9a-f]{12})\.pyz")


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


def guard_names(cluster: str) -> tuple[str, str]:
    """Both names that it may have: one that relieves another can't have its name."""
    return guard_name(cluster), f"{guard_name(cluster)}-2"


def program_in(text: str) -> str:
    """Which program a stamped text names, by its hash; empty when it names none."""
    found = _PROGRAM.search(text)
    return found[1] if found else ""


def without_program(text: str) -> str:
    """A stamped text, the same whichever program the guard runs."""
    return _PROGRAM.sub("memguard.pyz", text)


def desired_guard(spec: ClusterSpec, spec_hash: str, state: str, weights: str) -> ContainerSpec | None:
    """The guard of a node, labelled; None when the spec wants none. ``state``, ``weights``: absolute folders.

    As a unit it has no image: the entrypoint's first word is its program, run by the node's own Python.
    """
    if not spec.memory.guard.enabled:
        return None
    made = _unit(spec, state, weights) if spec.memory.guard.as_unit else _container(spec, state, weights)
    labels = common(spec.name, ROLE_GUARD, hash_of(made), text_of(made), spec_hash)
    return replace(made, labels=labels)


def unit_name(spec: ClusterSpec, guard: ContainerSpec) -> str:
    """Another unit has another name, so that the new one runs before the old one is taken away."""
    return f"{guard_name(spec.name)}-{hash_of(guard).partition(':')[2][:12]}"


def _container(spec: ClusterSpec, state: str, weights: str) -> ContainerSpec:
    """It runs from the engine's image (which is there anyway and has Python). What it is given, and why:

    * the host's pid namespace: it holds process 1 of each rank by a pidfd, and kills without Docker
    * IPC_LOCK and no memlock limit: none of its pages is ever waited for
    * SYS_NICE: realtime priority, so that it looks on time also when every core is busy
    * no AppArmor profile: Docker's own lets a container signal only those of the same profile, and a
      privileged rank has none (moby/profiles, apparmor/template.go: ``signal (send,receive) peer=`` itself)
    * an OOM score of -900: the kernel's own killer takes others first
    * Docker's socket: to know which containers are ranks, and to kill where the kernel does not let it
    * the checkpoint, read-only: to give its page cache back while a rank loads
    * no network, no GPU, no devices; its root file system is read-only

    Docker starts it again after a reboot and after its own failures, before anyone asks for ranks.
    """
    file = program_file()
    return ContainerSpec(
        name=guard_name(spec.name),
        image=image_reference(spec),
        labels={},
        entrypoint=("python3", "-I", "-S", "-u", f"/sparkop/{file}"),
        arguments=_arguments(spec),
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
            security=("apparmor=unconfined",),
        ),
    )


def _unit(spec: ClusterSpec, state: str, weights: str) -> ContainerSpec:
    """The same program with the node's own paths."""
    return ContainerSpec(
        name=guard_name(spec.name),
        image="",
        labels={},
        entrypoint=(f"{state}/{program_file()}",),
        arguments=(*_arguments(spec), "--state", state, "--weights", weights),
    )


def _arguments(spec: ClusterSpec) -> tuple[str, ...]:
    guard = spec.memory.guard
    return (
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
    )
