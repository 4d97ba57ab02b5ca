# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""What every kind of resource is: what it reads, how it differs (pure), and how one operation is done.

A resource never decides while it performs, and never reads while it compares:

* ``prepare``  reads what lies outside the nodes (a hub's listing); once an observation, on the controller
* ``request``  says what the probe must read on a node for it
* ``diff``     desired + observed -> operations, blockers, unknowns; pure, deterministic, linear in nodes
* ``perform``  carries out one of its operations; safe to repeat
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Protocol

from sparkop.errors import BlockedError
from sparkop.hosts.base import Fence, Host, Json
from sparkop.records import dataclass
from sparkop.resources.events import Event, Listener, Phase
from sparkop.resources.operations import Blocker, Operation, Unknown
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

if TYPE_CHECKING:
    from sparkop.resources.desired import Desired
    from sparkop.resources.observed import History, Observed


CONFIRMED_WITHIN = 5.0
"""Seconds that a node gets to say whose lease it has."""


@dataclass(frozen=True)
class Difference:
    """What one resource found. Empty: it is as desired on every node."""

    operations: tuple[Operation, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    warnings: tuple[str, ...] = ()


class Clock(Protocol):
    """Time, so that tests need not wait."""

    def monotonic(self) -> float:
        """Seconds since some moment; never jumps."""
        ...

    def time(self) -> float:
        """Seconds since 1970; may jump."""
        ...

    def sleep(self, seconds: float) -> None: ...


class RealClock:
    """The machine's own time."""

    def monotonic(self) -> float:
        return time.monotonic()

    def time(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass(frozen=True)
class Context:
    """What ``perform`` gets beside its operation.

    ``observed`` is what the plan was made of. Only ``desired`` says what to make; an operation's
    ``parameters`` say which part of it.
    """

    desired: Desired
    observed: Observed
    hosts: Mapping[str, Host]
    fences: Mapping[str, Fence]
    emit: Listener
    stop: threading.Event = field(default_factory=threading.Event)
    """Set when the user asked to stop: long work ends at its next safe point (and goes on by itself on the
    node where that is its nature)."""
    lost: threading.Event = field(default_factory=threading.Event)
    """Set when another writer has taken the lease: nothing is waited for any more."""
    clock: Clock = field(default_factory=RealClock)
    operation: Operation | None = None

    def host(self, node: str) -> Host:
        """The node, for writing."""
        return self.hosts[node]

    def fence(self, node: str) -> Fence:
        """The proof to write to the node. Raises BlockedError where the lease was not taken: a full disk,
        or it did not answer then."""
        fence = self.fences.get(node)
        if fence is None:
            raise BlockedError(
                "nothing may be written here, and another node needs it",
                node=node,
                cause="it did not answer when the lease was taken, its disk is full, or its state folder is "
                "another cluster's or can't be used",
                remedy="run the same command again; sparkop diff says what is wrong with it",
            )
        return fence

    def confirm(self, node: str) -> None:
        """Raises LeaseHeldError when the lease there is ours no more: what is seen may be another's work."""
        if node in self.fences:
            self.host(node).act("lease.check", {}, self.fences[node], timeout=CONFIRMED_WITHIN)

    def of(self, operation: Operation) -> Context:
        """The same, for events about this operation."""
        return replace(self, operation=operation)

    def log(self, text: str, node: str | None = None) -> None:
        """One line of output of a program that works for the operation."""
        self._tell(Event(Phase.LOG, self.operation, node, text))

    def progress(self, text: str, *, done: int = 0, total: int = 0, rate: float = 0.0) -> None:
        """How far the operation is; bytes, and bytes a second."""
        self._tell(
            Event(Phase.PROGRESS, self.operation, None, text, done_bytes=done, total_bytes=total, rate=rate)
        )

    def _tell(self, event: Event) -> None:
        if event.node is None and self.operation is not None:
            event = replace(event, node=self.operation.node)
        self.emit(event)


class Resource(Protocol):
    """One kind of thing on the nodes. One that reads nothing of a sort leaves that method out."""

    kind: str
    """The part of ``Operation.resource`` before the slash."""

    def prepare(self, spec: ClusterSpec) -> Any:
        """Read what lies outside the nodes; kept as ``Desired.outside[kind]``. None: nothing to read.

        Does not raise for a service that is away: why it could not be read is the ``problem`` of what it
        returns (text; absent or empty when all is well), and ``diff`` tells it.
        """
        return None

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Json]:
        """What it wants of the probe request for this node (see docs/explanation/architecture.md).

        Requests of all resources are merged: lists are joined without doubles, mappings are merged, and a
        scalar that two resources set differently is a fault.
        """
        return {}

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        """Compare. Plans only for nodes in ``observed.documents``; a section in a document's ``errors`` that
        it needs is ``Unknown``, never empty.

        ``needs`` holds only what this kind knows of (its own operations); ``reconcile`` adds the order
        between kinds.
        """
        ...

    def perform(self, operation: Operation, context: Context) -> None:
        """Do it. Raises SparkopError; a lost reply is UnreachableError. Safe to repeat."""
        ...
