"""A plan as text: one line an operation. The text is the oracle of the golden tests, so it is stable."""

from __future__ import annotations

from sparkop.reconcile.plan import Plan
from sparkop.resources.compare import human_bytes, human_seconds
from sparkop.resources.operations import Blocker, Cost, Operation, Origin, Unknown, folded, with_remedy

ORIGINS = {
    Origin.SPEC: "the spec was changed",
    Origin.FILES: "the files of the build context were changed",
    Origin.SPARKOP: "another sparkop made it",
    Origin.DRIFT: "drift",
}


def plan_lines(plan: Plan) -> list[str]:
    """Operations in their order, then what blocks, what is unknown, and warnings; last, where nothing has to
    be done, that this is so."""
    causes = [operation.cause for operation in plan.operations]
    lines = [operation_line(each, said=each.cause in causes[:at]) for at, each in enumerate(plan.operations)]
    lines += [blocker_line(blocker) for blocker in plan.blockers]
    lines += [unknown_line(unknown) for unknown in folded(plan.unknown)]
    lines += [f"warning   {warning}" for warning in plan.warnings]
    return [*lines, "converged: nothing to do"] if plan.converged else lines


def operation_line(operation: Operation, *, said: bool = False) -> str:
    """``start     rank/1            spark-2  container: missing -> running``. ``said``: a line before has the
    cause; what is wrong with an API takes a whole line, and every rank is made anew for it."""
    notes = [ORIGINS[operation.origin]] if operation.origin in ORIGINS else []
    notes += [cost_text(operation.cost)] if cost_text(operation.cost) else []
    told = operation.cause.told_of(operation.resource)
    if said and operation.cause.field == "endpoint":
        told = "restart of the group"
    return f"{operation.action:<9} {operation.resource:<18} {operation.node}  {told}" + (
        f"  [{', '.join(notes)}]" if notes else ""
    )


def blocker_line(blocker: Blocker) -> str:
    """``blocked   ... ; do: ...``."""
    told = with_remedy(blocker.cause.told_of(blocker.resource), blocker.remedy)
    return f"blocked   {blocker.resource:<18} {blocker.node}  {told}"


def unknown_line(unknown: Unknown) -> str:
    """``unknown   ...``."""
    return f"unknown   {unknown.resource or 'node':<18} {unknown.node}  {unknown.told}"


def cost_text(cost: Cost) -> str:
    """``stops serving, 1.5 GiB, 12 min``; empty when it costs next to nothing."""
    parts = ["stops serving"] if cost.stops_serving else []
    parts += [human_bytes(cost.bytes)] if cost.bytes else []
    if cost.late:
        parts.append("longer than the last time")
    elif cost.seconds is None:
        parts.append("time not measured yet")
    elif 0 < cost.seconds < 1:
        parts.append("a second or less")
    elif cost.seconds:
        parts.append(f"about {human_seconds(cost.seconds)}")
    return ", ".join(parts)
