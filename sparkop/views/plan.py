"""A plan on stdout: text for people, JSON for programs. And the question before serving stops."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from sparkop.reconcile.plan import Plan
from sparkop.resources.compare import counted
from sparkop.resources.operations import Blocker, Operation, Unknown
from sparkop.views.confirm import agreed, can_ask
from sparkop.views.console import print_json, print_lines, talk
from sparkop.views.plan_text import plan_lines


def show_plan(plan: Plan, output: str = "text", transfers: Sequence[str] = ()) -> None:
    """Print it, and the transfers that already run of what it plans."""
    if output == "json":
        print_json({**plan_json(plan), "transfers": list(transfers)})
        return
    print_lines([*plan_lines(plan), *(f"running   {told}" for told in transfers)])


def plan_json(plan: Plan) -> dict[str, Any]:
    """``converged``, ``operations``, ``unknown`` (node names), and the reasons behind them."""
    return {
        "converged": plan.converged,
        "operations": [_operation(operation) for operation in plan.operations],
        "unknown": list(dict.fromkeys(unknown.node for unknown in plan.unknown)),
        "reasons": [_unknown(unknown) for unknown in plan.unknown],
        "blockers": [_blocker(blocker) for blocker in plan.blockers],
        "warnings": list(plan.warnings),
    }


def _operation(operation: Operation) -> dict[str, Any]:
    return {
        "key": operation.key,
        "action": str(operation.action),
        "node": operation.node,
        "resource": operation.resource,
        "cause": vars(operation.cause),
        "origin": operation.origin,
        "cost": {
            "bytes": operation.cost.bytes,
            "seconds": operation.cost.seconds,
            "stopsServing": operation.cost.stops_serving,
        },
        "needs": list(operation.needs),
    }


def _unknown(unknown: Unknown) -> dict[str, Any]:
    return {
        "node": unknown.node,
        "resource": unknown.resource,
        "reason": unknown.reason,
        "remedy": unknown.remedy,
    }


def _blocker(blocker: Blocker) -> dict[str, Any]:
    return {
        "node": blocker.node,
        "resource": blocker.resource,
        "cause": vars(blocker.cause),
        "remedy": blocker.remedy,
    }


def show_left(operations: Sequence[Operation]) -> None:
    """How much an interrupted apply has not done, on stderr; which, its progress has told."""
    left = counted(len(operations), "operation")
    talk().print(f"left to do: {left} (sparkop diff shows them)", style="yellow")


def ask_approval(plan: Plan) -> bool:
    """Show the plan and ask on a terminal; yes without one."""
    if not can_ask():
        return True
    print_lines(plan_lines(plan), sys.stderr)
    what = "stops serving" if plan.stops_serving else "removes containers that sparkop did not make"
    return agreed(f"This {what}. Go on?")
