"""Checks of the way from each rail to the rail at its other end: route, MTU, answer."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from sparkop.hosts.rails import Rail, joined
from sparkop.resources.checks.model import (
    FABRIC,
    TABLE,
    Check,
    Finding,
    Look,
    between_nodes,
    fail,
    ok,
    unknown,
    warn,
)
from sparkop.resources.checks.usable import STANDARD, keep

JUMBO = 9000
"""MTU that the peers' figures were reached with."""
LOOPBACK = "lo"
SMALL = 84
"""Bytes of an ordinary ping."""


def _route(look: Look) -> Iterator[Finding]:
    routes = look.document.fabric.routes if look.document.fabric else {}
    rails_here = {rail.interface: rail for rail in look.rails()}
    for rail, peer, other in _peers(look):
        if other.address not in routes:
            continue
        route = routes[other.address]
        through = route.interface if route else None
        if through == LOOPBACK:
            continue  # the node has that address too, which fabric.ipv4 tells: no route is at fault
        port = quote(rail.interface)
        if through is None:
            way = f"sudo ip route add {rail.network} dev {port} src {rail.address}"
            wanted = f"by {rail.interface}"
            yield fail(f"route to {peer}", f"none to {other.address}", wanted, way, ports=(rail.interface,))
        elif through != rail.interface and not (
            through in rails_here and rails_here[through].network == rail.network
        ):
            yield fail(
                f"route to {peer}",
                f"{other.address} by {through}",
                f"by {rail.interface}",
                f"sudo ip route replace {other.address}/32 dev {port} src {rail.address}; "
                f"ip route show match {other.address}  # says which one led away",
                ports=(rail.interface,),
            )
        else:
            yield ok(f"{other.address} by {through}")


def _mtu(look: Look) -> Iterator[Finding]:
    wanted = look.spec.fabric.mtu
    bad: set[str] = set()
    for rail in look.rails() if wanted is not None else ():
        if rail.mtu != wanted:
            bad.add(rail.interface)
            yield _set_mtu(rail, str(wanted), wanted or JUMBO)
    if wanted is None:
        for rail in look.rails():
            largest = look.nodes.largest_mtu[rail.network]
            if rail.mtu < largest:
                bad.add(rail.interface)
                yield _set_mtu(rail, f"{largest}, as on the other nodes", largest)
        for rail in look.rails():
            if rail.mtu <= STANDARD and rail.interface not in bad:
                bad.add(rail.interface)
                yield warn(
                    f"{rail.interface}.mtu",
                    str(rail.mtu),
                    f"{JUMBO} on every node: small packets slow the group",
                    f"{_with_mtu(rail, JUMBO)}  # on every node",
                    ports=(rail.interface,),
                )
    yield from _pings(look, bad)
    good = [rail for rail in look.rails() if rail.interface not in bad]
    if good:
        yield ok(", ".join(f"{rail.interface} {rail.mtu}" for rail in good))


def _set_mtu(rail: Rail, told: str, mtu: int) -> Finding:
    return fail(
        f"{rail.interface}.mtu",
        str(rail.mtu),
        told,
        _with_mtu(rail, mtu),
        ports=(rail.interface,),
    )


def _with_mtu(rail: Rail, mtu: int) -> str:
    """The command, for now and for the next boot."""
    return f"sudo ip link set dev {quote(rail.interface)} mtu {mtu}; {keep(rail.interface, mtu=mtu)}"


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
                f"ping -M do -s {rail.mtu - 28} -I {quote(rail.interface)} {other.address}  "
                f"# shows it: set the MTU of whatever lies between to at least {rail.mtu}",
                ports=(rail.interface,),
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
                way = "sudo sysctl net.ipv4.ping_group_range='0 2147483647'  # lets every user ping"
                told = f"{other.address} could not be pinged: {reason}"
                yield unknown(told, way, ports=(rail.interface,))
        elif ping.answered:
            yield ok(f"{other.address} answers in {1000 * (ping.seconds or 0):.1f} ms")
        else:
            yield fail(
                f"{rail.interface} to {peer}",
                f"no answer from {other.address} ({ping.reason})",
                "an answer",
                f"ping -I {quote(rail.interface)} {other.address}; sudo ufw status  "
                "# look for a firewall, a wrong prefix length, or cables in other ports",
                ports=(rail.interface,),
            )


CHECKS = (
    Check(
        id="fabric.route",
        reads="the kernel's route to every peer's address",
        bad="there is none, or it leaves by another interface: fail",
        source=TABLE,
        find=_route,
        sections=("fabric",),
        applies=between_nodes,
    ),
    Check(
        id="fabric.mtu",
        reads="MTU of both ends, and an unfragmented ping of that size",
        bad="the ends differ, or it is not what the spec asks for, or large packets are lost: fail; "
        "1500 where nothing is asked: warn",
        source=TABLE,
        find=_mtu,
        sections=("fabric",),
        applies=between_nodes,
        kind=FABRIC,
    ),
    Check(
        id="fabric.reach",
        reads="a small ping from each rail to the rail at its other end",
        bad="no answer: fail",
        source=TABLE,
        find=_reach,
        sections=("fabric",),
        applies=between_nodes,
    ),
)
