"""What an engine turns a spec and the nodes' facts into: one container for each rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Protocol

from sparkop.hosts.base import ContainerOptions, Mount
from sparkop.records import dataclass
from sparkop.spec.models import ClusterSpec


@dataclass(frozen=True)
class FabricFacts:
    """One node on the fabric, as detected or overridden."""

    address: str
    interface: str
    hcas: tuple[str, ...]
    """RDMA devices; the first is that of ``interface``."""
    gid_index: int | None = None
    """None: the devices disagree, so it is left to NCCL."""


@dataclass(frozen=True)
class NodeFacts:
    """What rendering needs to know of a node."""

    name: str
    home: str
    fabric: FabricFacts | None = None
    """None only where a single node needs none."""
    cpu_count: int | None = None
    memory_total: int | None = None
    """Bytes."""
    revision: str | None = None
    """Commit of the checkpoint on the node, for a hub cache whose spec names a branch."""
    present: frozenset[str] = frozenset()
    """Those of ``Engine.optional_files`` that exist on the node, spelled as there."""


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
    private: frozenset[str] = field(default=frozenset(), compare=False)
    """Variables of ``environment`` that the user has set: their values are used, and never shown."""


@dataclass(frozen=True)
class StateFile:
    """A file of a node's state directory that a rank mounts and that is made there."""

    node: str
    path: str
    """Relative to the state directory."""
    mode: int = 0o644


@dataclass(frozen=True)
class Metrics:
    """Names of what an engine's /metrics tells. Counters carry their ``_total``."""

    running: str
    waiting: str
    prompt_tokens: str
    generation_tokens: str
    kv_usage: str
    """0 to 1."""
    pool_tokens: str | None = None
    """Tokens that the KV cache holds."""
    accepted_tokens: str | None = None
    draft_tokens: str | None = None
    acceptance: str | None = None
    """Part of the drafted tokens that was taken lately, 0 to 1, where that is a gauge."""


@dataclass(frozen=True)
class Manners:
    """How an engine behaves while it runs (read from the source of vLLM 0.33 and SGLang 0.5.23)."""

    metrics: Metrics
    follower_stops: bool
    """A follower ends by itself on SIGTERM. If not, it is killed after the head is gone."""
    follower_listens: bool
    """A follower has a server of its own on ``api.port``, which says that all is well, always."""
    loading_lines: tuple[str, ...]
    """Regular expressions of log lines that tell how far a start is."""
    pool_line: str
    """Regular expression of the log line of the tokens that the KV cache holds; they are its group 1."""


class Engine(Protocol):
    """vLLM or SGLang. Pure: no I/O."""

    manners: Manners

    def ranks(self, spec: ClusterSpec, facts: Sequence[NodeFacts]) -> tuple[RankContainer, ...]:
        """One container a rank, in rank order. ``facts`` are in the order of the spec's nodes.

        Raises SpecError for what can't be rendered (a key among the arguments, a name missing for a rank)
        and BlockedError when a node's facts lack what its rank needs.
        """
        ...

    def optional_files(self, spec: ClusterSpec) -> tuple[str, ...]:
        """Files of the nodes (``~`` is the home) whose presence changes what is rendered."""
        ...

    def key_file(self, key: str) -> bytes:
        """The configuration file that hands the API key to the engine (``paths.ENGINE_FILE``)."""
        ...
