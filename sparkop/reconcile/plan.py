"""A plan: what would be done, why, and what it costs. Data only; its text is the test oracle."""

from __future__ import annotations

from dataclasses import dataclass

from sparkop.resources.operations import Blocker, Operation, Unknown


@dataclass(frozen=True)
class Plan:
    """The result of ``reconcile``. Operations are in an order that respects ``needs``."""

    operations: tuple[Operation, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def converged(self) -> bool:
        """Nothing to do, nothing unknown, nothing in the way."""
        return not (self.operations or self.unknown or self.blockers)
