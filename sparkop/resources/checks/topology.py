"""Cages of a node, and which rails of two nodes are the ends of one cable. Pure; by sysfs and addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

from sparkop.hosts.document import Device, Document
from sparkop.hosts.rails import Rail

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


def network_of(rail: Rail) -> IPv4Network:
    """The rail's IPv4 network."""
    return IPv4Network(f"{rail.address}/{rail.prefix}", strict=False)


def joined(own: Sequence[Rail], other: Sequence[Rail]) -> Iterator[tuple[Rail, Rail]]:
    """Rails of two nodes that share a network, each once.

    Where several do (both halves in one subnet), those of one device name belong together, then the order.
    """
    left = list(other)
    rest = []
    for rail in own:
        same = [peer for peer in left if network_of(peer) == network_of(rail) and peer.device == rail.device]
        if same:
            left.remove(same[0])
            yield rail, same[0]
        else:
            rest.append(rail)
    for rail in rest:
        shared = [peer for peer in left if network_of(peer) == network_of(rail)]
        if shared:
            left.remove(shared[0])
            yield rail, shared[0]
