"""The fabric as it is drawn: ports of nodes, and which of them are joined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Interface

from sparkop.engines.common import nccl_environment
from sparkop.hosts.document import Device, Document, Interface
from sparkop.hosts.rails import Rail, joined
from sparkop.reconcile.doctor import Report
from sparkop.records import dataclass
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
    """Ports that share a network and belong together, the first node's first."""

    network: str
    ends: tuple[Port, ...]
    alone: State = State.FAIL
    """How bad it is when there is one end only. Unknown: some node's fabric was not read, and may be the
    other end; a warning: the node reaches the others by another rail."""

    @property
    def problem(self) -> State:
        """The worst of its ends; a wire with one end joins nothing."""
        found = [end.problem for end in self.ends] + ([self.alone] if len(self.ends) < 2 else [])
        return max(found, key=list(State).index)


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

    def unread(self, node: str) -> str:
        """Why the fabric of a node is not known; empty when it was read."""
        return _unread(self.report, node)


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
    """The worst finding of the node that speaks of the port."""
    found = (
        each.state
        for result in report.results
        for each in (result.complaints if result.node == node else ())
        if device in each.ports or interface in each.ports
    )
    return max(found, key=list(State).index, default=State.OK)


def _unread(report: Report, node: str) -> str:
    if node in report.unreachable:
        return report.unreachable[node]
    if node not in report.documents:
        return "was not read"
    document = report.documents[node]
    if document.fabric is not None:
        return ""
    return f"its fabric was not read: {document.error('fabric') or 'nobody asked'}"


def _wires(report: Report, ports: tuple[Port, ...]) -> list[Wire]:
    """Of each node in turn the rails that are in no wire yet, with their ends on the nodes after it."""
    if len(report.nodes) == 1:
        return []
    left = {node: list(report.rails(node)) for node in report.nodes if node in report.documents}
    port_of = {(port.node, port.device): port for port in ports}
    found: list[tuple[str, list[Port]]] = []
    for node, own in left.items():
        later = list(left)[list(left).index(node) + 1 :]
        pairs = [(other, dict(_by_device(own, left[other]))) for other in later]
        for rail in own:
            ends = [port_of[node, rail.device]]
            for other, partner in pairs:
                if rail.device in partner:
                    ends.append(port_of[other, partner[rail.device]])
            found.append((str(rail.network), ends))
        for other, partner in pairs:
            left[other] = [rail for rail in left[other] if rail.device not in partner.values()]
    whole = [(network, [*ends, *_dead_ends(network, ends, ports)]) for network, ends in found]
    reaching = {end.node for _, ends in whole if len(ends) > 1 for end in ends}
    unsure = any(_unread(report, node) for node in report.nodes)

    def alone(end: Port) -> State:
        if unsure:
            return State.UNKNOWN
        return State.WARN if end.node in reaching else State.FAIL

    return [Wire(network, tuple(ends), alone(ends[0])) for network, ends in whole]


def _by_device(own: Sequence[Rail], other: Sequence[Rail]) -> Iterator[tuple[str, str]]:
    return ((mine.device, theirs.device) for mine, theirs in joined(own, other))


def _dead_ends(network: str, ends: Sequence[Port], ports: Sequence[Port]) -> Iterator[Port]:
    """Ports of other nodes that have an address in this network, and no link: where it ended before."""
    there = {end.node for end in ends}
    for port in ports:
        if port.node in there or port.state == "ACTIVE" or port.address is None:
            continue
        if str(IPv4Interface(port.address).network) == network:
            there.add(port.node)
            yield port


def _variables(desired: Desired) -> dict[str, dict[str, str]]:
    rendered = {rank.node: rank.container.environment or {} for rank in desired.ranks}
    found = {}
    for node in desired.nodes.values():
        if node.facts is None or node.facts.fabric is None:
            continue
        environment = rendered.get(node.name) or nccl_environment(desired.spec, node.facts)
        found[node.name] = {name: environment[name] for name in VARIABLES if name in environment}
    return found
