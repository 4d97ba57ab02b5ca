"""Observe, reconcile, execute, until nothing is left, something blocks, or the deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sparkop.hosts.base import Host
from sparkop.reconcile.observe import Reading
from sparkop.reconcile.plan import Plan
from sparkop.resources.base import Clock
from sparkop.resources.events import Listener, ignore
from sparkop.spec.models import ClusterSpec

Approve = Callable[[Plan], bool]
"""Asked once, with the first plan that stops serving or deletes data; False leaves everything as it is."""


@dataclass(frozen=True)
class Converged:
    """The end of an apply that worked. ``operations`` counts what was done (0: it was converged already)."""

    reading: Reading
    operations: int


def converge(
    spec: ClusterSpec,
    hosts: Mapping[str, Host],
    *,
    emit: Listener = ignore,
    stop: threading.Event | None = None,
    approve: Approve | None = None,
    holder: str | None = None,
    confirm_trip: bool = False,
    adopt: bool = False,
    clock: Clock | None = None,
) -> Converged:
    """What ``apply`` does. The lease is taken only when there is something to do, and given back always.

    ``confirm_trip``: launch again the numbers that the memory guard has stopped. ``adopt``: replace
    containers that have the ranks' names but are not sparkop's.

    Raises UnreachableError (a node is unknown: everything else that could be done was done), LeaseHeldError,
    BlockedError (with remedy; a rank died; the user said no), TimedOutError, and KeyboardInterrupt after
    ``stop`` was set and running work has ended.
    """
    raise NotImplementedError
