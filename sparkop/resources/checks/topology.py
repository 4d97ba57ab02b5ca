"""RDMA devices of a node, their interfaces, and the cages that they sit in. Pure."""

from __future__ import annotations

import re

from sparkop.hosts.document import Device, Document, Interface
from sparkop.records import dataclass

_PCI = re.compile(r"([0-9a-fA-F]{4,}):[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.([0-7])\Z")


@dataclass(frozen=True)
class Cage:
    """One QSFP cage: the devices with one PCI function number, one in each PCI domain."""

    number: int
    devices: tuple[Device, ...]


def cages(document: Document) -> tuple[Cage, ...]:
    """By function number. Devices without a PCI address have no known cage."""
    found: dict[int, list[tuple[str, Device]]] = {}
    for device in document.fabric.devices if document.fabric else ():
        match = _PCI.fullmatch(device.pci or "")
        if match:
            found.setdefault(int(match[2]), []).append((match[1], device))
    return tuple(
        Cage(number, tuple(device for _, device in sorted(halves, key=lambda half: half[0])))
        for number, halves in sorted(found.items())
    )


def devices_of(document: Document) -> tuple[Device, ...]:
    return document.fabric.devices if document.fabric else ()


def interface_of(document: Document, device: Device) -> Interface | None:
    return next((i for name in device.netdevs if (i := interface_named(document, name))), None)


def interface_named(document: Document, name: str) -> Interface | None:
    found = document.fabric.interfaces if document.fabric else ()
    return next((i for i in found if i.name == name), None)


def ipv4_of(interface: Interface) -> str | None:
    return next((address for address in interface.addresses if ":" not in address), None)


def switched_off(interface: Interface) -> bool:
    """Set down by someone: an address is still on it, and the kernel tells no carrier."""
    return interface.carrier is None and ipv4_of(interface) is not None
