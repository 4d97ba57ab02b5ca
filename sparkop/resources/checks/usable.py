"""Addresses and MTU that a fabric interface could be given: remedies that can be typed as they are. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from shlex import quote

from sparkop.hosts.addresses import ip_interface
from sparkop.hosts.rails import Rail, joined
from sparkop.resources.checks.model import Look

FIRST, MANY = IPv4Network("10.0.22.0/24"), 250
"""The recipes' subnet; further rails take the ones after it."""
STANDARD = 1500
"""MTU that an interface has without any setting."""


def give_address(look: Look, interface: str, *, nth: int = 0) -> str:
    """The command that gives an interface without IPv4 an address: where another node has an end that nobody
    is joined with, else in the ``nth`` network that nobody uses."""
    return _add(look, interface, open_network(look, interface) or _unused(look, nth))


def move_address(look: Look, rail: Rail, into: IPv4Network | None = None) -> str:
    """The command that puts a rail's address into another network, or gives it another one in ``into``. The
    old one goes first: it may hold the new one as its secondary."""
    network = into or open_network(look, rail.interface) or _unused(look, 0)
    return f"{take_address(rail.interface, f'{rail.address}/{rail.prefix}')} && " + _add(
        look, rail.interface, network
    )


def bound_address(look: Look, rail: Rail) -> str:
    """The command that gives a rail's address a prefix length that its peers are in."""
    network = wanted_network(look, rail)
    if IPv4Address(rail.address) not in network:
        return move_address(look, rail, network)
    old, new = (f"{rail.address}/{prefix}" for prefix in (rail.prefix, network.prefixlen))
    return f"{take_address(rail.interface, old)} && {_command(rail.interface, new)}"


def take_address(interface: str, address: str) -> str:
    """The command that takes an address from an interface."""
    return f"sudo ip addr del {address} dev {quote(interface)}"


def wanted_network(look: Look, rail: Rail) -> IPv4Network:
    """The network that a rail belongs in: its own; where its prefix length tells none, that of a peer which
    holds its address, or that of an end which nobody is joined with."""
    if rail.bounded:
        return rail.network
    address = IPv4Address(rail.address)
    others = (peer for name in look.documents if name != look.name for peer in look.rails(name))
    around = (peer.network for peer in others if peer.bounded and address in peer.network)
    return next(around, None) or open_network(look, rail.interface) or _around(rail)


def _around(rail: Rail) -> IPv4Network:
    return IPv4Network(f"{rail.address}/{FIRST.prefixlen}", strict=False)


def lost_rails(look: Look) -> list[tuple[Rail, IPv4Network]]:
    """Rails of the node that don't reach the others, while there is an end for them; with its network.

    The head stays where it is, unless it is the one that left: each pair of such ends is told of once. A rail
    that nobody has an end for is no fault: one cable, or a network of another purpose.
    """
    ends = _others_ends(look) if look.head else _heads_ends(look)
    met = {rail.device for rail in _meeting_head(look)}
    own = [rail for rail in _in_use(look, look.name) if rail.device not in met]
    found = []
    for rail in sorted(own, key=lambda each: _joins(look, look.name, each)):
        alone = not _joins(look, look.name, rail)
        fitting = [end for end, kept in ends if alone or kept]
        if fitting:  # that of the same name first: most cables join equal cages
            end = min(fitting, key=lambda each: each.interface != rail.interface)
            ends = [each for each in ends if each[0] is not end]
            found.append((rail, end.network))
    return found


def _meeting_head(look: Look) -> list[Rail]:
    """Own rails that are joined with the head's; of the head, those that are joined with anybody's."""
    head = look.desired.head
    if look.head:
        return [rail for rail in look.rails() if _joins(look, look.name, rail)]
    return [own for own, _ in joined(look.rails(), look.rails(head))] if head in look.documents else []


