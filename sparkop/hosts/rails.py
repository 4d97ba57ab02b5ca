"""The fabric as far as it can be used: active rails of a node, their address and GID index, and which rails
of several nodes are the ends of one network. Pure; by sysfs and addresses: names say nothing of cables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Interface, IPv4Network

from sparkop.hosts.addresses import ip_interface, ipv4_network, ipv6_address
from sparkop.hosts.document import Device, Document, Interface
from sparkop.records import dataclass

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
        return ipv4_network(f"{self.address}/{self.prefix}")

    @property
    def bounded(self) -> bool:
        """Whether its network says who is at the other end: with prefix 32 nobody is, with 0 everybody."""
        return 0 < self.prefix < 32


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


def joined(own: Sequence[Rail], other: Sequence[Rail]) -> Iterator[tuple[Rail, Rail]]:
    """Rails of two nodes that share a network, each once, in the order of ``own``.

    Ports may be crossed, and one rail of a node may be down: only the network counts. Where several rails are
    in one (both halves in one subnet), those of one device name belong together, then the order.
    """
    left = list(other)
    partners: dict[str, Rail] = {}
    for same_name in (True, False):
        for rail in own:
            if rail.device in partners:
                continue
            shared = [peer for peer in left if rail.bounded and peer.network == rail.network]
            shared = [peer for peer in shared if not same_name or peer.device == rail.device]
            if shared:
                left.remove(shared[0])
                partners[rail.device] = shared[0]
    yield from ((rail, partners[rail.device]) for rail in own if rail.device in partners)


def joined_everywhere(nodes: Sequence[Sequence[Rail]]) -> tuple[tuple[Rail, ...], ...]:
    """For each node its rails that have an end on every other node, in the order of the first node's: the
    n-th rails of all nodes are in one network. None for fewer than two nodes."""
    if len(nodes) < 2:
        return tuple(() for _ in nodes)
    first, *others = nodes
    ends = [{own.device: theirs for own, theirs in joined(first, other)} for other in others]
    whole = [rail for rail in first if all(rail.device in end for end in ends)]
    return (tuple(whole), *(tuple(end[rail.device] for rail in whole) for end in ends))


def select_fabric(
    document: Document, devices: Sequence[str] = (), joined_rails: Sequence[Rail] = ()
) -> FabricSelection | None:
    """The rails to use: all, or those of ``devices``; None without any. The first gives the address.

    ``joined_rails``: those that have an end on every other node, the preferred one first. Others reach
    nobody; they are left out, unless there is none that does (which the checks tell).
    """
    chosen = [r for r in joined_rails or rails(document) if not devices or r.device in devices]
    chosen = chosen or [r for r in rails(document) if r.device in devices]
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


def place_by_hand(
    document: Document, address: str | None, interface: str | None
) -> tuple[str | None, str | None]:
    """Address and interface where one of them is set by hand: the other is what belongs to it on the node,
    never another rail's. None where the node has no such thing."""
    there = document.fabric.interfaces if document.fabric else ()
    if interface is not None and address is None:
        held = next((_first_ipv4(each) for each in there if each.name == interface), None)
        return (str(held.ip) if held else None), interface
    if address is not None and interface is None:
        holders = (i.name for i in there if any(text.split("/")[0] == address for text in i.addresses))
        return address, next(holders, None)
    return address, interface


def gid_index(device: Device, address: str) -> int | None:
    """The index of the RoCE v2 GID that holds an IPv4 address; it differs per device and moves."""
    wanted = ipv6_address(f"::ffff:{address}")
    matches = [g.index for g in device.gids if g.type == ROCE_V2 and ipv6_address(g.gid) == wanted]
    return min(matches, default=None)


def _first_ipv4(interface: Interface) -> IPv4Interface | None:
    for text in interface.addresses:
        address = ip_interface(text)
        if isinstance(address, IPv4Interface):
            return address
    return None
