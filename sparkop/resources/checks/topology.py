"""Cages of a node, by the PCI addresses of its RDMA devices. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sparkop.hosts.document import Device, Document

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
