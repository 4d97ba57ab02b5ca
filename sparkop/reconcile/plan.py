"""A plan: what would be done, why, and what it costs. Data only; its text is the test oracle."""

from __future__ import annotations

from dataclasses import replace

from sparkop.records import dataclass
from sparkop.resources.operations import Blocker, Operation, Unknown, kind_of


@dataclass(frozen=True)
class Plan:
    """The result of ``reconcile``. Operations are in an order that respects ``needs``."""

    operations: tuple[Operation, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    warnings: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    """Why operations were left out for now (``restrain``), in words."""
    waiting: tuple[Operation, ...] = ()
    """What differs too, and can't be mended before the rest is known and nothing is in the way."""

    @property
    def converged(self) -> bool:
        """Nothing to do, nothing unknown, nothing in the way."""
        return not (self.operations or self.unknown or self.blockers or self.held)

    @property
    def stops_serving(self) -> bool:
        """Something that serves now is stopped."""
        return any(operation.cost.stops_serving for operation in self.operations)

    @property
    def preparation(self) -> Plan:
        """What comes before the ranks are touched; empty when nothing does.

        It can take hours. The ranks are then planned on fresh readings of all nodes (principle 6).
        """
        before = (o for o in self.operations if kind_of(o.resource) not in GROUP)
        return replace(self, operations=tuple(before))


GROUP = ("rank", "endpoint")
"""Kinds that stand on everything else, on all nodes."""
