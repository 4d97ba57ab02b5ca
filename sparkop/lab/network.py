"""Bridges and cables of a lab.

The lab's end of every cable is in the lab's network namespace. Pulling a plug is setting that end down: the
host sees its carrier go, as with a real cable.
"""

from __future__ import annotations

from pathlib import Path

from sparkop.lab.layout import CONTROLLER_ADDRESS, MANAGEMENT, NICS, RAILS, LabError, Nic, host_index
from sparkop.lab.processes import run


def lay_bridges(lab_pid: int) -> None:
    """Make the management network, with the controller on it, and the fabric rails. There is no way out."""
    commands = [
        "link set lo up",
        f"link add {MANAGEMENT.bridge} type bridge",
        f"address add {CONTROLLER_ADDRESS}/24 dev {MANAGEMENT.bridge}",
        f"link set {MANAGEMENT.bridge} up",
    ]
    for rail in RAILS:
        commands += [
            f"link add {rail.bridge} type bridge",
            f"link set {rail.bridge} mtu {rail.mtu}",
            f"link set {rail.bridge} up",
        ]
    _ip(lab_pid, commands)


def attach(lab_pid: int, host: str, host_pid: int, unplugged: Path) -> None:
    """Give the host its network cards and addresses; cables named in folder ``unplugged`` stay out."""
    index = host_index(host)
    lab_side, host_side = [], ["link set lo up"]
    for nic in NICS:
        cable = f"{nic.tag}{index}"
        lab_side.append(
            f"link add {cable} mtu {nic.mtu} type veth peer name {nic.name} "
            f"address {nic.mac(index)} mtu {nic.mtu} netns {host_pid}"
        )
        if nic.bridge:
            lab_side.append(f"link set {cable} master {nic.bridge}")
            if not (unplugged / nic.name).exists():
                lab_side.append(f"link set {cable} up")
        if address := nic.address(index):
            host_side.append(f"address add {address}/24 dev {nic.name}")
        host_side.append(f"link set {nic.name} up")
    _ip(lab_pid, lab_side)
    _ip(host_pid, host_side)


def detach(lab_pid: int, host: str) -> None:
    """Take the host's cables away at once, so that nothing the host still does reaches a peer."""
    index = host_index(host)
    _ip(lab_pid, [f"link delete {nic.tag}{index}" for nic in NICS], force=True)


def plug(lab_pid: int, host: str, nic: Nic, unplugged: Path, connected: bool) -> None:
    """Pull the cable of one network card or put it back; remembered over a boot."""
    unplugged.mkdir(parents=True, exist_ok=True)
    if connected:
        (unplugged / nic.name).unlink(missing_ok=True)
    else:
        (unplugged / nic.name).touch()
    commands = [f"link set {nic.tag}{host_index(host)} {'up' if connected else 'down'}"]
    if connected and nic is MANAGEMENT:  # else the controller remembers for seconds that nobody answered
        commands.append(f"neighbour flush dev {nic.bridge}")
    _ip(lab_pid, commands, force=True)


def _ip(pid: int, commands: list[str], *, force: bool = False) -> None:
    """One ``ip`` batch in a process's network namespace; ``force`` forgives what is not there."""
    batch = ["nsenter", "-t", str(pid), "-n", "--", "ip", *(["-force"] if force else []), "-batch", "-"]
    try:
        run(batch, stdin="\n".join(commands) + "\n")
    except LabError:
        if not force:
            raise
