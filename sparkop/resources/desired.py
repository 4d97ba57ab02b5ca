"""What should be, made of the spec and the facts that the nodes' documents hold. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

from sparkop.engines.base import Engine, FabricFacts, NodeFacts, RankContainer
from sparkop.engines.paths import expand, state_directory, weights_directory
from sparkop.errors import SparkopError, SpecError
from sparkop.hosts.base import ContainerSpec
from sparkop.hosts.document import Document
from sparkop.hosts.rails import FabricSelection, Rail, joined_everywhere, place_by_hand, rails, select_fabric
from sparkop.records import dataclass
from sparkop.resources.guard import desired_guard
from sparkop.resources.kept import kept, notes, wishes
from sparkop.resources.labels import (
    EPOCH,
    FABRIC,
    GENERATION,
    MEMORY,
    RANK,
    ROLE_RANK,
    WEIGHTS,
    common,
    ours,
)
from sparkop.resources.numbers import memory_numbers
from sparkop.resources.stamped import hash_of, same, text_of
from sparkop.spec.hashing import desired_hash
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec


@dataclass(frozen=True)
class DesiredNode:
    """One node that was read. Paths are absolute on it."""

    name: str
    index: int
    """Its place in the spec, and its rank; the head is 0."""
    home: str
    state: str
    """State folder of the cluster."""
    weights: str
    """Folder of the checkpoint, or the hub cache that holds it."""
    facts: NodeFacts | None
    """None when its fabric could not be read or has no address, or with ``unread``: ranks can't be rendered
    then."""
    unread: str = ""
    """Why it can't be told whether a file that changes what is rendered is there."""
    guard: ContainerSpec | None = None
    """None when the spec wants no memory guard."""

    @property
    def head(self) -> bool:
        return self.index == 0


@dataclass(frozen=True)
class DesiredRank:
    """One rank's container. Epoch and generation are stamped when it is made, and are not desired."""

    rank: int
    node: str
    container: ContainerSpec
    """With the labels of its weights and of the fabric's choice only."""
    numbers: str = ""
    """See ``numbers.memory_numbers``."""
    private: frozenset[str] = frozenset()
    """Variables that the user has set: their values are never shown."""

    @property
    def text(self) -> str:
        """What of the container may be shown, for the label."""
        return text_of(self.container, self.private)

    @cached_property
    def hash(self) -> str:
        """Of the container: what a new one is stamped with."""
        return hash_of(self.container)

    def made(self, stamped: str) -> bool:
        """Whether a container with this stamped hash, of this or an older sparkop, is as it should be."""
        return stamped == self.hash or same(self.container, stamped)

    @property
    def name(self) -> str:
        """Name of the container."""
        return self.container.name

    def labelled(self, cluster: str, spec_hash: str, *, epoch: int, generation: int) -> ContainerSpec:
        """The container to create."""
        made = self.container
        labels = {**made.labels, **common(cluster, ROLE_RANK, self.hash, self.text, spec_hash)}
        labels |= {RANK: str(self.rank), EPOCH: str(epoch), GENERATION: str(generation), MEMORY: self.numbers}
        return replace(made, labels=labels)


@dataclass(frozen=True)
class Desired:
    """The whole cluster as it should be."""

    spec: ClusterSpec
    engine: Engine
    nodes: Mapping[str, DesiredNode]
    """The nodes that were read, in the spec's order."""
    ranks: tuple[DesiredRank, ...] = ()
    """In rank order; empty when they can't be rendered, see ``why_no_ranks``."""
    why_no_ranks: str = ""
    spec_hash: str = ""
    """Of the whole spec; see ``labels.SPEC``."""
    outside: Mapping[str, Any] = field(default_factory=dict)
    """What each resource's ``prepare`` returned, by kind."""
    notes: tuple[str, ...] = ()
    """What to tell of the rails that a running group keeps."""

    @property
    def head(self) -> str:
        """Name of the head, read or not."""
        return self.spec.nodes[0].name


def desire(
    spec: ClusterSpec,
    engine: Engine,
    documents: Mapping[str, Document],
    outside: Mapping[str, Any] | None = None,
    *,
    render: bool = True,
) -> Desired:
    """``documents`` of the nodes that were read; the others are left out, and no rank is rendered then.
    Neither is one without ``render``.

    Raises SpecError for what the engine refuses.
    """
    outside = outside or {}
    whole = desired_hash(spec)
    read = [node.name for node in spec.nodes if node.name in documents]
    ends = dict(zip(read, joined_everywhere([rails(documents[name]) for name in read]), strict=True))
    nodes = {
        node.name: _node(spec, whole, engine, index, node, documents[node.name], outside, ends[node.name])
        for index, node in enumerate(spec.nodes)
        if node.name in documents
    }
    if not render:
        return Desired(spec, engine, nodes, (), "they were not asked for", whole, outside)
    ranks, why = _ranks(spec, engine, nodes)
    made = Desired(spec, engine, nodes, ranks, why, whole, outside)
    return _as_it_runs(made, documents) or made


