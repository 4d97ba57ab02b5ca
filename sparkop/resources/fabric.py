# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""The network between the nodes: an active rail with an address on each, one subnet, the asked MTU.

Read only. What is wrong here is physical or needs root: it is told with what to do (decision 6).
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_network
from typing import Any

from sparkop.hosts.base import Json
from sparkop.hosts.document import Document, Interface
from sparkop.hosts.rails import Rail, rails
from sparkop.resources.base import Context, Difference
from sparkop.resources.compare import unread
from sparkop.resources.desired import Desired, DesiredNode
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Blocker, Cause, Operation, Unknown
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

KIND = "fabric"


class Fabric:
    """Nothing is planned; ranks wait until it is right."""

    kind = KIND

    def prepare(self, spec: ClusterSpec) -> Any:
        return None

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Json]:
        return {}

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        if len(desired.spec.nodes) == 1:
            return Difference()
        blockers: list[Blocker] = []
        unknown: list[Unknown] = []
        for node in desired.nodes.values():
            document = observed.documents[node.name]
            if document.fabric is None:
                unknown.append(unread(document, "fabric", node.name, KIND))
            else:
                blockers += _node(desired.spec, node, document)
        blockers += _addresses(desired)
        blockers += _subnets(desired, observed)
        blockers += _mtu_parity(desired, observed)
        return Difference(blockers=tuple(blockers), unknown=tuple(unknown))

    def perform(self, operation: Operation, context: Context) -> None:
        raise AssertionError(f"{KIND} plans nothing: {operation.key}")


def _node(spec: ClusterSpec, node: DesiredNode, document: Document) -> list[Blocker]:
    found = rails(document)
    if node.facts is None or node.facts.fabric is None:
        return [_no_rail(node.name, document)]
    blockers = []
    interface = _interface(document, node.facts.fabric.interface)
    if interface is None or interface.carrier is False or interface.operstate == "down":
        state = "absent" if interface is None else "no carrier" if interface.carrier is False else "down"
        blockers.append(
            Blocker(
                node.name,
                KIND,
                Cause(f"{node.facts.fabric.interface}.link", state, "up"),
                _link_remedy(node.facts.fabric.interface, interface),
            )
        )
    if spec.fabric.rails is not None and len(found) < spec.fabric.rails:
        blockers.append(
            Blocker(
                node.name,
                KIND,
                Cause("rails", f"{len(found)} active", f"{spec.fabric.rails} active"),
                f"{_down(document)}; check cable and addresses, or lower fabric.rails",
            )
        )
    for rail in found if spec.fabric.mtu is not None else ():
        if rail.mtu != spec.fabric.mtu:
            blockers.append(
                Blocker(
                    node.name,
                    KIND,
                    Cause(f"{rail.interface}.mtu", str(rail.mtu), str(spec.fabric.mtu)),
                    f"on {node.name}: sudo ip link set {rail.interface} mtu {spec.fabric.mtu}; and netplan",
                )
            )
    return blockers


def _no_rail(name: str, document: Document) -> Blocker:
    assert document.fabric is not None
    devices = document.fabric.devices
    active = [d for d in devices if d.state == "ACTIVE"]
    if not devices:
        observed, remedy = (
            "no RDMA device",
            "check that the ConnectX-7 driver is loaded (lsmod | grep mlx5_ib)",
        )
    elif not active:
        observed, remedy = _down(document), "plug the cable in, or check the other end: no fabric link is up"
    else:
        observed = f"{active[0].name} is active, without an IPv4 address"
        netdev = active[0].netdevs[0] if active[0].netdevs else "the interface"
        remedy = f"give {netdev} an address with netplan (see NVIDIA's guide for two Sparks)"
    return Blocker(name, KIND, Cause("rails", observed, "an active rail with an IPv4 address"), remedy)


def _link_remedy(name: str, interface: Interface | None) -> str:
    if interface is not None and interface.carrier is None:
        return f"the interface was switched off: sudo ip link set {name} up"
    return "check the cable at both ends"


def _down(document: Document) -> str:
    down = [d.name for d in (document.fabric.devices if document.fabric else ()) if d.state != "ACTIVE"]
    return f"{', '.join(down)} not active" if down else "all devices active, but some have no IPv4 address"


def _interface(document: Document, name: str) -> Interface | None:
    found = document.fabric.interfaces if document.fabric else ()
    return next((i for i in found if i.name == name), None)


def _addresses(desired: Desired) -> list[Blocker]:
    seen: dict[str, str] = {}
    blockers = []
    for node in desired.nodes.values():
        if node.facts is None or node.facts.fabric is None:
            continue
        address = node.facts.fabric.address
        first = seen.setdefault(address, node.name)
        if first != node.name:
            blockers.append(
                Blocker(
                    node.name,
                    KIND,
                    Cause("address", f"{address}, also on {first}", "an address of its own"),
                    "give each node its own fabric address with netplan",
                )
            )
    return blockers


def _subnets(desired: Desired, observed: Observed) -> list[Blocker]:
    """Every node must share a fabric subnet with the head. Ports may be crossed: any rail counts."""
    if desired.head not in desired.nodes:
        return []
    head = _networks(rails(observed.documents[desired.head]))
    blockers = []
    for node in desired.nodes.values():
        own = _networks(rails(observed.documents[node.name]))
        if node.head or not head or not own or head & own:
            continue
        blockers.append(
            Blocker(
                node.name,
                KIND,
                Cause("subnet", ", ".join(sorted(own)), f"one of the head's: {', '.join(sorted(head))}"),
                "put the fabric addresses of all nodes into one subnet",
            )
        )
    return blockers


def _networks(found: tuple[Rail, ...]) -> set[str]:
    return {str(ip_network(f"{rail.address}/{rail.prefix}", strict=False)) for rail in found}


def _mtu_parity(desired: Desired, observed: Observed) -> list[Blocker]:
    """Ends of a link with different MTUs lose large packets: NCCL hangs although ping works."""
    if desired.spec.fabric.mtu is not None:
        return []
    first = {name: rail for name in desired.nodes for rail in rails(observed.documents[name])[:1]}
    largest = max((rail.mtu for rail in first.values()), default=0)
    return [
        Blocker(
            name,
            KIND,
            Cause(f"{rail.interface}.mtu", str(rail.mtu), f"{largest}, as on the other nodes"),
            f"on {name}: sudo ip link set {rail.interface} mtu {largest}; and set it in netplan",
        )
        for name, rail in first.items()
        if rail.mtu != largest
    ]
