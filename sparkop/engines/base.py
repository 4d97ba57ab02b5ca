"""What an engine turns a spec and the nodes' facts into: one container for each rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sparkop.hosts.base import ContainerOptions, Mount
from sparkop.spec.models import ClusterSpec


@dataclass(frozen=True)
class FabricFacts:
    """One node on the fabric, as detected or overridden. ``gid_index`` None: devices disagree, leave it unset."""

    address: str
    interface: str
    hcas: tuple[str, ...]
    gid_index: int | None = None


@dataclass(frozen=True)
class NodeFacts:
    """What rendering needs to know of a node."""

    name: str
    home: str
    fabric: FabricFacts
    cpu_count: int | None = None


@dataclass(frozen=True)
class RankContainer:
    """One rank, rendered. Mount sources are absolute on the node."""

    rank: int
    node: str
    container: str
    image: str
    entrypoint: tuple[str, ...] | None
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    mounts: tuple[Mount, ...]
    options: ContainerOptions


@dataclass(frozen=True)
class StateFile:
    """A file of the state directory that an engine needs. ``secret`` content is made on the node."""

    path: str
    """Relative to the state directory."""
    content: bytes
    mode: int = 0o644


class Engine(Protocol):
    """vLLM or SGLang. Pure: no I/O."""

    def ranks(self, spec: ClusterSpec, facts: Sequence[NodeFacts]) -> tuple[RankContainer, ...]:
        """One container a rank, in rank order. ``facts`` are in the order of the spec's nodes."""
        ...

    def key_file(self, key: str) -> bytes | None:
        """The configuration file that hands the API key to the engine; None when it takes none."""
        ...

    def stop_order(self, ranks: Sequence[RankContainer]) -> tuple[RankContainer, ...]:
        """The order in which ranks are stopped (SGLang: head first, its follower ignores SIGTERM)."""
        ...
