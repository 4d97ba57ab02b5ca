"""Checks of the fabric's addresses: given by hand, IPv4, subnets, GIDs, whether they last, firewall."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Network, ip_network
from shlex import quote

from sparkop.hosts.document import Interface
from sparkop.hosts.rails import ROCE_V2, Rail
from sparkop.resources.checks.model import (
    FABRIC,
    TABLE,
    Check,
    Finding,
    Look,
    State,
    between_nodes,
    fail,
    ok,
    one_machine,
    or_ok,
    unknown,
    warn,
)
from sparkop.resources.checks.topology import devices_of, interface_named, ipv4_of
from sparkop.resources.checks.usable import (
    STANDARD,
    bound_address,
    give_address,
    keep,
    lost_rails,
    move_address,
    take_address,
    wanted_network,
)


def _override(look: Look) -> Iterator[Finding]:
    by_hand = look.node.fabric
    if by_hand.interface or by_hand.address or by_hand.all_hcas:
        yield from or_ok(_wrong_by_hand(look), "what the spec sets by hand is there")


def _wrong_by_hand(look: Look) -> Iterator[Finding]:
    by_hand = look.node.fabric
    interfaces = look.document.fabric.interfaces if look.document.fabric else ()
    named = interface_named(look.document, by_hand.interface) if by_hand.interface else None
    if by_hand.interface and named is None:
        yield fail(
            "fabric.interface",
            f"{by_hand.interface}, which is not there",
            f"one of {', '.join(_of_devices(look)) or 'none: no RDMA device'}",
            f"correct it for {look.name}, or leave it out: it is detected",
            ports=(by_hand.interface,),
        )
    elif by_hand.interface and not by_hand.address and named and ipv4_of(named) is None:
        yield fail(
            "fabric.interface",
            f"{by_hand.interface}, which has no IPv4 address",
            "an interface with one",
            f"{give_address(look, by_hand.interface)}  # or leave fabric.interface out: it is detected",
            ports=(by_hand.interface,),
        )
    elif by_hand.interface and look.rdma and by_hand.interface not in _of_devices(look):
        yield warn(
            "fabric.interface",
            f"{by_hand.interface}, which belongs to no RDMA device",
            f"one of {', '.join(_of_devices(look)) or 'none: no RDMA device'}",
            f"correct it for {look.name}, or leave it out: it is detected",
            ports=(by_hand.interface,),
        )
    if by_hand.address and not any(_holds(i, by_hand.address) for i in ([named] if named else interfaces)):
        yield fail(
            "fabric.address",
            f"{by_hand.address}, which is not on {named.name if named else 'any interface'}",
            f"one of {', '.join(named.addresses)}" if named and named.addresses else "an address of the node",
            f"correct it for {look.name}, or leave it out: it is detected",
            ports=(named.name,) if named else (),
        )
    states = {device.name: device.state for device in devices_of(look.document)}
    active = ", ".join(name for name, state in states.items() if state == "ACTIVE")
    for hca in by_hand.all_hcas:
        if states.get(hca) != "ACTIVE":
            yield fail(
                "fabric.hcas",
                f"{hca}, which is {states.get(hca, 'absent')}",
                f"of those that are ACTIVE: {active or 'none'}",
                f"correct it for {look.name}, or leave it out: they are detected",
                holds=hca not in states,
                ports=(hca,),
            )


def _of_devices(look: Look) -> list[str]:
    return [name for device in devices_of(look.document) for name in device.netdevs]


def _holds(interface: Interface, address: str) -> bool:
    return any(text.split("/")[0] == address for text in interface.addresses)


def _ipv4(look: Look) -> Iterator[Finding]:
    found = look.rails()
    held = {rail.device for rail in found}
    bare = [d for d in devices_of(look.document) if d.state == "ACTIVE" and d.name not in held]
    if bare and not found and look.address is None:
        netdev = bare[0].netdevs[0] if bare[0].netdevs else "the interface"
        yield fail(
            "rails",
            f"{bare[0].name} is active, without an IPv4 address",
            "an active rail with an IPv4 address",
            give_address(look, netdev),
            ports=tuple(device.name for device in bare),
        )
    for nth, device in enumerate(bare if found else ()):
        netdev = device.netdevs[0] if device.netdevs else device.name
        yield fail(
            f"{netdev}.address",
            "none",
            f"an IPv4 address: {device.name} is ACTIVE",
            give_address(look, netdev, nth=nth),
            holds=False,
            ports=(device.name,),
        )
    yield from _twice(look)
    yield from _unbounded(look)
    yield from _one_subnet(look)
    if found:
        yield ok(", ".join(f"{rail.interface} {rail.address}/{rail.prefix}" for rail in found))


def _twice(look: Look) -> Iterator[Finding]:
    """An address that another node, or another interface of this one, has as well."""
    pairs = look.nodes.twice.get(look.name, ())
    ports = tuple(dict.fromkeys(held.interface for held, _ in pairs))
    once_more = [replace(found, ports=ports) for found in one_machine(look)]
    if once_more:
        yield from once_more if pairs else ()
        return  # to take its addresses away would take them from the first node
    for held, keeper in pairs:
        if held.rail is None:
            remedy = take_address(held.interface, held.address)
        else:
            remedy = move_address(look, held.rail, wanted_network(look, held.rail) if keeper.fabric else None)
        where = keeper.interface if keeper.node == look.name else f"{keeper.interface} of {keeper.node}"
        yield fail(
            f"{held.interface}.address",
            f"{held.address.partition('/')[0]}, also on {where}",
            "an address of its own",
            remedy,
            ports=(held.interface,),
        )


def _unbounded(look: Look) -> Iterator[Finding]:
    """An address whose prefix length leaves nobody, or everybody, in its network."""
    told = {held.interface for held, _ in look.nodes.twice.get(look.name, ())}
    serves = any(rail.bounded for rail in look.rails())
    for rail in look.rails():
        if not rail.bounded and rail.interface not in told:
            yield Finding(
                State.WARN if serves else State.FAIL,
                f"{rail.address}/{rail.prefix}",
                f"{rail.interface}.address",
                f"in {wanted_network(look, rail)}: a network with its peers in it, and nobody else",
                bound_address(look, rail),
                lessens=serves,
                ports=(rail.interface,),
            )


def _one_subnet(look: Look) -> Iterator[Finding]:
    by_network: dict[IPv4Network, list[Rail]] = {}
    for rail in (rail for rail in look.rails() if rail.bounded):
        by_network.setdefault(rail.network, []).append(rail)
    for network, found in by_network.items():
        if len(found) > 1:
            yield warn(
                "subnet",
                f"{network} on {' and '.join(rail.interface for rail in found)}",
                "one subnet for each half: packets of one can leave by the other",
                f"{move_address(look, found[-1])}  # on every node, while nothing serves; it works as it "
                "is, with less bandwidth, and NVIDIA's guide has it so",
                ports=tuple(rail.interface for rail in found),
            )


def _subnet(look: Look) -> Iterator[Finding]:
    if look.desired.head not in look.documents:
        return
    own = {str(network) for network in look.nodes.networks[look.name]}
    head = {str(network) for network in look.nodes.networks[look.desired.head]}
    if not own or not head:
        return
    lost = lost_rails(look)
    if not own & head:
        mends = [move_address(look, rail, network) for rail, network in lost]
        rails = [rail for rail in look.rails() if rail.bounded]
        yield fail(
            "subnet",
            ", ".join(sorted(own)),
            f"one of the head's: {', '.join(sorted(head))}",
            "; ".join(mends) or move_address(look, rails[0]),
            ports=tuple(rail.interface for rail in rails),
        )
        return
    for rail, network in lost:
        yield warn(
            f"{rail.interface}.address",
            f"{rail.address}/{rail.prefix}, where it joins no other node",
            f"in {network}: the ranks go without it, with less bandwidth",
            move_address(look, rail, network),
            lessens=True,
            ports=(rail.interface,),
        )
    if not look.head:
        yield ok(f"shared with {look.desired.head}: {', '.join(sorted(own & head))}")


def _gid(look: Look) -> Iterator[Finding]:
    level = State.FAIL if look.rdma else State.WARN
    if look.spec.engine.environment.get("NCCL_IB_GID_INDEX") == "":
        yield fail(
            "engine.environment.NCCL_IB_GID_INDEX",
            "empty, which NCCL takes for 0",
            "a number, or not set at all",
            "take it out of the spec",
        )
    asked = look.node.fabric.gid_index
    asked = look.spec.fabric.gid_index if asked is None else asked
    used = look.node.fabric.all_hcas
    rails = [rail for rail in look.rails() if not used or rail.device in used]
    for rail in rails:
        if rail.gid_index is None:
            yield Finding(
                level,
                "none",
                f"{rail.device}: {ROCE_V2} GID of {rail.address}",
                "an entry of its table",
                f"sudo ip link set dev {quote(rail.interface)} down; "
                f"sudo ip link set dev {quote(rail.interface)} up  # the table is filled again",
                ports=(rail.device,),
            )
        elif asked is not None and rail.gid_index != asked:
            yield Finding(
                level,
                f"{rail.gid_index} at {rail.device}",
                "GID index",
                f"{asked}, as the spec says",
                "leave fabric.gidIndex out: it is read on each node before each start",
                ports=(rail.device,),
            )
    indices = {rail.device: rail.gid_index for rail in rails if rail.gid_index is not None}
    if indices:
        told = ", ".join(f"{device} {index}" for device, index in indices.items())
        agree = len(set(indices.values())) == 1
        yield ok(told if agree else f"{told}: they disagree, so NCCL_IB_GID_INDEX is left unset")


def _persistent(look: Look) -> Iterator[Finding]:
    health = look.document.health
    configured = health.configured if health else None
    if configured is None or not (configured.files or configured.unreadable):
        return  # no such files: nothing of this machine is configured at boot
    for rail in look.rails():
        kept = configured.interfaces.get(rail.interface)
        if kept is None:
            continue
        held = any(a.split("/")[0] == rail.address for a in kept.addresses)
        address = None if held else f"{rail.address}/{rail.prefix}"
        mtu = rail.mtu if rail.mtu not in (STANDARD, kept.mtu) else None
        lost = ([] if held else [rail.address]) + ([] if mtu is None else [f"mtu {mtu}"])
        if not lost:
            yield ok(f"{rail.interface}: in the network files")
        elif configured.unreadable:
            yield unknown(
                f"{rail.interface}: {configured.unreadable} network files need root to read",
                "sudo netplan get  # shows whether address and MTU are there",
                ports=(rail.interface,),
            )
        else:
            yield warn(
                rail.interface,
                f"{' and '.join(lost)} set at run time only",
                "in netplan: else gone after a reboot",
                keep(rail.interface, address=address, mtu=mtu),
                ports=(rail.interface,),
            )


def _firewall(look: Look) -> Iterator[Finding]:
    health = look.document.health
    firewall = health.firewall if health else None
    if firewall is None or not firewall.enabled:
        yield ok("ufw is off")
        return
    for rail in look.rails():
        remedy = f"sudo ufw allow in on {quote(rail.interface)}"
        if firewall.rules is None:
            yield unknown(
                f"ufw is on, its rules need root to read: {rail.interface} may be closed",
                f"sudo ufw status  # if {rail.interface} is not in it: {remedy}",
                ports=(rail.interface,),
            )
        elif any(_lets_in(rule, rail) for rule in firewall.rules):
            yield ok(f"ufw lets {rail.interface} in")
        else:
            yield fail(
                f"ufw on {rail.interface}",
                "active, without a rule for it",
                "allowed: ping works, RDMA hangs",
                remedy,
                ports=(rail.interface,),
            )


def _lets_in(rule: str, rail: Rail) -> bool:
    """A rule in ufw's own file: action, protocol, port, destination, port, source, in or in_<interface>."""
    words = [word for word in rule.split() if not word.startswith("comment=")]
    if len(words) < 7 or words[0] != "allow" or words[1] != "any" or words[2] != "any":
        return False
    if words[-1] == f"in_{rail.interface}":
        return True
    try:
        source = ip_network(words[5], strict=False)
    except ValueError:
        return False
    return words[-1] == "in" and source.version == 4 and rail.network.subnet_of(source)


