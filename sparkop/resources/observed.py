"""What was read, and when. Data only; ``reconcile/observe.py`` makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from sparkop.records import dataclass
from sparkop.resources.operations import Unknown
from sparkop.serving.canary import EndpointState, Serving

if TYPE_CHECKING:
    from sparkop.hosts.document import Document


NOT_ASKED = EndpointState(Serving.NOT_ASKED)


@dataclass(frozen=True)
class KeyState:
    """The API key on the head. The key itself is never kept in what was observed."""

    handed: bool
    """The file that the engine reads holds this key."""
    problem: str = ""
    """Why no engine can be given this key."""
    remedy: str = ""


@dataclass(frozen=True)
class Loss:
    """A rank's container on ``node`` has lost its GPU, and what says so."""

    node: str
    text: str
    certain: bool
    """NVML itself was asked in the container; else only a line of its log says so."""


@dataclass(frozen=True)
class Observed:
    """One reading of all nodes. A node is either in ``documents`` or in ``unknown``."""

    documents: Mapping[str, Document]
    unknown: Mapping[str, Unknown] = field(default_factory=dict)
    endpoint: EndpointState = NOT_ASKED
    contents: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    """Node -> path as requested -> content, of files that hold no secret."""
    key: KeyState | None = None
    """None: there is no key, or it was not read."""
    loss: Loss | None = None
    """None also when it was not asked."""
    at: float = 0.0
    """The controller's time, seconds since 1970."""

    @property
    def complete(self) -> bool:
        """Every node was read."""
        return not self.unknown


@dataclass(frozen=True)
class Intent:
    """What a human last asked for. ``stopped`` holds ``watch`` back; ``apply`` clears it."""

    stopped: bool = False
    by: str = ""
    at: float = 0.0
    damaged: bool = False
    """The mark is there and can't be understood: it counts as a stop."""
    destroys: bool = False
    """It is the stop with which a destroy begins; the end of that takes the mark away."""


@dataclass(frozen=True)
class Trip:
    """The memory guard killed the ranks of a node. Bytes; seconds since 1970 by the node's clock."""

    node: str
    hash: str
    """``sparkop.hash`` of the rank that was killed."""
    at: float
    available: int
    """MemAvailable at that moment."""
    floor: int
    numbers: str = ""
    """``sparkop.memory`` of that rank; empty for one of an older sparkop."""


@dataclass(frozen=True)
class Restart:
    """One start of the group by ``watch``. ``at``: seconds since 1970, by the controller's clock."""

    epoch: int
    at: float
    why: str = ""
    generation: int = 0
    node: str = ""
    """Where the cause was."""
    booted: tuple[str, ...] = ()
    """Nodes that had booted since the start before: that is why."""


@dataclass(frozen=True)
class GaveUp:
    """``watch`` restarts the group no more. ``at``: seconds since 1970."""

    at: float
    why: str
    """Reason, and what to do."""
    tried: tuple[Restart, ...] = ()
    failure: str = ""
    """What went wrong last."""


@dataclass(frozen=True)
class History:
    """What must be remembered between observations; read from the nodes, never proof of the world."""

    intent: Intent = Intent()
    trips: Mapping[str, Trip] = field(default_factory=dict)
    """Node -> its last trip."""
    epoch: int = 0
    """The last group's number that was written down before its start."""
    generation: int = 0
    spec: str = ""
    """Hash of the spec by which the last group was started; empty when that was not written down. When all
    its containers are gone, only this tells whether the spec has changed."""
    ready_epoch: int = 0
    """Number of the last group that was seen to serve tokens."""
    start_seconds: float | None = None
    """How long the last start took, from the first rank to the first token; None: not measured yet."""
    restarts: tuple[Restart, ...] = ()
    """Restarts by ``watch``, oldest first, since a human started the group or it has served for long."""
    booted: tuple[str, ...] = ()
    """Nodes that have booted since the last start."""
    unfinished: int = 0
    """Number of the group that ``watch`` restarted last, if nothing tells how that ended; 0 for a restart
    that goes on with another: what is broken off again and again counts."""
    gave_up: GaveUp | None = None
    """The last word of a ``watch`` whose restarts did not help, until a human starts the group."""
    forgotten: bool = False
    """The head's history was damaged, and no human has started the group since: how often ``watch`` has
    restarted it is not known."""
    unapplied: str = ""
    """Why the nodes don't show that it was applied: before the first ``apply``, after a ``destroy``. Empty:
    they do."""
    agreed: frozenset[str] = frozenset()
    """What the human has agreed to for this run: ``trip``, ``adopt``."""


AGREED_TRIP = "trip"
"""Launch again the numbers that the memory guard has stopped."""
AGREED_ADOPT = "adopt"
"""Replace containers that have our names but are not ours."""
