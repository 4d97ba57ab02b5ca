"""The rails that a running group was started with, and whether it may keep them. Pure.

A preference alone restarts nothing: not a rail that came back, nor another order of good ones. A group is
moved when a rail that it can't do without is lost, when a GID moved, or when the spec asks for other rails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network

from sparkop.engines.base import FabricFacts, NodeFacts
from sparkop.engines.common import OWN_ADDRESS, rdma_devices
from sparkop.hosts.document import Document
from sparkop.hosts.rails import Rail, rails
from sparkop.records import dataclass
from sparkop.resources.labels import ROLE_RANK, Stamp, ours
from sparkop.resources.stamped import environment_of
from sparkop.spec.hashing import desired_hash
from sparkop.spec.models import ClusterSpec


@dataclass(frozen=True)
class Kept:
    """What every running rank was told, where all of it is still good."""

    fabrics: Mapping[str, FabricFacts]
    """By node, in the spec's order."""
    lost: Mapping[str, tuple[str, ...]]
    """Devices that a node's rank still names and that reach no other node."""


def wishes(spec: ClusterSpec) -> str:
    """Hash of what the spec says of the choice of rails."""
    return desired_hash(
        {
            "detect": spec.fabric.detect,
            "gid_index": spec.fabric.gid_index,
            "devices": spec.engine.nccl.devices,
            "nodes": {node.name: node.fabric for node in spec.nodes},
        }
    )


def kept(spec: ClusterSpec, documents: Mapping[str, Document]) -> Kept | None:
    """None when something of it is no longer good, when not every rank runs, or when the spec asks for other
    rails than at their start. Wants the documents of all nodes."""
    stamps = _as_asked(spec, documents)
    return None if stamps is None else _still_good(spec, documents, stamps)


def _still_good(spec: ClusterSpec, documents: Mapping[str, Document], stamps: Sequence[Stamp]) -> Kept | None:
    """What the ranks that bear these stamps were told; None when something of it is no longer good."""
    usable = {node.name: rails(documents[node.name]) for node in spec.nodes}
    shared = _shared(usable)
    fabrics: dict[str, FabricFacts] = {}
    lost: dict[str, tuple[str, ...]] = {}
    networks = set()
    for node, stamp in zip(spec.nodes, stamps, strict=True):
        good = [rail for rail in usable[node.name] if rail.network in shared]
        own = _told(stamp, good)
        if own is None:
            return None
        live = [rail for rail in good if rail.device in own.hcas]
        by_hand = node.fabric.gid_index is not None or spec.fabric.gid_index is not None
        if own.hcas and not live:
            return None
        if own.gid_index is not None and not by_hand and any(r.gid_index != own.gid_index for r in live):
            return None
        networks.add(next(rail.network for rail in good if rail.address == own.address))
        fabrics[node.name] = own
        lost[node.name] = tuple(h for h in own.hcas if h not in {rail.device for rail in live})
    routed = all(_reaches(documents[name], own, fabrics, usable[name]) for name, own in fabrics.items())
    return Kept(fabrics, lost) if len(networks) == 1 and routed else None


def lost(spec: ClusterSpec, documents: Mapping[str, Document]) -> bool:
    """Whether every rank runs and the spec asks for the same rails, but they are not good.

    To be looked at again before it is believed: addresses are away for a second after ``netplan apply``.
    """
    stamps = _as_asked(spec, documents)
    return stamps is not None and _still_good(spec, documents, stamps) is None


def _as_asked(spec: ClusterSpec, documents: Mapping[str, Document]) -> list[Stamp] | None:
    """The stamps of the ranks in order; None when one does not run, or the spec asks for other rails."""
    asked = wishes(spec)
    found = []
    for index, node in enumerate(spec.nodes):
        stamp = _stamp(spec, documents[node.name], index)
        if stamp is None or not _as_then(spec, asked, stamp):
            return None
        found.append(stamp)
    return found


def _as_then(spec: ClusterSpec, asked: str, stamp: Stamp) -> bool:
    """Whether the rank was made by the same wishes; of one without them, by the same spec."""
    return stamp.fabric == asked if stamp.fabric else stamp.spec == desired_hash(spec)


def notes(spec: ClusterSpec, found: Kept, fresh: Sequence[NodeFacts]) -> tuple[str, ...]:
    """For the user: what the ranks use although it is down, or do not use although it is up. ``fresh``: what
    a new start would be told."""
    told = []
    for node in fresh:
        lost, used = found.lost[node.name], found.fabrics[node.name].hcas
        anew = rdma_devices(spec, node)
        if lost:
            told.append(
                f"{node.name}: degraded: {', '.join(lost)} reaches no other node; the ranks still use it"
            )
        elif len(anew) > len(used):
            more = ", ".join(device for device in anew if device not in used)
            told.append(
                f"{node.name}: degraded: the ranks were started without {more}, which can be used now; "
                "sparkop stop, then sparkop apply takes it in"
            )
    return tuple(told)


def _shared(usable: Mapping[str, tuple[Rail, ...]]) -> set[IPv4Network]:
    """Networks that every node has a usable rail in."""
    return set.intersection(*({rail.network for rail in found} for found in usable.values()))


def _stamp(spec: ClusterSpec, document: Document, rank: int) -> Stamp | None:
    """Of the one container of the rank that runs; None when there is none, or more."""
    found = [
        stamp
        for container, stamp in ours(document, spec.name, ROLE_RANK)
        if container.running and stamp.rank == rank
    ]
    return found[0] if len(found) == 1 else None


def _told(stamp: Stamp, good: list[Rail]) -> FabricFacts | None:
    """What the rank was told; None when its address or interface is not one of the good rails'."""
    environment = environment_of(stamp.desired)
    address = next((environment[name] for name in OWN_ADDRESS if name in environment), None)
    interface = environment.get("NCCL_SOCKET_IFNAME")
    rail = next((r for r in good if r.address == address and interface in (None, r.interface)), None)
    if rail is None:
        return None
    index = environment.get("NCCL_IB_GID_INDEX", "")
    return FabricFacts(
        address=rail.address,
        interface=rail.interface,
        hcas=tuple(filter(None, environment.get("NCCL_IB_HCA", "").split(","))),
        gid_index=int(index) if index.isascii() and index.isdigit() else None,
    )


def _reaches(
    document: Document, own: FabricFacts, all_of_them: Mapping[str, FabricFacts], usable: Sequence[Rail]
) -> bool:
    """Whether the kernel's way to the other ranks is by a rail of the network, as far as it was asked."""
    routes = document.fabric.routes if document.fabric else {}
    network = next(rail.network for rail in usable if rail.address == own.address)
    ways = {rail.interface for rail in usable if rail.network == network}
    others = [each.address for each in all_of_them.values() if each.address != own.address]
    asked = [routes[address] for address in others if address in routes]
    return all(route is not None and route.interface in ways for route in asked)
