"""The fabric as it is drawn: ports of nodes, and which of them are joined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparkop.engines.common import nccl_environment
from sparkop.hosts.document import Device, Document, Interface
from sparkop.hosts.rails import joined
from sparkop.reconcile.doctor import Report
from sparkop.resources.checks.model import State
from sparkop.resources.checks.topology import cages
from sparkop.resources.desired import Desired

VARIABLES = (
    "VLLM_HOST_IP",
    "SGLANG_HOST_IP",
    "NCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAME",
    "TP_SOCKET_IFNAME",
    "NCCL_IB_HCA",
    "NCCL_IB_GID_INDEX",
)
"""What detection hands to the ranks of a node."""


@dataclass(frozen=True)
class Port:
    """One RDMA device of a node with its network interface."""

    node: str
    cage: int | None
    device: str
    interface: str
    state: str
    address: str | None
    """With prefix length."""
    mtu: int | None
    speed_mbps: int | None
    gid_index: int | None
    problem: State
    """The worst that a check says of it."""


@dataclass(frozen=True)
class Wire:
    """Ports that share a network and belong together, the head's first; one end only: nobody is joined."""

    network: str
    ends: tuple[Port, ...]

    @property
    def problem(self) -> State:
        """The worst of its ends; a wire with one end joins nothing."""
        order = list(State)
        worst = max((end.problem for end in self.ends), key=order.index)
        return State.FAIL if len(self.ends) < 2 else worst


@dataclass(frozen=True)
class FabricMap:
    """Everything that is drawn."""

    report: Report
    ports: tuple[Port, ...]
    wires: tuple[Wire, ...]
    variables: Mapping[str, Mapping[str, str]]
    """Node -> what its rank gets; missing where its place on the fabric is not known."""

    def of(self, node: str) -> tuple[Port, ...]:
        """The ports of a node."""
        return tuple(port for port in self.ports if port.node == node)


def fabric_map(report: Report) -> FabricMap:
    """Of a report that holds the checks of the fabric."""
    ports = tuple(
        port
        for node in report.nodes
        if node in report.documents
        for port in _ports(report, node, report.documents[node])
    )
    variables = _variables(report.desired) if report.desired else {}
    return FabricMap(report, ports, tuple(_wires(report, ports)), variables)


def _ports(report: Report, node: str, document: Document) -> list[Port]:
    cage_of = {device.name: cage.number for cage in cages(document) for device in cage.devices}
    interfaces = {i.name: i for i in (document.fabric.interfaces if document.fabric else ())}
    gids = {rail.device: rail.gid_index for rail in report.rails(node)}
    found = []
    for device in document.fabric.devices if document.fabric else ():
        interface = next((interfaces[name] for name in device.netdevs if name in interfaces), None)
        found.append(_port(report, node, device, interface, cage_of.get(device.name), gids.get(device.name)))
    return sorted(found, key=lambda p: (p.cage if p.cage is not None else 99, p.device.casefold()))


def _port(
    report: Report, node: str, device: Device, interface: Interface | None, cage: int | None, gid: int | None
) -> Port:
    addresses = [a for a in (interface.addresses if interface else ()) if ":" not in a]
    return Port(
        node=node,
        cage=cage,
        device=device.name,
        interface=interface.name if interface else "-",
        state=device.state,
        address=addresses[0] if addresses else None,
        mtu=interface.mtu if interface else None,
        speed_mbps=interface.speed_mbps if interface else None,
        gid_index=gid,
        problem=_problem(report, node, device.name, interface.name if interface else device.name),
    )


def _problem(report: Report, node: str, device: str, interface: str) -> State:
    """The worst finding of the node that names the port."""
    worst = State.OK
    for result in report.results:
        for found in result.complaints if result.node == node else ():
            words = f"{found.field} {found.observed}".replace(",", " ").replace(".", " ").split()
            if (device in words or interface in words) and list(State).index(found.state) > list(State).index(
                worst
            ):
                worst = found.state
    return worst


def _wires(report: Report, ports: tuple[Port, ...]) -> list[Wire]:
    nodes = [node for node in report.nodes if node in report.documents]
    if not nodes or len(report.nodes) == 1:
        return []
    by_device = {(port.node, port.device): port for port in ports}
    head, *others = nodes
    wires: dict[str, tuple[str, list[Port]]] = {}
    for rail in report.rails(head):
        wires[rail.device] = (str(rail.network), [by_device[head, rail.device]])
    alone = []
    for node in others:
        partners = {
            theirs.device: own.device for own, theirs in joined(report.rails(head), report.rails(node))
        }
        for rail in report.rails(node):
            port = by_device[node, rail.device]
            if rail.device in partners:
                wires[partners[rail.device]][1].append(port)
            else:
                alone.append(Wire(str(rail.network), (port,)))
    return [Wire(network, tuple(ends)) for network, ends in wires.values()] + alone


def _variables(desired: Desired) -> dict[str, dict[str, str]]:
    rendered = {rank.node: rank.container.environment or {} for rank in desired.ranks}
    found = {}
    for node in desired.nodes.values():
        if node.facts is None or node.facts.fabric is None:
            continue
        environment = rendered.get(node.name) or nccl_environment(desired.spec, node.facts)
        found[node.name] = {name: environment[name] for name in VARIABLES if name in environment}
    return found
