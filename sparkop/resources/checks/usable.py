"""Addresses and MTU that a fabric interface could be given: remedies that can be typed as they are. Pure."""

from __future__ import annotations

from ipaddress import IPv4Network, ip_interface

from sparkop.hosts.rails import Rail, joined
from sparkop.resources.checks.model import Look

FIRST, MANY = IPv4Network("10.0.22.0/24"), 250
"""The recipes' subnet; further rails take the ones after it."""
STANDARD = 1500
"""MTU that an interface has without any setting."""


def give_address(look: Look, interface: str, *, nth: int = 0) -> str:
    """The command that gives an interface without IPv4 an address: where another node has an end that nobody
    is joined with, else in the ``nth`` network that nobody uses."""
    return _add(look, interface, _network(look, interface, nth))


def move_address(look: Look, rail: Rail, into: IPv4Network | None = None) -> str:
    """The command that puts a rail's address into another network, or gives it another one in ``into``. The
    old one goes first: it may hold the new one as its secondary."""
    old = f"sudo ip addr del {rail.address}/{rail.prefix} dev {rail.interface}"
    new = _add(look, rail.interface, into or _network(look, rail.interface, 0))
    return f"{old} && {new}"


def _add(look: Look, interface: str, network: IPv4Network) -> str:
    address = f"{_free(look, network)}/{network.prefixlen}"
    return f"sudo ip addr add {address} dev {interface}; {keep(interface, address=address)}"


def keep(interface: str, *, address: str | None = None, mtu: int | None = None) -> str:
    """The command that writes it into netplan's files, without applying them: for the next boot."""
    settings = [f"addresses=[{address}]"] if address is not None else []
    settings += [f"mtu={mtu}"] if mtu is not None else []
    return "; ".join(f"sudo netplan set 'ethernets.{interface}.{setting}'" for setting in settings)


def _network(look: Look, interface: str, nth: int) -> IPv4Network:
    open_ends = []
    for name in look.documents:
        if name != look.name:
            met = {theirs.device for _, theirs in joined(look.rails(), look.rails(name))}
            open_ends += [rail for rail in look.rails(name) if rail.device not in met]
    if open_ends:  # that of the same name first: most cables join equal cages
        return min(open_ends, key=lambda rail: rail.interface != interface).network
    taken = [network for address in _all(look) if (network := ip_interface(address).network).version == 4]
    step = FIRST.num_addresses
    wanted = (IPv4Network((int(FIRST[0]) + step * n, FIRST.prefixlen)) for n in range(MANY))
    free = [each for each in wanted if not any(each.overlaps(other) for other in taken)]
    return free[nth] if nth < len(free) else FIRST


def _free(look: Look, network: IPv4Network) -> str:
    """The node's place in the spec as last number, or the next one that nobody has."""
    taken = {address.partition("/")[0] for address in _all(look)}
    index = [node.name for node in look.spec.nodes].index(look.name)
    hosts = max(1, network.num_addresses - 2)
    numbers = (network[1 + (index + n) % hosts] for n in range(min(hosts, MANY)))
    return next((str(each) for each in numbers if str(each) not in taken), str(network[1]))


def _all(look: Look) -> list[str]:
    """Addresses of every interface that was read, with prefix length."""
    return [
        address
        for document in look.documents.values()
        for interface in (document.fabric.interfaces if document.fabric else ())
        for address in interface.addresses
    ]
