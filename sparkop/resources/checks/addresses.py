"""Checks of the fabric's addresses: given by hand, IPv4, subnets, GIDs, whether they last, firewall."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network, ip_network

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
    or_ok,
    unknown,
    warn,
)
from sparkop.resources.checks.topology import devices_of, interface_named, ipv4_of
from sparkop.resources.checks.usable import STANDARD, give_address, keep, move_address


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
        )
    elif by_hand.interface and not by_hand.address and named and ipv4_of(named) is None:
        yield fail(
            "fabric.interface",
            f"{by_hand.interface}, which has no IPv4 address",
            "an interface with one",
            f"on {look.name}: {give_address(look, by_hand.interface)}; or leave fabric.interface out: "
            "it is detected",
        )
    elif by_hand.interface and look.rdma and by_hand.interface not in _of_devices(look):
        yield warn(
            "fabric.interface",
            f"{by_hand.interface}, which belongs to no RDMA device",
            f"one of {', '.join(_of_devices(look)) or 'none: no RDMA device'}",
            f"correct it for {look.name}, or leave it out: it is detected",
        )
    if by_hand.address and not any(_holds(i, by_hand.address) for i in ([named] if named else interfaces)):
        yield fail(
            "fabric.address",
            f"{by_hand.address}, which is not on {named.name if named else 'any interface'}",
            f"one of {', '.join(named.addresses)}" if named and named.addresses else "an address of the node",
            f"correct it for {look.name}, or leave it out: it is detected",
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
            f"on {look.name}: {give_address(look, netdev)}",
        )
    for nth, device in enumerate(bare if found else ()):
        netdev = device.netdevs[0] if device.netdevs else device.name
        yield fail(
            f"{netdev}.address",
            "none",
            f"an IPv4 address: {device.name} is ACTIVE",
            f"on {look.name}: {give_address(look, netdev, nth=nth)}",
            holds=False,
        )
    yield from _twice(look)
    yield from _one_subnet(look)
    if found:
        yield ok(", ".join(f"{rail.interface} {rail.address}/{rail.prefix}" for rail in found))


def _twice(look: Look) -> Iterator[Finding]:
    """An address that an earlier node, or this one, has as well."""
    for rail in look.rails():
        node, interface = look.nodes.holders[rail.address]
        if (node, interface) != (look.name, rail.interface):
            yield fail(
                "address",
                f"{rail.address}, also on {node if node != look.name else interface}",
                "an address of its own",
                f"on {look.name}: {move_address(look, rail, rail.network)}",
            )


def _one_subnet(look: Look) -> Iterator[Finding]:
    by_network: dict[IPv4Network, list[Rail]] = {}
    for rail in look.rails():
        by_network.setdefault(rail.network, []).append(rail)
    for network, found in by_network.items():
        if len(found) > 1:
            yield warn(
                "subnet",
                f"{network} on {' and '.join(rail.interface for rail in found)}",
                "one subnet for each half: packets of one can leave by the other",
                "it works, with less bandwidth, and NVIDIA's guide has it so; to part them, while nothing "
                f"serves, on {look.name}: {move_address(look, found[-1])}; and so on every node",
            )


def _subnet(look: Look) -> Iterator[Finding]:
    if look.head or look.desired.head not in look.documents:
        return
    own = {str(network) for network in look.nodes.networks[look.name]}
    head = {str(network) for network in look.nodes.networks[look.desired.head]}
    if not own or not head:
        return
    if own & head:
        yield ok(f"shared with {look.desired.head}: {', '.join(sorted(own & head))}")
        return
    yield fail(
        "subnet",
        ", ".join(sorted(own)),
        f"one of the head's: {', '.join(sorted(head))}",
        f"on {look.name}: {move_address(look, look.rails()[0])}",
    )


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
                f"sudo ip link set dev {rail.interface} down, then up: the table is filled again",
            )
        elif asked is not None and rail.gid_index != asked:
            yield Finding(
                level,
                f"{rail.gid_index} at {rail.device}",
                "GID index",
                f"{asked}, as the spec says",
                "leave fabric.gidIndex out: it is read on each node before each start",
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
                f"{rail.interface}: {configured.unreadable} network files need root to read", _look()
            )
        else:
            yield warn(
                rail.interface,
                f"{' and '.join(lost)} set at run time only",
                "in netplan: else gone after a reboot",
                f"on {look.name}: {keep(rail.interface, address=address, mtu=mtu)}",
            )


def _look() -> str:
    return "sudo netplan get shows whether address and MTU are there"


def _firewall(look: Look) -> Iterator[Finding]:
    health = look.document.health
    firewall = health.firewall if health else None
    if firewall is None or not firewall.enabled:
        yield ok("ufw is off")
        return
    for rail in look.rails():
        remedy = f"sudo ufw allow in on {rail.interface}"
        if firewall.rules is None:
            yield unknown(
                f"ufw is on, its rules need root to read: {rail.interface} may be closed",
                f"sudo ufw status; if {rail.interface} is not in it: {remedy}",
            )
        elif any(_lets_in(rule, rail) for rule in firewall.rules):
            yield ok(f"ufw lets {rail.interface} in")
        else:
            yield fail(
                f"ufw on {rail.interface}",
                "active, without a rule for it",
                "allowed: ping works, RDMA hangs",
                remedy,
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
        "fabric.override",
        "what a node's fabric sets by hand (HEAD_IP, HEAD_IFNAME, HEAD_HCAS of the recipes)",
        "the interface, address or device is not there, or the interface has no IPv4: fail; the interface is "
        "no RDMA device's: warn",
        "row A11",
        _override,
        ("fabric",),
        between_nodes,
        FABRIC,
    ),
    Check(
        "fabric.ipv4",
        "addresses of the interfaces of ACTIVE devices",
        "none, or an address twice: fail; both halves in one subnet: warn",
        TABLE,
        _ipv4,
        ("fabric",),
        between_nodes,
        FABRIC,
    ),
    Check(
        "fabric.subnet",
        "networks of the nodes' rails; names and ports may differ",
        "none is shared with the head: fail",
        TABLE,
        _subnet,
        ("fabric",),
        between_nodes,
        FABRIC,
    ),
    Check(
        "fabric.gid",
        "sysfs: GID table of every rail's device",
        "no RoCE v2 GID of its address, or not where the spec says: fail (warn without GPUs). Devices that "
        "disagree are fine: the variable is left unset",
        TABLE,
        _gid,
        ("fabric",),
        between_nodes,
    ),
    Check(
        "fabric.persistent",
        "files of netplan, systemd-networkd and NetworkManager",
        "address or MTU was set at run time only: warn",
        TABLE,
        _persistent,
        ("fabric", "health.configured"),
        between_nodes,
    ),
    Check(
        "fabric.firewall",
        "ufw's settings and rules",
        "active without a rule for a fabric interface: fail (ping works, RDMA hangs)",
        TABLE,
        _firewall,
        ("fabric", "health.firewall"),
        between_nodes,
    ),
)
