"""Faults of cables and network cards."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from sparkop.lab import network
from sparkop.lab.faults.base import Fault, Target
from sparkop.lab.layout import MANAGEMENT, RAILS, LabError, Nic
from sparkop.lab.processes import wait_for

SECONDS = 5.0
WRONG_MTU = 1500


def _rails(target: Target) -> tuple[Nic, ...]:
    if target.rail is None:
        return RAILS
    if not 0 <= target.rail < len(RAILS):
        raise LabError(f"no rail {target.rail}: 0 or 1")
    return (RAILS[target.rail],)


def _plug(target: Target, nics: tuple[Nic, ...], connected: bool) -> str:
    for nic in nics:
        network.plug(target.lab.running(), target.host.name, nic, target.host.paths.unplugged, connected)
        if target.host.pid is not None:
            wait_for(
                partial(_carrier_is, target, nic, connected),
                SECONDS,
                f"{target.host.name}: {nic.name} {'with' if connected else 'without'} carrier",
            )
    names = ", ".join(nic.name for nic in nics)
    return f"{'plugged in' if connected else 'pulled the cable of'} {names}"


def _carrier_is(target: Target, nic: Nic, connected: bool) -> bool:
    file = Path(f"/proc/{target.host.running()}/root/sys/class/net/{nic.name}/carrier")
    try:
        return (file.read_text().strip() == "1") is connected
    except OSError:  # set down by the host itself: the cable makes no difference
        return True


def _set(target: Target, *words: str) -> str:
    nics = _rails(target)
    for nic in nics:
        target.host.exec(["ip", "link", "set", "dev", nic.name, *words])
    return f"{', '.join(nic.name for nic in nics)}: {' '.join(words)}"


def _full_mtu(target: Target) -> str:
    return " / ".join(
        _set(Target(target.lab, target.host, rail=RAILS.index(nic)), "mtu", str(nic.mtu))
        for nic in _rails(target)
    )


FAULTS = (
    Fault(
        "cable",
        "Pull the fabric cable: no carrier on both rails, or on --rail N.",
        lambda target: _plug(target, _rails(target), False),
        lambda target: _plug(target, _rails(target), True),
    ),
    Fault(
        "mgmt-cut",
        "Pull the management cable: SSH stays silent, connections hang.",
        lambda target: _plug(target, (MANAGEMENT,), False),
        lambda target: _plug(target, (MANAGEMENT,), True),
    ),
    Fault(
        "admin-down",
        "Set the fabric cards down (ip link set down); --rail N: one of them.",
        lambda target: _set(target, "down"),
        lambda target: _set(target, "up"),
    ),
    Fault(
        "mtu",
        f"Set the fabric cards to MTU {WRONG_MTU}; --rail N: one of them.",
        lambda target: _set(target, "mtu", str(WRONG_MTU)),
        _full_mtu,
    ),
)