def _heads_ends(look: Look) -> list[tuple[Rail, bool]]:
    """Ends of the head that this node has no rail for, and whether another node has one."""
    head = look.desired.head
    if head not in look.documents:
        return []
    met = {theirs.device for _, theirs in joined(look.rails(), look.rails(head))}
    return [(end, _joins(look, head, end)) for end in _in_use(look, head) if end.device not in met]


def _others_ends(look: Look) -> list[tuple[Rail, bool]]:
    """One end for each network that joins other nodes, and not the head."""
    found: dict[IPv4Network, Rail] = {}
    for name in look.documents:
        for end in _in_use(look, name) if name != look.name else ():
            if end.network not in look.nodes.networks[look.name] and _joins(look, name, end):
                found.setdefault(end.network, end)
    return [(end, True) for end in found.values()]


def _in_use(look: Look, name: str) -> list[Rail]:
    """Rails of a node that could be joined, without those that the spec leaves out."""
    used = look.spec.node(name).fabric.all_hcas
    return [rail for rail in look.rails(name) if rail.bounded and (not used or rail.device in used)]


def _joins(look: Look, node: str, rail: Rail) -> bool:
    """Whether another node is in a rail's network."""
    return any(rail.network in look.nodes.networks[name] for name in look.documents if name != node)


def open_network(look: Look, interface: str) -> IPv4Network | None:
    """The network of an end of another node that this one is not joined with."""
    ends = []
    for name in look.documents:
        if name != look.name:
            met = {theirs.device for _, theirs in joined(look.rails(), look.rails(name))}
            ends += [rail for rail in look.rails(name) if rail.device not in met]
    if not ends:  # that of the same name first: most cables join equal cages
        return None
    end = min(ends, key=lambda rail: rail.interface != interface)
    return end.network if end.bounded else _around(end)


def _unused(look: Look, nth: int) -> IPv4Network:
    """The ``nth`` network that overlaps none that was read."""
    taken = [network for address in _all(look) if (network := ip_interface(address).network).version == 4]
    taken = [network for network in taken if network.prefixlen]  # one holds everything: it says nothing
    step = FIRST.num_addresses
    wanted = (IPv4Network((int(FIRST[0]) + step * n, FIRST.prefixlen)) for n in range(MANY))
    free = [each for each in wanted if not any(each.overlaps(other) for other in taken)]
    return free[nth] if nth < len(free) else FIRST


def _add(look: Look, interface: str, network: IPv4Network) -> str:
    number = next(_free(look, network), None)
    if number is None:  # full: a network of two has no place for a third
        network = _unused(look, 0)
        number = next(_free(look, network), network[1])
    return _command(interface, f"{number}/{network.prefixlen}")


def _command(interface: str, address: str) -> str:
    return f"sudo ip addr add {address} dev {quote(interface)}; {keep(interface, address=address)}"


def keep(interface: str, *, address: str | None = None, mtu: int | None = None) -> str:
    """The command that writes it into netplan's files, without applying them: for the next boot."""
    settings = [f"addresses=[{address}]"] if address is not None else []
    settings += [f"mtu={mtu}"] if mtu is not None else []
    device = interface.replace(".", r"\.")  # else a step of the path
    return "; ".join(f"sudo netplan set {quote(f'ethernets.{device}.{setting}')}" for setting in settings)


def _free(look: Look, network: IPv4Network) -> Iterator[IPv4Address]:
    """Addresses that nobody has: that of the node's place in the spec first."""
    taken = {address.partition("/")[0] for address in _all(look)}
    index = [node.name for node in look.spec.nodes].index(look.name)
    point_to_point = network.prefixlen == 31  # both its addresses are hosts
    first, hosts = (0, 2) if point_to_point else (1, max(1, network.num_addresses - 2))
    numbers = (network[first + (index + n) % hosts] for n in range(min(hosts, MANY)))
    return (each for each in numbers if str(each) not in taken)


def _all(look: Look) -> list[str]:
    """Addresses of every interface that was read, with prefix length."""
    return [
        address
        for document in look.documents.values()
        for interface in (document.fabric.interfaces if document.fabric else ())
        for address in interface.addresses
    ]
