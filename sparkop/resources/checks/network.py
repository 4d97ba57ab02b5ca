"""Checks of the fabric: devices, addresses, pairs, MTU, routes, speed, GIDs, counters, firewall.

Everything is by sysfs and addresses: names of devices are not stable, and ports may be crossed.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network, ip_network

from sparkop.hosts.document import Device, Document, Interface
from sparkop.hosts.rails import ROCE_V2, Rail, joined
from sparkop.resources.checks.model import (
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
from sparkop.resources.checks.topology import cages

KIND = "fabric"
JUMBO = 9000
"""MTU that the peers' figures were reached with."""
STANDARD = 1500
SPEED = 200_000
"""Mbit/s of a ConnectX-7 port of a Spark."""
TABLE = "owners' reports"
"""About ninety public reports of people who run two or more DGX Sparks."""
SMALL = 84
"""Bytes of an ordinary ping."""


def _active(look: Look) -> Iterator[Finding]:
    found, wanted = look.rails(), look.spec.fabric.rails
    devices = _devices(look.document)
    up = [device.name for device in devices if device.state == "ACTIVE"]
    if not found and not up:
        if _address_of(look) is None:
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
    for device in _devices(look.document):
        interface = _interface_of(look.document, device)
        if device.state != "ACTIVE" and interface is not None and (held := _ipv4_of(interface)):
            yield warn(
                device.name,
                f"{device.state}, with {held} on {interface.name}",
                "ACTIVE: the group runs with less bandwidth",
                _mend_half(look.document, device),
            )
    yield ok(f"ACTIVE: {', '.join(up)}")


def _address_of(look: Look) -> str | None:
    node = look.desired.nodes.get(look.name)
    return node.facts.fabric.address if node and node.facts and node.facts.fabric else None


def _no_device(document: Document) -> Finding:
    wanted = "an active rail with an IPv4 address"
    if not _devices(document):
        remedy = "check that the ConnectX-7 driver is loaded (lsmod | grep mlx5_ib)"
        return fail("rails", "no RDMA device", wanted, remedy)
    off = [i.name for d in _devices(document) if (i := _interface_of(document, d)) and _switched_off(i)]
    if off:
        remedy = "switched off by hand: " + "; ".join(f"sudo ip link set dev {name} up" for name in off)
    else:
        remedy = "plug the cable in, or check the other end: no fabric link is up"
    return fail("rails", _down(document), wanted, remedy)


def _switched_off(interface: Interface) -> bool:
    """Set down by someone: an address is still on it, and the kernel tells no carrier."""
    return interface.carrier is None and _ipv4_of(interface) is not None


def _ipv4_of(interface: Interface) -> str | None:
    return next((address for address in interface.addresses if ":" not in address), None)


def _devices(document: Document) -> tuple[Device, ...]:
    return document.fabric.devices if document.fabric else ()


def _interface_of(document: Document, device: Device) -> Interface | None:
    return next((i for name in device.netdevs if (i := _interface(document, name))), None)


def _interface(document: Document, name: str) -> Interface | None:
    found = document.fabric.interfaces if document.fabric else ()
    return next((i for i in found if i.name == name), None)


def _down(document: Document) -> str:
    down = sorted((d for d in _devices(document) if d.state != "ACTIVE"), key=lambda d: d.name.casefold())
    meant = [d for d in down if (i := _interface_of(document, d)) and _ipv4_of(i)] or down
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
                    _mend_half(look.document, device),
                )


def _mend_half(document: Document, device: Device) -> str:
    interface = _interface_of(document, device)
    if interface is None:
        return f"check dmesg for {device.name}: it has no network device"
    if _switched_off(interface) or interface.carrier is None:
        return f"sudo ip link set dev {interface.name} up"
    if device.state == "ACTIVE":
        return f"give {interface.name} an address of its own subnet with netplan"
    return "reseat the cable at both ends; if that does not help: full power cycle, another cable"


def _link(look: Look) -> Iterator[Finding]:
    node = look.desired.nodes.get(look.name)
    if node is None or node.facts is None or node.facts.fabric is None:
        return
    name = node.facts.fabric.interface
    interface = _interface(look.document, name)
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


def _ipv4(look: Look) -> Iterator[Finding]:
    found = look.rails()
    held = {rail.device for rail in found}
    bare = [d for d in _devices(look.document) if d.state == "ACTIVE" and d.name not in held]
    if bare and not found and _address_of(look) is None:
        netdev = bare[0].netdevs[0] if bare[0].netdevs else "the interface"
        yield fail(
            "rails",
            f"{bare[0].name} is active, without an IPv4 address",
            "an active rail with an IPv4 address",
            f"give {netdev} an address with netplan (see NVIDIA's guide for two Sparks)",
        )
    for device in bare if found else ():
        netdev = device.netdevs[0] if device.netdevs else device.name
        yield fail(
            f"{netdev}.address",
            "none",
            f"an IPv4 address: {device.name} is ACTIVE",
            f"give {netdev} an address of a subnet of its own with netplan",
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
                "give each node its own fabric address with netplan",
            )


