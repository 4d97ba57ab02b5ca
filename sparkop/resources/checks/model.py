"""What a check is: data, one small pure function, and what it found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from functools import cached_property
from ipaddress import IPv4Network

from sparkop.engines.base import FabricFacts
from sparkop.hosts import silent_docker
from sparkop.hosts.document import Document
from sparkop.hosts.rails import Rail, rails
from sparkop.records import dataclass
from sparkop.resources.base import Difference
from sparkop.resources.desired import Desired
from sparkop.resources.operations import Blocker, Cause, Unknown, with_remedy
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

TABLE = "owners' reports"
"""About ninety public reports of people who run two or more DGX Sparks."""
PREREQUISITES, FABRIC, DISK = "prerequisites", "fabric", "disk"
"""Kinds of resources whose diff refuses to go on when one of their checks fails."""


class State(StrEnum):
    """How one check ended on one node; the later, the worse."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One thing that a check says of a node: ``field`` is ``observed`` and should be ``desired``."""

    state: State
    observed: str
    field: str = ""
    desired: str = ""
    remedy: str = ""
    """The command, or what to do by hand."""
    error: bool = False
    """Reading failed: a plan takes it for unknown. False for what was not read at all (recorded facts)."""
    holds: bool = True
    """A failure holds ``apply`` up where its check belongs to a resource; false: it can serve, but badly."""
    lessens: bool = False
    """A warning that a plan tells as well: ranks that start now go without what it speaks of."""
    ports: tuple[str, ...] = ()
    """RDMA devices or interfaces of the node that it speaks of, by name."""

    @property
    def text(self) -> str:
        """``enp1s0f0np0.mtu: 1500, should be 9000``; of what is ok, or unknown, the evidence alone."""
        if not self.field:
            return self.observed
        return f"{self.field}: {self.observed}" + (f", should be {self.desired}" if self.desired else "")


@dataclass(frozen=True)
class Held:
    """An IPv4 address that an interface of a node has."""

    node: str
    interface: str
    address: str
    """With prefix length."""
    first: bool
    """What the node is known by there; false: one more beside it."""
    fabric: bool
    """Whether the interface is an RDMA device's."""
    rail: Rail | None
    """The rail that it is the address of."""


def _held(node: str, document: Document, own: Iterable[Rail]) -> Iterator[Held]:
    devices = document.fabric.devices if document.fabric else ()
    netdevs = {name for device in devices for name in device.netdevs}
    by_interface = {rail.interface: rail for rail in own}
    for interface in document.fabric.interfaces if document.fabric else ():
        ipv4 = [address for address in interface.addresses if ":" not in address]
        for nth, address in enumerate(ipv4):
            if not address.startswith("127."):
                fabric, rail = interface.name in netdevs, by_interface.get(interface.name)
                yield Held(node, interface.name, address, nth == 0, fabric, rail if nth == 0 else None)


class Nodes:
    """All nodes that were read. What checks compare between nodes is found once, so that they stay linear."""

    def __init__(self, documents: Mapping[str, Document]) -> None:
        self.documents = documents
        """In the spec's order."""

    @cached_property
    def rails(self) -> Mapping[str, tuple[Rail, ...]]:
        """The usable rails of each node."""
        return {name: rails(document) for name, document in self.documents.items()}

    @cached_property
    def networks(self) -> Mapping[str, frozenset[IPv4Network]]:
        """The fabric networks of each node."""
        return {
            name: frozenset(rail.network for rail in found if rail.bounded)
            for name, found in self.rails.items()
        }

    @cached_property
    def twice(self) -> Mapping[str, tuple[tuple[Held, Held], ...]]:
        """Node -> IPv4 addresses that it should give up, each with who keeps it. Where no fabric interface
        is concerned it is none of ours: docker0 has one address on every machine."""
        by_address: dict[str, list[Held]] = {}
        for name, document in self.documents.items():
            for held in _held(name, document, self.rails[name]):
                by_address.setdefault(held.address.partition("/")[0], []).append(held)
        found: dict[str, list[tuple[Held, Held]]] = {}
        for holders in by_address.values():
            if any(held.fabric for held in holders):
                keeper, *others = sorted(holders, key=lambda held: (not held.first, held.fabric))
                for held in others:
                    if (held.node, held.interface) != (keeper.node, keeper.interface):
                        found.setdefault(held.node, []).append((held, keeper))
        return {name: tuple(pairs) for name, pairs in found.items()}

    @cached_property
    def largest_mtu(self) -> Mapping[IPv4Network, int]:
        found: dict[IPv4Network, int] = {}
        for own in self.rails.values():
            for rail in own:
                network = rail.network
                found[network] = max(found.get(network, 0), rail.mtu)
        return found

    @cached_property
    def machines(self) -> Mapping[str, str]:
        """Machine id -> the node that has it first."""
        found: dict[str, str] = {}
        for name, document in self.documents.items():
            if document.machine is not None:
                found.setdefault(document.machine.machine_id, name)
        return found


