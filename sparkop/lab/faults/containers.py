"""Faults of ranks, guards and images."""

from __future__ import annotations

import json
import re
from typing import Any

from sparkop.lab.faults.base import Fault, Target
from sparkop.lab.layout import REGISTRY_NAME, LabError
from sparkop.lab.processes import wait_for

SECONDS = 15.0
KEPT = re.compile(r"(.+):sparkop-([0-9a-f]{64})")
"""The name by which an image that was pulled by digest is kept."""
INIT_PROGRAMS = ("docker-init", "tini")


def containers(target: Target, role: str, *, running: bool = True) -> list[dict[str, Any]]:
    """``docker inspect`` of the host's containers of a role, newest first.

    Raises LabError when there is none.
    """
    filters = ["--filter", f"label=sparkop.role={role}"]
    if target.rank is not None and role == "rank":
        filters += ["--filter", f"label=sparkop.rank={target.rank}"]
    which = [] if running else ["-a"]
    ids = target.host.docker("ps", "-q", *which, "--no-trunc", *filters, timeout=SECONDS).split()
    if not ids:
        wanted = f"{role} {target.rank}" if target.rank is not None else role
        raise LabError(f"{target.host.name}: no {'running ' if running else ''}container of a {wanted}")
    found: list[dict[str, Any]] = json.loads(target.host.docker("inspect", *ids))
    return found


def _name(container: dict[str, Any]) -> str:
    return str(container["Name"]).removeprefix("/")


def _kill_ranks(target: Target) -> str:
    found = containers(target, "rank")
    for container in found:
        target.host.exec(["kill", "-KILL", str(container["State"]["Pid"])])
    _wait_ended(target, found)
    return f"killed {', '.join(map(_name, found))}"


def _kill_guard(target: Target) -> str:
    """By ``docker kill``: Docker then does not start it again, whatever its restart policy."""
    found = containers(target, "memguard")
    for container in found:
        target.host.docker("kill", container["Id"])
    _wait_ended(target, found)
    return f"killed {', '.join(map(_name, found))}"


def _wait_ended(target: Target, ended: list[dict[str, Any]]) -> None:
    names = [container["Id"] for container in ended]
    ask = ("ps", "-q", "--no-trunc")
    wait_for(
        lambda: not set(target.host.docker(*ask).split()) & set(names), SECONDS, "the end of the containers"
    )


def _kill_launchers(target: Target) -> str:
    """Kill the process that started the engine's others: process 1, or the child of Docker's init."""
    found = containers(target, "rank")
    killed = []
    for container in found:
        top = target.host.docker("top", container["Id"], "-eo", "pid,ppid,comm").splitlines()[1:]
        processes = [line.split(None, 2) for line in top]
        first = str(container["State"]["Pid"])
        name = next(comm.strip() for pid, _, comm in processes if pid == first)
        if name in INIT_PROGRAMS:
            first, name = next((pid, comm.strip()) for pid, parent, comm in processes if parent == first)
        target.host.exec(["kill", "-KILL", first])
        killed.append(f"{name} in {_name(container)}")
    _wait_ended(target, found)
    return f"killed {', '.join(killed)}; the container ended with it"


def _signal_ranks(target: Target, signal: str) -> str:
    """Send a signal to every process of the host's ranks."""
    found = containers(target, "rank")
    for container in found:
        top = target.host.docker("top", container["Id"], "-eo", "pid").split()[1:]
        target.host.exec(["kill", f"-{signal}", *top], check=False)  # one may end meanwhile
    return f"{signal} to all processes of {', '.join(map(_name, found))}"


LOST = "Failed to initialize NVML: Unknown Error"
_LOSE = f"""
mkdir -p /usr/local/bin
printf '#!/bin/sh\\necho "{LOST}"\\nexit 255\\n' >/usr/local/bin/nvidia-smi
chmod 755 /usr/local/bin/nvidia-smi
echo 'pynvml.NVMLError_Unknown: NVML Unknown Error; {LOST}' >/proc/1/fd/2
"""


def _lose_gpu(target: Target) -> str:
    """As after a reload of the service manager: calls of NVML fail until the container is made anew."""
    found = containers(target, "rank")
    for container in found:
        target.host.docker("exec", container["Id"], "sh", "-ec", _LOSE)
    return f"{', '.join(map(_name, found))}: its log and its nvidia-smi say {LOST!r}"


def _find_gpu(target: Target) -> str:
    for container in containers(target, "rank"):
        target.host.docker("exec", container["Id"], "rm", "-f", "/usr/local/bin/nvidia-smi")
    return "nvidia-smi is as before"


def _drift(target: Target) -> str:
    """Take the names from the engines' images: containers go on, the asked name is not there any more."""
    references = _own_references(target)
    if not references:
        raise LabError(f"{target.host.name}: no image of {REGISTRY_NAME}")
    for reference in references:
        target.host.docker("rmi", "--force", "--no-prune", reference)
    _note(target, references)
    return f"untagged {', '.join(references)}"


def _pull(target: Target) -> str:
    file = target.host.paths.root / "drifted.json"
    references: list[str] = json.loads(file.read_text()) if file.exists() else []
    pulled = [reference for reference in references if reference.startswith(f"{REGISTRY_NAME}:")]
    for reference in pulled:
        asked, digest = KEPT.fullmatch(reference), ""
        if asked:  # a name that sparkop gave to what it pulled: the registry knows the digest only
            digest = f"{asked[1]}@sha256:{asked[2]}"
        target.host.docker("pull", "-q", digest or reference)
        if digest:
            target.host.docker("tag", digest, reference)
    file.unlink(missing_ok=True)
    built = sorted({*references} - {*pulled})
    note = f"; sparkop apply builds {', '.join(built)}" if built else ""
    return f"pulled {', '.join(pulled) or 'nothing'}{note}"


def _note(target: Target, references: list[str]) -> None:
    (target.host.paths.root / "drifted.json").write_text(json.dumps(references))


def _own_references(target: Target) -> list[str]:
    """Names of images that came from the lab's registry, and of those built for ranks."""
    ids = sorted(set(target.host.docker("images", "-q", "--no-trunc").split()))
    images = json.loads(target.host.docker("inspect", *ids)) if ids else []
    return [
        reference
        for image in images
        for reference in (*image["RepoTags"], *image["RepoDigests"])
        if reference.startswith(f"{REGISTRY_NAME}:") or "sparkop.build" in (image["Config"]["Labels"] or {})
    ]


def _apply_mends(_target: Target) -> str:
    return "nothing to mend by hand: sparkop apply starts it again"


FAULTS = (
    Fault(
        "kill-rank",
        "Kill the host's rank containers (SIGKILL of process 1); --rank N: one of them.",
        _kill_ranks,
        _apply_mends,
    ),
    Fault(
        "kill-guard",
        "Kill the host's memory guard; Docker does not start it again.",
        _kill_guard,
        _apply_mends,
    ),
    Fault(
        "kill-launcher",
        "Kill a rank's launcher; Docker ends the workers with it.",
        _kill_launchers,
        _apply_mends,
    ),
    Fault(
        "hang",
        "Hang the host's ranks (SIGSTOP): they take connections and answer nothing.",
        lambda target: _signal_ranks(target, "STOP"),
        lambda target: _signal_ranks(target, "CONT"),
    ),
    Fault(
        "gpu-lost",
        "Let the ranks' log and nvidia-smi say that NVML knows no GPU any more.",
        _lose_gpu,
        _find_gpu,
    ),
    Fault("image-drift", "Take the names from the engines' images; running containers go on.", _drift, _pull),
)
