"""Checks of the machine itself: identity, kernel, GPU, clock, login settings."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from sparkop.resources.checks.model import (
    PREREQUISITES,
    TABLE,
    Check,
    Finding,
    Look,
    between_nodes,
    fail,
    ok,
    one_machine,
    or_ok,
    unknown,
    warn,
)

ARCH = "aarch64"
GPU = "GB10"
BAD_KERNEL = "7.0.0-1019-nvidia"
LEAST_PYTHON = (3, 8)
MOST_SKEW = 5.0
"""Seconds between the clocks of two nodes."""
STUCK_MHZ, STUCK_WATT, FULL = 1000, 30, 90
"""A GPU that is used in full and stays below both is stuck in its lowest state."""
FIRST_USER = 1000
"""logind leaves the IPC objects of system users alone."""


def _login(_look: Look) -> Iterator[Finding]:
    yield ok("it answers without a question")


def _python(look: Look) -> Iterator[Finding]:
    tools = look.document.tools or {}
    version = tools.get("python") or ""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < LEAST_PYTHON:
        yield fail("python3", version or "none", "3.8 or newer", "sudo apt install python3")
    else:
        yield ok(f"Python {version}")


def _same_host(look: Look) -> Iterator[Finding]:
    machine = look.document.machine
    told = f"{machine.hostname if machine else look.name}: a machine of its own"
    yield from or_ok(one_machine(look), told)


def _arch(look: Look) -> Iterator[Finding]:
    machine = look.document.machine
    if machine is None:
        return
    if look.gpus and machine.arch != ARCH:
        yield fail("arch", machine.arch, ARCH, "use a DGX Spark; images for it are built for arm64")
    else:
        yield ok(machine.arch if look.gpus else f"{machine.arch}; the ranks ask for no GPU")


def _wants_gpu(look: Look) -> bool:
    return look.gpus


def _gpu(look: Look) -> Iterator[Finding]:
    gpu = look.document.gpu
    devices = gpu.devices if gpu else ()
    if not any(GPU in device.name for device in devices):
        found = ", ".join(device.name for device in devices) or "none"
        yield fail(
            "gpu", found, f"NVIDIA {GPU}", "nvidia-smi; sudo dmesg | grep NVRM  # if it finds none: reboot"
        )
    else:
        yield ok(f"{devices[0].name}, driver {devices[0].driver or 'unknown'}")


def _kho(look: Look) -> Iterator[Finding]:
    machine, memory = look.document.machine, look.document.memory
    if machine and machine.kernel == BAD_KERNEL and "kho=off" not in (machine.cmdline or ""):
        yield fail(
            "kernel",
            f"{machine.kernel} without kho=off",
            "another kernel, or kho=off: RDMA registration fails with ENOMEM",
            "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&kho=off /' /etc/default/grub "
            "&& sudo update-grub && sudo reboot",
        )
    elif memory and (memory.cma_free or 0) > (memory.cma_total or 0):
        yield fail(
            "CmaFree",
            f"{(memory.cma_free or 0) // 1024} kB, more than CmaTotal ({(memory.cma_total or 0) // 1024} kB)",
            "at most CmaTotal: ibv_reg_mr fails with ENOMEM",
            "boot with kho=off, or with another kernel",
        )
    else:
        yield ok(machine.kernel if machine else "")


def _pending(look: Look) -> Iterator[Finding]:
    machine = look.document.machine
    if machine and machine.reboot_required:
        yield warn("reboot", "required by an update", "done", "sudo reboot  # while nothing serves")
    else:
        yield ok("no reboot is pending")


def _logind(look: Look) -> Iterator[Finding]:
    health, machine = look.document.health, look.document.machine
    if health is None or machine is None:
        return
    if machine.uid < FIRST_USER:
        yield ok(f"{machine.user} is a system user")
    elif health.remove_ipc and not health.linger:
        yield warn(
            "logind",
            f"RemoveIPC=yes, and {machine.user} does not linger",
            "lingering: else shared semaphores vanish at logout and a worker dies",
            f"sudo loginctl enable-linger {quote(machine.user)}",
        )
    else:
        yield ok("lingers" if health.linger else "RemoveIPC=no")


def _shares_ipc(look: Look) -> bool:
    return look.spec.engine.container.ipc == "host"


def _clock(look: Look) -> Iterator[Finding]:
    """Only what is certain: how long an answer took is no skew."""
    own = _offset(look, look.name)
    ahead = {
        name: _apart(own, other)
        for name in look.documents
        if name != look.name and (other := _offset(look, name)) and own
    }
    worst = max(ahead, key=lambda name: abs(ahead[name]), default=None)
    if worst is None or abs(ahead[worst]) <= MOST_SKEW:
        health = look.document.health
        told = "not " if health and health.synchronised is False else ""
        unsure = health is None or health.synchronised is None
        yield ok("as on the other nodes" + ("" if unsure else f"; the kernel calls it {told}synchronised"))
    elif not _to_blame(look, worst):
        yield ok(f"{worst} is the one that differs")
    else:
        way = "ahead of" if ahead[worst] > 0 else "behind"
        yield fail(
            "clock",
            f"{abs(ahead[worst]):.1f} s {way} {worst}",
            f"within {MOST_SKEW:.0f} s",
            "sudo timedatectl set-ntp true; timedatectl timesync-status  # says whether a server answers",
        )


def _offset(look: Look, name: str) -> tuple[float, float] | None:
    """Least and most that the node's clock is ahead of the controller's; of recorded facts, its time."""
    machine = look.documents[name].machine
    if machine is None:
        return None
    window = look.windows.get(name)
    if window is None:
        return machine.time_s, machine.time_s
    return machine.time_s - window[1], machine.time_s - window[0]


def _apart(own: tuple[float, float], other: tuple[float, float]) -> float:
    """How much own is surely ahead of the other (negative: behind); 0 when they may be equal."""
    if own[0] > other[1]:
        return own[0] - other[1]
    return min(own[1] - other[0], 0.0)


def _to_blame(look: Look, other: str) -> bool:
    """Of two that differ, the one that differs more from the controller; without one, the later node."""
    if look.name not in look.windows or other not in look.windows:
        names = list(look.documents)
        return names.index(look.name) > names.index(other)
    return _far(_offset(look, look.name)) >= _far(_offset(look, other))


def _far(offset: tuple[float, float] | None) -> float:
    return abs(_apart(offset, (0.0, 0.0))) if offset else 0.0


def _gpu_clock(look: Look) -> Iterator[Finding]:
    gpu = look.document.gpu
    for device in gpu.devices if gpu else ():
        used, clock, power = device.utilization_percent, device.clock_mhz, device.power_w
        if used is None or clock is None or power is None:
            yield unknown(f"nvidia-smi tells not all of clock, power and use of {device.name}")
            continue
        told = f"{clock:.0f} MHz, {power:.0f} W at {used:.0f} % use"
        if used >= FULL and clock < STUCK_MHZ and power < STUCK_WATT:
            yield fail(
                "GPU clock",
                told,
                f"over {STUCK_MHZ} MHz under load",
                "stop, shut down, pull the power plug for a minute: nothing else helps, a reboot neither",
            )
        else:
            yield ok(told)


CHECKS = (
    Check(
        id="ssh.batch",
        reads="a login without any question",
        bad="refused, silent, or with another host key: unknown, with ssh's own reason",
        source=TABLE,
        find=_login,
    ),
    Check(
        id="ssh.same_host",
        reads="/etc/machine-id of every target",
        bad="two targets are one machine: fail",
        source=TABLE,
        find=_same_host,
        sections=("machine",),
        kind=PREREQUISITES,
    ),
    Check(
        id="host.python",
        reads="version of python3",
        bad="older than 3.8: fail",
        source="the node programs",
        find=_python,
        sections=("tools",),
    ),
    Check(
        id="host.arch",
        reads="uname -m",
        bad="not aarch64, where the ranks ask for a GPU: fail",
        source=TABLE,
        find=_arch,
        sections=("machine",),
    ),
    Check(
        id="host.gpu",
        reads="nvidia-smi: name and driver ([N/A] in memory fields is normal)",
        bad="no NVIDIA GB10: fail",
        source=TABLE,
        find=_gpu,
        sections=("gpu",),
        applies=_wants_gpu,
    ),
    Check(
        id="kernel.kho",
        reads="uname -r, /proc/cmdline, CmaTotal and CmaFree",
        bad="kernel 7.0.0-1019-nvidia without kho=off, or CmaFree larger than CmaTotal: fail",
        source=TABLE,
        find=_kho,
        sections=("machine", "memory"),
    ),
    Check(
        id="kernel.pending",
        reads="/var/run/reboot-required",
        bad="present: warn",
        source=TABLE,
        find=_pending,
        sections=("machine",),
    ),
    Check(
        id="clock",
        reads="the nodes' clocks, and between which moments of the controller's they were read",
        bad="surely more than 5 s apart: fail",
        source=TABLE,
        find=_clock,
        sections=("machine",),
        applies=between_nodes,
    ),
    Check(
        id="logind",
        reads="RemoveIPC of logind, lingering of the user, where the ranks share the host's IPC",
        bad="RemoveIPC=yes (its default) and no lingering: warn",
        source=TABLE,
        find=_logind,
        sections=("machine", "health.remove_ipc", "health.linger"),
        applies=_shares_ipc,
    ),
    Check(
        id="gpu.clock",
        reads="nvidia-smi: clock, power and use",
        bad="under 1000 MHz and under 30 W at full use: fail",
        source=TABLE,
        find=_gpu_clock,
        sections=("gpu",),
        applies=_wants_gpu,
    ),
)
