"""Checks of RDMA devices and cables: active, whole cages, link, speed, error counters.

Everything is by sysfs: names of devices are not stable, and ports may be crossed.
"""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from sparkop.hosts.document import Device, Document
from sparkop.resources.checks.model import (
    FABRIC,
    TABLE,
    Check,
    Finding,
    Look,
    between_nodes,
    fail,
    ok,
    unknown,
    warn,
)
from sparkop.resources.checks.topology import (
    cages,
    devices_of,
    interface_named,
    interface_of,
    ipv4_of,
    switched_off,
)
from sparkop.resources.checks.usable import bound_address, give_address, lost_rails, move_address

SPEED = 200_000
"""Mbit/s of a ConnectX-7 port of a Spark."""


def _active(look: Look) -> Iterator[Finding]:
    found, wanted = look.rails(), look.spec.fabric.rails
    devices = devices_of(look.document)
    up = sorted((device.name for device in devices if device.state == "ACTIVE"), key=str.casefold)
    if not found and not up:
        if look.address is None:
            yield _no_device(look.document)
        return
    if wanted is not None and len(found) < wanted:
        yield fail(
            "rails",
            f"{len(found)} active",
            f"{wanted} active",
            f"{_down(look.document)}; check cable and addresses, or lower fabric.rails",
            ports=_missed(look.document),
        )
        return
    lost = lost_rails(look)
    alone = [rail for rail in found if not rail.bounded]
    stray = [*alone, *(rail for rail, _ in lost)]
    if wanted is not None and len(found) - len(stray) < wanted:
        mends = [bound_address(look, rail) for rail in alone]
        mends += [move_address(look, rail, network) for rail, network in lost]
        yield fail(
            "rails",
            f"{len(found)} active, but {', '.join(rail.interface for rail in stray)} joins no other node",
            f"{wanted} that join the nodes",
            f"{'; '.join(mends)}  # or lower fabric.rails",
            ports=tuple(rail.device for rail in stray),
        )
        return
    for device in devices_of(look.document):
        interface = interface_of(look.document, device)
        if device.state != "ACTIVE" and interface is not None and (held := ipv4_of(interface)):
            yield warn(
                device.name,
                f"{device.state}, with {held} on {interface.name}",
                "ACTIVE: the group runs with less bandwidth",
                _mend_half(look, device),
                lessens=True,
                ports=(device.name,),
            )
    yield ok(f"ACTIVE: {', '.join(up)}")


def _no_device(document: Document) -> Finding:
    wanted = "an active rail with an IPv4 address"
    if not devices_of(document):
        remedy = "check that the ConnectX-7 driver is loaded (lsmod | grep mlx5_ib)"
        return fail("rails", "no RDMA device", wanted, remedy)
    off = [i.name for d in devices_of(document) if (i := interface_of(document, d)) and switched_off(i)]
    if off:
        remedy = "; ".join(map(_up, off)) + "  # switched off by hand"
    else:
        remedy = "plug the cable in, or check the other end: no fabric link is up"
    return fail("rails", _down(document), wanted, remedy, ports=_missed(document))


def _up(interface: str) -> str:
    """The command that switches an interface on."""
    return f"sudo ip link set dev {quote(interface)} up"


def _down(document: Document) -> str:
    meant = _missed(document)
    if not meant:
        return "all devices active, but some have no IPv4 address"
    return f"{', '.join(meant)} not active"


def _missed(document: Document) -> tuple[str, ...]:
    """Devices that are not active: those that have an address, else all."""
    down = sorted((d for d in devices_of(document) if d.state != "ACTIVE"), key=lambda d: d.name.casefold())
    meant = [d for d in down if (i := interface_of(document, d)) and ipv4_of(i)] or down
    return tuple(device.name for device in meant)


def _pair(look: Look) -> Iterator[Finding]:
    usable = {rail.device for rail in look.rails()}
    for cage in cages(look.document):
        halves = [device for device in cage.devices if device.name in usable]
        if not halves:
            continue
        if len(halves) == len(cage.devices):
            yield ok(f"cage {cage.number}: {', '.join(d.name for d in cage.devices)}")
        for device in cage.devices:
            if device.name not in usable:
                state = "ACTIVE without an IPv4 address" if device.state == "ACTIVE" else device.state
                yield warn(
                    f"{device.name} of cage {cage.number}",
                    state,
                    f"usable, as {halves[0].name} is: one half carries half the bandwidth",
                    _mend_half(look, device),
                    ports=(device.name,),
                )


