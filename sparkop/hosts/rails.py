"""The fabric of one node, as far as it can be used: active rails, their address, the GID index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network, IPv6Address, ip_interface

from sparkop.hosts.document import Device, Document, Interface

ROCE_V2 = "RoCE v2"
"""As sysfs writes it in gid_attrs/types."""


@dataclass(frozen=True)
class Rail:
    """An active RDMA device with its interface and IPv4 address."""

    device: str
    interface: str
    address: str
    prefix: int
    gid_index: int | None
    """Index of the RoCE v2 GID of this address; None when the table has none (yet)."""
    mtu: int
    speed_mbps: int | None = None

    @property
    def network(self) -> IPv4Network:
        """The network of its address: rails of two nodes are joined when it is the same."""
        return IPv4Interface(f"{self.address}/{self.prefix}").network


@dataclass(frozen=True)
class FabricSelection:
    """What an engine needs to know of the fabric of one node."""

    address: str
    interface: str
    hcas: tuple[str, ...]
    gid_index: int | None
    """None when devices disagree or one has none: NCCL_IB_GID_INDEX is then left unset."""
    rails: tuple[Rail, ...]


def rails(document: Document) -> tuple[Rail, ...]:
    """Active RDMA devices whose interface has an IPv4 address, by name (PCI domain 0 first)."""
    if document.fabric is None:
        return ()
    interfaces = {i.name: i for i in document.fabric.interfaces}
    found = []
    for device in sorted(document.fabric.devices, key=lambda d: d.name.casefold()):
        for name in device.netdevs:
            interface = interfaces.get(name)
            address = _first_ipv4(interface) if interface else None
            if device.state == "ACTIVE" and interface and address:
                found.append(
                    Rail(
                        device=device.name,
                        interface=name,
                        address=str(address.ip),
                        prefix=address.network.prefixlen,
                        gid_index=gid_index(device, str(address.ip)),
                        mtu=interface.mtu,
                        speed_mbps=interface.speed_mbps,
                    )
                )
                break
    return tuple(found)


def select_fabric(
    document: Document, devices: Sequence[str] = (), networks: Sequence[IPv4Network] = ()
) -> FabricSelection | None:
    """The rails to use: all, or those of ``devices``; None without any. The first gives the address.

    ``networks``: those that the nodes share, the preferred one first. Rails in others reach nobody; they are
    left out, unless none is in a shared one (which the checks tell).
    """
    chosen = [r for r in rails(document) if not devices or r.device in devices]
    joined = [r for r in chosen if r.network in networks]
    if joined:
        chosen = sorted(joined, key=lambda rail: networks.index(rail.network))
    if not chosen:
        return None
    indices = {r.gid_index for r in chosen}
    return FabricSelection(
        address=chosen[0].address,
        interface=chosen[0].interface,
        hcas=tuple(r.device for r in chosen),
        gid_index=indices.pop() if len(indices) == 1 else None,
        rails=tuple(chosen),
    )


def gid_index(device: Device, address: str) -> int | None:
    """The index of the RoCE v2 GID that holds an IPv4 address; it differs per device and moves."""
    wanted = IPv6Address(f"::ffff:{address}")
    matches = [g.index for g in device.gids if g.type == ROCE_V2 and IPv6Address(g.gid) == wanted]
    return min(matches, default=None)


def _first_ipv4(interface: Interface) -> IPv4Interface | None:
    for text in interface.addresses:
        address = ip_interface(text)
        if isinstance(address, IPv4Interface):
            return address
    return None
