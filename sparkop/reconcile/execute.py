"""Carry out a plan. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparkop.errors import SparkopError
from sparkop.reconcile.plan import Plan
from sparkop.resources.base import Context
from sparkop.resources.operations import Operation


@dataclass(frozen=True)
class Outcome:
    """What became of a plan's operations, by key."""

    done: tuple[str, ...] = ()
    failed: Mapping[str, SparkopError] | None = None
    skipped: tuple[Operation, ...] = ()
    """Not started."""


def execute(plan: Plan, context: Context) -> Outcome:
    """Run operations as their ``needs`` allow, nodes and kinds side by side, one of a kind a node at a time.

    Starts nothing new after the first failure or once ``context.stop`` is set, waits for what runs, and
    says what is left. Tells ``context.emit`` of every step.
    """
    raise NotImplementedError