@dataclass(frozen=True)
class Look:
    """What a check is given: one node, and the other nodes that were read. Never changed."""

    desired: Desired
    node: NodeSpec
    nodes: Nodes
    earlier: Mapping[str, Document] = field(default_factory=dict)
    """A first reading some seconds older, for figures that must not grow."""
    windows: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Between which moments of the controller's clock a node was read (seconds since 1970)."""

    @property
    def spec(self) -> ClusterSpec:
        return self.desired.spec

    @property
    def name(self) -> str:
        """Of the node."""
        return self.node.name

    @property
    def documents(self) -> Mapping[str, Document]:
        """Of all nodes that were read, in the spec's order."""
        return self.nodes.documents

    @property
    def document(self) -> Document:
        return self.documents[self.node.name]

    @property
    def head(self) -> bool:
        return self.name == self.desired.head

    @property
    def fabric(self) -> FabricFacts | None:
        """What the node's rank is told of the fabric, as far as it is known."""
        node = self.desired.nodes.get(self.name)
        return node.facts.fabric if node and node.facts else None

    @property
    def address(self) -> str | None:
        """Where the node's rank is on the fabric, as far as it is known."""
        return self.fabric.address if self.fabric else None

    @property
    def clustered(self) -> bool:
        """Whether there is a network between nodes at all."""
        return len(self.spec.nodes) > 1

    @property
    def gpus(self) -> bool:
        """Whether the ranks want a GPU: then the machine has to be a Spark."""
        return self.spec.engine.container.gpus

    @property
    def rdma(self) -> bool:
        """Whether the ranks talk over RDMA."""
        return self.clustered and self.gpus and self.spec.engine.nccl.infiniband is not False

    def rails(self, node: str | None = None) -> tuple[Rail, ...]:
        """The usable rails of this or another node that was read."""
        return self.nodes.rails[node or self.name]


Find = Callable[[Look], Iterable[Finding]]


def always(_look: Look) -> bool:
    return True


def between_nodes(look: Look) -> bool:
    """Where there is a network between nodes at all."""
    return look.clustered


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check. To add one: an entry in its module's CHECKS, and cases under tests/data/checks."""

    id: str
    reads: str
    """What it looks at."""
    bad: str
    """When it is bad."""
    source: str
    """Where that is known from."""
    find: Find
    """Nothing: the check does not apply to this node."""
    sections: tuple[str, ...] = ()
    """Parts of the probe's document that it can't do without: ``fabric``, ``health.firewall``."""
    applies: Callable[[Look], bool] = always
    kind: str = ""
    """The resource whose diff refuses to go on when it fails; empty: it never holds ``apply`` up."""


def ok(evidence: str) -> Finding:
    return Finding(State.OK, evidence)


def fail(
    name: str, observed: str, desired: str, remedy: str, *, holds: bool = True, ports: tuple[str, ...] = ()
) -> Finding:
    return Finding(State.FAIL, observed, name, desired, remedy, holds=holds, ports=ports)


def warn(
    name: str,
    observed: str,
    desired: str,
    remedy: str,
    *,
    lessens: bool = False,
    ports: tuple[str, ...] = (),
) -> Finding:
    return Finding(State.WARN, observed, name, desired, remedy, lessens=lessens, ports=ports)


MACHINE = "machine"
"""What differs where a node is another one, too."""


def one_machine(look: Look) -> Iterator[Finding]:
    """The node is a node before it once more: then what both have is no fault of either."""
    machine = look.document.machine
    first = look.nodes.machines[machine.machine_id] if machine else look.name
    if first != look.name:
        yield fail(
            MACHINE,
            f"the same machine as {first}",
            "a machine of its own",
            "correct the ssh targets of the nodes: two of them lead to one machine (/etc/machine-id)",
        )


def or_ok(found: Iterable[Finding], evidence: str) -> Iterator[Finding]:
    """What was found, or, when that is nothing, the evidence that all is well."""
    nothing = True
    for each in found:
        nothing = False
        yield each
    if nothing:
        yield ok(evidence)


def unknown(reason: str, remedy: str = "", *, error: bool = False, ports: tuple[str, ...] = ()) -> Finding:
    return Finding(State.UNKNOWN, reason, remedy=remedy, error=error, ports=ports)


def findings(check: Check, look: Look) -> list[Finding]:
    """What the check says: nothing where it does not apply, unknown where a section is missing."""
    if not check.applies(look):
        return []
    for section in check.sections:
        missing = _missing(look.document, section)
        if missing is not None:
            return [missing]
    return list(check.find(look))


def _missing(document: Document, section: str) -> Finding | None:
    name, _, part = section.partition(".")
    value = getattr(document, name)
    if value is not None and part:
        value = getattr(value, part)
    if value is not None:
        return None
    reason = document.error(name, part or None)
    if name == "docker" and document.docker is None and reason is not None:
        return unknown(silent_docker.why(document), silent_docker.remedy(document), error=True)
    told = f"{section} was not read" + (f": {reason}" if reason else "")
    return unknown(told, error=reason is not None)


def refusals(
    kind: str, checks: Iterable[Check], desired: Desired, documents: Mapping[str, Document]
) -> Difference:
    """The failures of the checks of one kind, as a resource's diff tells them."""
    blockers: list[Blocker] = []
    unread: list[Unknown] = []
    warnings: list[str] = []
    chosen = [check for check in checks if check.kind == kind]
    nodes = Nodes(documents)
    for node in desired.spec.nodes:
        if node.name not in documents:
            continue
        look = Look(desired, node, nodes)
        for found in (found for check in chosen for found in findings(check, look)):
            if found.state is State.UNKNOWN or found.error:
                unread.append(Unknown(node.name, found.text, kind, found.remedy))
            elif found.state is State.FAIL and found.holds:
                cause = Cause(found.field, found.observed, found.desired)
                blockers.append(Blocker(node.name, kind, cause, found.remedy))
            elif found.state is State.FAIL or found.lessens:
                warnings.append(f"{node.name}: {with_remedy(found.text, found.remedy)}")
    return Difference(
        blockers=tuple(dict.fromkeys(blockers)),
        unknown=tuple(dict.fromkeys(unread)),
        warnings=tuple(warnings),
    )