def _one_subnet(look: Look) -> Iterator[Finding]:
    by_network: dict[IPv4Network, list[str]] = {}
    for rail in look.rails():
        by_network.setdefault(rail.network, []).append(rail.interface)
    for network, names in by_network.items():
        if len(names) > 1:
            yield warn(
                "subnet",
                f"{network} on {' and '.join(names)}",
                "one subnet for each half: packets of one can leave by the other",
                f"give {names[-1]} an address of another subnet on every node, with netplan "
                "(NVIDIA's own guide has this layout too; it works, with less bandwidth)",
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
        "put the fabric addresses of all nodes into one subnet",
    )


def _mtu(look: Look) -> Iterator[Finding]:
    wanted = look.spec.fabric.mtu
    bad: set[str] = set()
    for rail in look.rails() if wanted is not None else ():
        if rail.mtu != wanted:
            bad.add(rail.interface)
            yield _set_mtu(look, rail, str(wanted), wanted or JUMBO)
    if wanted is None:
        for rail in look.rails():
            largest = look.nodes.largest_mtu[rail.network]
            if rail.mtu < largest:
                bad.add(rail.interface)
                yield _set_mtu(look, rail, f"{largest}, as on the other nodes", largest)
        for rail in look.rails():
            if rail.mtu <= STANDARD and rail.interface not in bad:
                bad.add(rail.interface)
                yield warn(
                    f"{rail.interface}.mtu",
                    str(rail.mtu),
                    f"{JUMBO} on every node: small packets slow the group",
                    f"sudo ip link set dev {rail.interface} mtu {JUMBO} on every node; and in netplan",
                )
    yield from _pings(look, bad)
    good = [rail for rail in look.rails() if rail.interface not in bad]
    if good:
        yield ok(", ".join(f"{rail.interface} {rail.mtu}" for rail in good))


def _set_mtu(look: Look, rail: Rail, told: str, mtu: int) -> Finding:
    return fail(
        f"{rail.interface}.mtu",
        str(rail.mtu),
        told,
        f"on {look.name}: sudo ip link set {rail.interface} mtu {mtu}; and set it in netplan",
    )


def _peers(look: Look) -> Iterator[tuple[Rail, str, Rail]]:
    """Own rail, the other node, and its rail at the other end."""
    for name in look.documents:
        if name != look.name:
            for own, other in joined(look.rails(), look.rails(name)):
                yield own, name, other


def _pings(look: Look, bad: set[str]) -> Iterator[Finding]:
    """Full-size packets: a switch or the far end may hold less than both interfaces say."""
    pings = look.document.pings
    if not pings:
        return
    for rail, peer, other in _peers(look):
        large = pings.get(ping_name(other.address, rail.mtu))
        small = pings.get(ping_name(other.address, SMALL))
        if large is None or large.answered or rail.interface in bad or rail.mtu > other.mtu:
            continue
        route = look.document.fabric.routes.get(other.address) if look.document.fabric else None
        if route is not None and route.interface != rail.interface:
            continue  # told by fabric.route: another interface has another MTU
        if small is not None and small.answered:
            yield fail(
                f"{rail.interface} to {peer}",
                f"no answer from {other.address} to packets of {rail.mtu} bytes, but to small ones",
                "an answer to both",
                f"set the MTU of whatever lies between to at least {rail.mtu}; "
                f"ping -M do -s {rail.mtu - 28} -I {rail.interface} {other.address} shows it",
            )


def ping_name(address: str, size: int) -> str:
    """How a ping is called in a probe's request and answer."""
    return f"{address}/{size}"


def _reach(look: Look) -> Iterator[Finding]:
    pings = look.document.pings or {}
    for rail, peer, other in _peers(look):
        ping = pings.get(ping_name(other.address, SMALL))
        if ping is None:
            reason = look.document.error("pings", ping_name(other.address, SMALL))
            if reason:
                way = "sudo sysctl net.ipv4.ping_group_range='0 2147483647' lets every user ping"
                yield unknown(f"{other.address} could not be pinged: {reason}", way)
        elif ping.answered:
            yield ok(f"{other.address} answers in {1000 * (ping.seconds or 0):.1f} ms")
        else:
            yield fail(
                f"{rail.interface} to {peer}",
                f"no answer from {other.address} ({ping.reason})",
                "an answer",
                f"ping -I {rail.interface} {other.address}; then look for a firewall "
                "(sudo ufw status), a wrong prefix length, or cables in other ports",
            )


def _route(look: Look) -> Iterator[Finding]:
    routes = look.document.fabric.routes if look.document.fabric else {}
    rails_here = {rail.interface: rail for rail in look.rails()}
    own = {rail.address for rail in look.rails()}
    for rail, peer, other in _peers(look):
        if other.address not in routes or other.address in own:
            continue  # an address twice is told by fabric.ipv4
        route = routes[other.address]
        through = route.interface if route else None
        if through is None:
            way = f"sudo ip route add {rail.network} dev {rail.interface} src {rail.address}"
            yield fail(f"route to {peer}", f"none to {other.address}", f"by {rail.interface}", way)
        elif through != rail.interface and not (
            through in rails_here and rails_here[through].network == rail.network
        ):
            yield fail(
                f"route to {peer}",
                f"{other.address} by {through}",
                f"by {rail.interface}",
                _route_remedy(rail) + f"; ip route get {other.address}",
            )
        else:
            yield ok(f"{other.address} by {through}")