CHECKS = (
    Check(
        id="fabric.override",
        reads="what a node's fabric sets by hand (HEAD_IP, HEAD_IFNAME, HEAD_HCAS of the recipes)",
        bad="the interface, address or device is not there, or the interface has no IPv4: fail; the "
        "interface is no RDMA device's: warn",
        source="recipe A",
        find=_override,
        sections=("fabric",),
        applies=between_nodes,
        kind=FABRIC,
    ),
    Check(
        id="fabric.ipv4",
        reads="addresses of the interfaces of ACTIVE devices",
        bad="none, an address twice (on any interface), or prefix length 32 or 0: fail (warn where another "
        "rail has a network); both halves in one subnet: warn",
        source=TABLE,
        find=_ipv4,
        sections=("fabric",),
        applies=between_nodes,
        kind=FABRIC,
    ),
    Check(
        id="fabric.subnet",
        reads="networks of the nodes' rails; names and ports may differ",
        bad="none is shared with the head: fail; one joins no other node while another has an end for it: "
        "warn (with fabric.rails, rdma.active fails)",
        source=TABLE,
        find=_subnet,
        sections=("fabric",),
        applies=between_nodes,
        kind=FABRIC,
    ),
    Check(
        id="fabric.gid",
        reads="sysfs: GID table of every rail's device",
        bad="no RoCE v2 GID of its address, or not where the spec says: fail (warn without GPUs). Devices "
        "that disagree are fine: the variable is left unset",
        source=TABLE,
        find=_gid,
        sections=("fabric",),
        applies=between_nodes,
    ),
    Check(
        id="fabric.persistent",
        reads="files of netplan, systemd-networkd and NetworkManager",
        bad="address or MTU was set at run time only: warn",
        source=TABLE,
        find=_persistent,
        sections=("fabric", "health.configured"),
        applies=between_nodes,
    ),
    Check(
        id="fabric.firewall",
        reads="ufw's settings and rules",
        bad="active without a rule for a fabric interface: fail (ping works, RDMA hangs)",
        source=TABLE,
        find=_firewall,
        sections=("fabric", "health.firewall"),
        applies=between_nodes,
    ),
)
