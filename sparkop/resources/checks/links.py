"""Checks of RDMA devices and cables: active, whole cages, link, speed, error counters.

Everything is by sysfs: names of devices are not stable, and ports may be crossed.
"""

from __future__ import annotations

from collections.abc import Iterator

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
from sparkop.resources.checks.usable import give_address

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
            )
    yield ok(f"ACTIVE: {', '.join(up)}")


def _no_device(document: Document) -> Finding:
    wanted = "an active rail with an IPv4 address"
    if not devices_of(document):
        remedy = "check that the ConnectX-7 driver is loaded (lsmod | grep mlx5_ib)"
        return fail("rails", "no RDMA device", wanted, remedy)
    off = [i.name for d in devices_of(document) if (i := interface_of(document, d)) and switched_off(i)]
    if off:
        remedy = "switched off by hand: " + "; ".join(f"sudo ip link set dev {name} up" for name in off)
    else:
        remedy = "plug the cable in, or check the other end: no fabric link is up"
    return fail("rails", _down(document), wanted, remedy)


def _down(document: Document) -> str:
    down = sorted((d for d in devices_of(document) if d.state != "ACTIVE"), key=lambda d: d.name.casefold())
    meant = [d for d in down if (i := interface_of(document, d)) and ipv4_of(i)] or down
    return (
        f"{', '.join(d.name for d in meant)} not active"
        if down
        else "all devices active, but some have no IPv4 address"
    )


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
                )


def _mend_half(look: Look, device: Device) -> str:
    interface = interface_of(look.document, device)
    if interface is None:
        return f"check dmesg for {device.name}: it has no network device"
    if switched_off(interface) or interface.carrier is None:
        return f"sudo ip link set dev {interface.name} up"
    if device.state == "ACTIVE":
        return f"on {look.name}: {give_address(look, interface.name)}"
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
        state, remedy = "down", f"the interface was switched off: sudo ip link set {name} up"
    yield fail(f"{name}.link", state, "up", remedy)


def _speed(look: Look) -> Iterator[Finding]:
    for rail in look.rails():
        if rail.speed_mbps is None:
            yield unknown(f"the speed of {rail.interface} can't be read")
        elif rail.speed_mbps < SPEED:
            yield warn(
                f"{rail.interface}.speed",
                f"{rail.speed_mbps} Mb/s",
                f"{SPEED} Mb/s",
                "reseat the cable, use one rated for 200 Gb/s; at a switch: fix speed and FEC of the port",
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
            )
        if not grown and device.state == "ACTIVE" and device.counters:
            told = ", ".join(f"{name} {value}" for name, value in device.counters.items() if value)
            yield ok(f"{device.name}: {told or 'no error'}" + ("" if device.name in old else ", read once"))


CHECKS = (
    Check(
        "rdma.active",
        "sysfs: state of port 1 of every RDMA device",
        "fewer are ACTIVE than the spec wants (fabric.rails, else one): fail",
        TABLE,
        _active,
        ("fabric",),
        between_nodes,
        FABRIC,
    ),
    Check(
        "rdma.pair",
        "PCI addresses: one function number in domains 0000 and 0002 is one cage",
        "only one half of a cage is usable: half the bandwidth: warn",
        TABLE,
        _pair,
        ("fabric",),
        between_nodes,
    ),
    Check(
        "fabric.link",
        "sysfs: carrier and operstate of the chosen interface",
        "absent, without carrier or down: fail",
        TABLE,
        _link,
        ("fabric",),
        between_nodes,
        FABRIC,
    ),
    Check(
        "fabric.speed",
        "sysfs: speed of the interface (ethtool prints an error without root and still returns 0)",
        "under 200000 Mb/s: warn",
        TABLE,
        _speed,
        ("fabric",),
        between_nodes,
    ),
    Check(
        "fabric.counters",
        "hw_counters: packet_seq_err, out_of_sequence, req_transport_retries_exceeded, twice",
        "one grows between two readings: warn",
        TABLE,
        _counters,
        ("fabric",),
        between_nodes,
    ),
)