def _route_remedy(rail: Rail) -> str:
    return f"take the route or address away that is more specific than {rail.network}"


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
        lost = [] if any(a.split("/")[0] == rail.address for a in kept.addresses) else [rail.address]
        if rail.mtu != STANDARD and kept.mtu != rail.mtu:
            lost.append(f"mtu {rail.mtu}")
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
                f"write it to /etc/netplan/40-{rail.interface}.yaml; netplan apply, not while serving",
            )


def _look() -> str:
    return "sudo netplan get shows whether address and MTU are there"


def _counters(look: Look) -> Iterator[Finding]:
    before = look.earlier.get(look.name)
    old = {device.name: device.counters for device in _devices(before)} if before else {}
    for device in _devices(look.document):
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


def _override(look: Look) -> Iterator[Finding]:
    by_hand = look.node.fabric
    if by_hand.interface or by_hand.address or by_hand.all_hcas:
        yield from or_ok(_wrong_by_hand(look), "what the spec sets by hand is there")


def _wrong_by_hand(look: Look) -> Iterator[Finding]:
    by_hand = look.node.fabric
    interfaces = look.document.fabric.interfaces if look.document.fabric else ()
    named = _interface(look.document, by_hand.interface) if by_hand.interface else None
    if by_hand.interface and named is None:
        there = [name for device in _devices(look.document) for name in device.netdevs]
        yield fail(
            "fabric.interface",
            f"{by_hand.interface}, which is not there",
            f"one of {', '.join(there) or 'none: no RDMA device'}",
            f"correct it for {look.name}, or leave it out: it is detected",
        )
    if by_hand.address and not any(_holds(i, by_hand.address) for i in ([named] if named else interfaces)):
        yield fail(
            "fabric.address",
            f"{by_hand.address}, which is not on {named.name if named else 'any interface'}",
            f"one of {', '.join(named.addresses)}" if named and named.addresses else "an address of the node",
            f"correct it for {look.name}, or leave it out: it is detected",
        )
    states = {device.name: device.state for device in _devices(look.document)}
    active = ", ".join(name for name, state in states.items() if state == "ACTIVE")
    for hca in by_hand.all_hcas:
        if states.get(hca) != "ACTIVE":
            yield fail(
                "fabric.hcas",
                f"{hca}, which is {states.get(hca, 'absent')}",
                f"of those that are ACTIVE: {active or 'none'}",
                f"correct it for {look.name}, or leave it out: they are detected",
            )


def _holds(interface: Interface, address: str) -> bool:
    return any(text.split("/")[0] == address for text in interface.addresses)


CHECKS = (
    Check(
        "rdma.active",
        "sysfs: state of port 1 of every RDMA device",
        "fewer are ACTIVE than the spec wants (fabric.rails, else one): fail",
        TABLE,
        _active,
        ("fabric",),
        between_nodes,
        KIND,
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
        KIND,
    ),
    Check(
        "fabric.override",
        "what a node's fabric sets by hand (HEAD_IP, HEAD_IFNAME, HEAD_HCAS of the recipes)",
        "the interface, address or device is not there: fail",
        "row A11",
        _override,
        ("fabric",),
        between_nodes,
    ),
    Check(
        "fabric.ipv4",
        "addresses of the interfaces of ACTIVE devices",
        "none, or an address twice: fail; both halves in one subnet: warn",
        TABLE,
        _ipv4,
        ("fabric",),
        between_nodes,
        KIND,
    ),
    Check(
        "fabric.subnet",
        "networks of the nodes' rails; names and ports may differ",
        "none is shared with the head: fail",
        TABLE,
        _subnet,
        ("fabric",),
        between_nodes,
        KIND,
    ),
    Check(
        "fabric.route",
        "the kernel's route to every peer's address",
        "there is none, or it leaves by another interface: fail",
        TABLE,
        _route,
        ("fabric",),
        between_nodes,
    ),
    Check(
        "fabric.mtu",
        "MTU of both ends, and an unfragmented ping of that size",
        "the ends differ, or it is not what the spec asks for, or large packets are lost: fail; "
        "1500 where nothing is asked: warn",
        TABLE,
        _mtu,
        ("fabric",),
        between_nodes,
        KIND,
    ),
    Check(
        "fabric.reach",
        "a small ping from each rail to the rail at its other end",
        "no answer: fail",
        TABLE,
        _reach,
        ("fabric",),
        between_nodes,
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
        "fabric.counters",
        "hw_counters: packet_seq_err, out_of_sequence, req_transport_retries_exceeded, twice",
        "one grows between two readings: warn",
        TABLE,
        _counters,
        ("fabric",),
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