def _mend_half(look: Look, device: Device) -> str:
    interface = interface_of(look.document, device)
    if interface is None:
        return f"check dmesg for {device.name}: it has no network device"
    if switched_off(interface) or interface.carrier is None:
        return _up(interface.name)
    if device.state == "ACTIVE":
        return give_address(look, interface.name)
    return "reseat the cable at both ends; if that does not help: full power cycle, another cable"


def _link(look: Look) -> Iterator[Finding]:
    if look.fabric is None:
        return
    name = look.fabric.interface
    interface = interface_named(look.document, name)
    if interface is not None and interface.carrier is not False and interface.operstate != "down":
        yield ok(f"{name} is {interface.operstate}")
        return
    if interface is None:
        state, remedy = "absent", "correct fabric.interface of the node"
    elif interface.carrier is False:
        state, remedy = "no carrier", "check the cable at both ends"
    else:
        state, remedy = "down", f"{_up(name)}  # it was switched off"
    yield fail(f"{name}.link", state, "up", remedy, ports=(name,))


def _speed(look: Look) -> Iterator[Finding]:
    for rail in look.rails():
        if rail.speed_mbps is None:
            yield unknown(f"the speed of {rail.interface} can't be read", ports=(rail.interface,))
        elif rail.speed_mbps < SPEED:
            yield warn(
                f"{rail.interface}.speed",
                f"{rail.speed_mbps} Mb/s",
                f"{SPEED} Mb/s",
                "reseat the cable, use one rated for 200 Gb/s; at a switch: fix speed and FEC of the port",
                ports=(rail.interface,),
            )
        else:
            yield ok(f"{rail.interface} {rail.speed_mbps} Mb/s")


def _counters(look: Look) -> Iterator[Finding]:
    before = look.earlier.get(look.name)
    old = {device.name: device.counters for device in devices_of(before)} if before else {}
    for device in devices_of(look.document):
        grown = {
            name: (old[device.name][name], value)
            for name, value in device.counters.items()
            if device.name in old and name in old[device.name] and value > old[device.name][name]
        }
        for name, (first, second) in grown.items():
            yield warn(
                f"{device.name}.{name}",
                f"{first}, within seconds {second}",
                "steady",
                "reseat or replace the cable; check that both ends have the same MTU and flow control",
                ports=(device.name,),
            )
        if not grown and device.state == "ACTIVE" and device.counters:
            told = ", ".join(f"{name} {value}" for name, value in device.counters.items() if value)
            yield ok(f"{device.name}: {told or 'no error'}" + ("" if device.name in old else ", read once"))


CHECKS = (
    Check(
        id="rdma.active",
        reads="sysfs: state of port 1 of every RDMA device",
        bad="fewer are ACTIVE, and joined, than the spec wants (fabric.rails, else one): fail; one is down "
        "that has an address: warn",
        source=TABLE,
        find=_active,
        sections=("fabric",),
        applies=between_nodes,
        kind=FABRIC,
    ),
    Check(
        id="rdma.pair",
        reads="PCI addresses: one function number in domains 0000 and 0002 is one cage",
        bad="only one half of a cage is usable: half the bandwidth: warn",
        source=TABLE,
        find=_pair,
        sections=("fabric",),
        applies=between_nodes,
    ),
    Check(
        id="fabric.link",
        reads="sysfs: carrier and operstate of the chosen interface",
        bad="absent, without carrier or down: fail",
        source=TABLE,
        find=_link,
        sections=("fabric",),
        applies=between_nodes,
        kind=FABRIC,
    ),
    Check(
        id="fabric.speed",
        reads="sysfs: speed of the interface (ethtool prints an error without root and still returns 0)",
        bad="under 200000 Mb/s: warn",
        source=TABLE,
        find=_speed,
        sections=("fabric",),
        applies=between_nodes,
    ),
    Check(
        id="fabric.counters",
        reads="hw_counters: packet_seq_err, out_of_sequence, req_transport_retries_exceeded, twice",
        bad="one grows between two readings: warn",
        source=TABLE,
        find=_counters,
        sections=("fabric",),
        applies=between_nodes,
    ),
)
