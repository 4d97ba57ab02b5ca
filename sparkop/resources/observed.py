"""What was read, and when. Data only; ``reconcile/observe.py`` makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from sparkop.resources.operations import Unknown

if TYPE_CHECKING:
    from sparkop.hosts.document import Document


class Serving(StrEnum):
    """What the API did when it was asked for a few tokens."""

    READY = "ready"
    """Tokens came, and they were no single repeated one."""
    SILENT = "silent"
    """Nothing listens."""
    LOADING = "loading"
    """Something listens and says that it is not ready yet."""
    UNAUTHORISED = "unauthorised"
    """401 or 403: the key that runs is not the key on disk."""
    WEDGED = "wedged"
    """Accepts requests, gives no token, twice, and its token counters stand still."""
    BUSY = "busy"
    """Gives no token to us within the deadline, but its counters move or cannot be read: no fault."""
    DEGENERATE = "degenerate"
    """Repeats one token or is empty, twice: the prefix cache may be poisoned."""
    FAILED = "failed"
    """Answers an error that waiting will not mend (404 for the model's name, 400)."""
    NOT_ASKED = "not asked"
    """No rank container runs on the head, so nothing was asked."""


@dataclass(frozen=True)
class EndpointState:
    """One look at the API. ``detail`` is for the human; ``seconds`` until the first token."""

    serving: Serving
    detail: str = ""
    model: str | None = None
    seconds: float | None = None
    text: str = ""
    """The tokens that came, as text (at most a line)."""


@dataclass(frozen=True)
class Observed:
    """One reading of all nodes. A node is either in ``documents`` or in ``unknown``."""

    documents: Mapping[str, Document]
    unknown: Mapping[str, Unknown] = field(default_factory=dict)
    endpoint: EndpointState = EndpointState(Serving.NOT_ASKED)
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


@dataclass(frozen=True)
class Trip:
    """The memory guard killed the ranks of a node."""

    node: str
    hash: str
    """``sparkop.hash`` of the rank that was killed: the same numbers are not launched again."""
    at: float
    available: int
    """MemAvailable at that moment, bytes."""
    floor: int


@dataclass(frozen=True)
class History:
    """What must be remembered between observations; read from the nodes, never proof of the world."""

    intent: Intent = Intent()
    trips: Mapping[str, Trip] = field(default_factory=dict)
    """Node -> its last trip that nobody has confirmed."""
    was_ready: str | None = None
    """Epoch that has served tokens before (of the last converged apply); None when not known."""