def _as_it_runs(fresh: Desired, documents: Mapping[str, Document]) -> Desired | None:
    """The same with the rails that the running group has, where it may keep them and nothing else differs.

    None when it differs, or when detection says the same anyway.
    """
    spec = fresh.spec
    if len(spec.nodes) < 2 or not fresh.ranks or _run(fresh.ranks, spec, documents):
        return None
    found = kept(spec, documents)
    if found is None:
        return None
    facts = [node.facts for node in fresh.nodes.values() if node.facts is not None]
    nodes = {
        name: replace(node, facts=node.facts and replace(node.facts, fabric=found.fabrics[name]))
        for name, node in fresh.nodes.items()
    }
    ranks, _ = _ranks(spec, fresh.engine, nodes)
    if not ranks or not _run(ranks, spec, documents):
        return None
    return replace(fresh, nodes=nodes, ranks=ranks, notes=notes(spec, found, facts))


def _run(ranks: Sequence[DesiredRank], spec: ClusterSpec, documents: Mapping[str, Document]) -> bool:
    """Whether every rank is there as it should be."""
    return all(
        any(
            container.name == rank.name and rank.made(stamp.hash)
            for container, stamp in ours(documents[rank.node], spec.name, ROLE_RANK)
        )
        for rank in ranks
    )


def _node(
    spec: ClusterSpec,
    spec_hash: str,
    engine: Engine,
    index: int,
    node: NodeSpec,
    document: Document,
    outside: Mapping[str, Any],
    ends: Sequence[Rail],
) -> DesiredNode:
    home = document.machine.home if document.machine else ""
    state = expand(state_directory(spec, node), home)
    unread = _unread(spec, engine, document)
    weights = expand(weights_directory(spec, node), home)
    return DesiredNode(
        name=node.name,
        index=index,
        home=home,
        state=state,
        weights=weights,
        facts=None if unread else _facts(spec, engine, node, document, outside, ends),
        unread=unread,
        guard=desired_guard(spec, spec_hash, state, weights),
    )


def _unread(spec: ClusterSpec, engine: Engine, document: Document) -> str:
    for path in engine.optional_files(spec):
        reason = document.error("files", path)
        if reason is not None:
            return f"{path}: {reason}"
    return ""


def _facts(
    spec: ClusterSpec,
    engine: Engine,
    node: NodeSpec,
    document: Document,
    outside: Mapping[str, Any],
    ends: Sequence[Rail],
) -> NodeFacts | None:
    if document.machine is None:
        return None
    found = select_fabric(document, node.fabric.all_hcas, ends) if spec.fabric.detect else None
    fabric = _fabric_facts(spec, node, document, found)
    if fabric is None and len(spec.nodes) > 1:
        return None
    files = document.files or {}
    return NodeFacts(
        name=node.name,
        home=document.machine.home,
        fabric=fabric,
        cpu_count=document.machine.cpu_count,
        memory_total=document.memory.total if document.memory else None,
        revision=getattr(outside.get("weights"), "revision", None),
        present=frozenset(p for p in engine.optional_files(spec) if files.get(p) is not None),
    )


def _fabric_facts(
    spec: ClusterSpec, node: NodeSpec, document: Document, found: FabricSelection | None
) -> FabricFacts | None:
    """The node on the fabric: what the spec sets by hand, else what was detected; None when there is none."""
    by_hand = node.fabric
    address, interface = place_by_hand(document, by_hand.address, by_hand.interface)
    address = address or (found.address if found else None)
    interface = interface or (found.interface if found else None)
    if address is None or interface is None:
        return None
    gid_index = by_hand.gid_index if by_hand.gid_index is not None else spec.fabric.gid_index
    if gid_index is None and found is not None:
        gid_index = found.gid_index
    hcas = by_hand.all_hcas or (found.hcas if found else ())
    return FabricFacts(address=address, interface=interface, hcas=hcas, gid_index=gid_index)


def _ranks(
    spec: ClusterSpec, engine: Engine, nodes: Mapping[str, DesiredNode]
) -> tuple[tuple[DesiredRank, ...], str]:
    facts: list[NodeFacts] = []
    for node in spec.nodes:
        if node.name not in nodes:
            return (), f"{node.name} was not read"
        found = nodes[node.name].facts
        if nodes[node.name].unread:
            return (), f"{node.name}: {nodes[node.name].unread}"
        if found is None:
            return (), f"the fabric of {node.name} can't carry a rank"
        facts.append(found)
    try:
        made = engine.ranks(spec, facts)
    except SpecError:
        raise
    except SparkopError as error:
        return (), error.message
    numbers = memory_numbers(spec)
    return tuple(DesiredRank(r.rank, r.node, _container(spec, r), numbers, r.private) for r in made), ""


def _container(spec: ClusterSpec, rank: RankContainer) -> ContainerSpec:
    return ContainerSpec(
        name=rank.container,
        image=rank.image,
        labels={WEIGHTS: f"{spec.weights.repository}@{spec.weights.revision}", FABRIC: wishes(spec)},
        arguments=rank.arguments,
        entrypoint=rank.entrypoint,
        environment=rank.environment,
        mounts=rank.mounts,
        options=rank.options,
    )
