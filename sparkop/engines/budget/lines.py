"""What a budget is made of. All sizes are bytes of one node, which has one rank."""

from __future__ import annotations

from enum import StrEnum

from sparkop.engines.budget.heads import Heads
from sparkop.records import dataclass


class Basis(StrEnum):
    """How far a figure may be trusted."""

    READ = "read"
    """Read from the node, the checkpoint's headers or the spec."""
    COMPUTED = "computed"
    """Follows from the model's configuration and the spec."""
    FITTED = "fitted"
    """Chosen so that a recorded run comes out; no source was read for it."""
    QUOTED = "quoted"
    """As somebody published it."""


class Part(StrEnum):
    """Kinds of memory, in the order in which they are shown."""

    SYSTEM = "system"
    EXPERTS = "experts"
    DENSE = "dense"
    VISION = "vision"
    DRAFT = "draft"
    TABLE = "table"
    CACHE = "kv cache"
    STATE = "state"
    GRAPHS = "graphs"
    OTHER = "other"
    WORKSPACE = "workspace"
    PAGE_CACHE = "page cache"


class Where(StrEnum):
    """Where bytes lie. GPU, pinned and host share one memory on these machines."""

    GPU = "gpu"
    PINNED = "pinned"
    HOST = "host"
    DISK = "disk"


@dataclass(frozen=True)
class Line:
    """One figure. ``source``: the formula with its numbers, and where they come from."""

    part: Part
    name: str
    size: int
    basis: Basis
    source: str
    where: Where = Where.GPU
    transient: bool = False
    """Taken only during a long prefill, and given back."""

    @property
    def counts(self) -> bool:
        """Whether nothing else can have it: false for the disk and for what the kernel gives back."""
        return self.where is not Where.DISK and self.part is not Part.PAGE_CACHE


@dataclass(frozen=True)
class RankBudget:
    """One node and its rank."""

    node: str
    rank: int
    total: Line
    lines: tuple[Line, ...]
    floor: int
    """What must be left: the guard kills the rank below it."""

    @property
    def used(self) -> int:
        """At the worst moment, a long prefill included."""
        return sum(line.size for line in self.lines if line.counts)

    @property
    def steady(self) -> int:
        """Between prefills."""
        return sum(line.size for line in self.lines if line.counts and not line.transient)

    @property
    def left(self) -> int:
        """At the worst moment; negative when it does not fit."""
        return self.total.size - self.used

    @property
    def safe(self) -> bool:
        return self.left >= self.floor


@dataclass(frozen=True)
class CacheCost:
    """KV bytes of one token on one rank, of one group of layers."""

    name: str
    size: float
    basis: Basis
    source: str


@dataclass(frozen=True)
class Pool:
    """The KV cache of one rank. Tokens are counted as the engine prints them."""

    size: int
    tokens: int
    context: int
    """Tokens of one full context; 0 when the spec does not say."""
    token_size: float
    """Bytes that one more token takes, without what a request takes once."""
    costs: tuple[CacheCost, ...]
    basis: Basis
    source: str

    @property
    def contexts(self) -> float:
        """How many full contexts it holds."""
        return self.tokens / self.context if self.context else 0.0


@dataclass(frozen=True)
class Slots:
    """State slots of linear-attention layers on one rank, and how many requests they let run."""

    count: int
    slot_size: int
    copies: int
    """Copies of the state that speculation keeps beside."""
    copy_size: int
    requests: int
    basis: Basis
    source: str

    @property
    def size(self) -> int:
        return self.count * self.slot_size + self.copies * self.copy_size


@dataclass(frozen=True)
class Quote:
    """A published figure beside the budget. ``against``: what contradicts it, empty when nothing does."""

    text: str
    source: str
    against: str = ""


@dataclass(frozen=True)
class Budget:
    """The whole cluster."""

    model: str
    engine: str
    source: str
    """Where configuration and weights come from."""
    ranks: tuple[RankBudget, ...]
    context: int | None
    """Tokens that the model bears by itself."""
    pool: Pool | None
    slots: Slots | None
    weighed: bool
    """Whether the weights have a size."""
    quotes: tuple[Quote, ...]
    unknown: tuple[str, ...]
    """What it can't know, one sentence each."""
    heads: tuple[Heads, ...] = ()
    """Of the model; each kind is divided over the shards."""

    @property
    def safe(self) -> bool:
        return all(rank.safe for rank in self.ranks)
