"""What differs and is not planned: it stands on what is unknown, or something is in the way. Told to who only
looks. Pure."""

from __future__ import annotations

from dataclasses import replace

from sparkop.reconcile.observe import Reading
from sparkop.reconcile.plan import GROUP, Plan
from sparkop.resources import intent, trip
from sparkop.resources.group import as_a_human_wants, down, examine, missing
from sparkop.resources.operations import Cause, kind_of

TRIPPED = "the guard's trip is settled, by other numbers or by your word"


def unplanned(reading: Reading, plan: Plan, node: str) -> dict[str, Cause]:
    """How plans call it -> what differs, of one node that was read."""
    found: dict[str, Cause] = {}
    for each in plan.waiting:
        if each.node == node and kind_of(each.resource) not in (*GROUP, intent.KIND):
            found.setdefault(each.resource, each.cause)
    return found | _ranks(reading, plan, node)


def _ranks(reading: Reading, plan: Plan, node: str) -> dict[str, Cause]:
    """Of a group that can't be seen whole only what does not run is known."""
    desired, observed, history = reading.desired, reading.observed, reading.history
    if any(o.node == node and kind_of(o.resource) == "rank" for o in plan.operations):
        return {}
    wished = as_a_human_wants(desired, observed, history)
    if any(kind_of(o.resource) == "rank" for o in plan.waiting):
        causes = () if wished else examine(desired, observed, history).causes
        return {resource: cause for resource, on, cause in causes if on == node}
    document = observed.documents[node]
    found = {rank: Cause("state", state, "running") for rank, state in down(desired, document).items()}
    gone = () if wished else missing(desired, node, document)
    return found | {rank: Cause("container", "missing", "running") for rank in gone}


def with_unplanned(plan: Plan, reading: Reading) -> Plan:
    """The plan, with a warning for each of them."""
    if plan.converged:
        return plan
    tripped = not plan.unknown and any(kind_of(each.resource) == trip.KIND for each in plan.blockers)
    then = TRIPPED if tripped else "the rest is known and mended"
    told = tuple(
        f"{node}: {resource} {cause.told_of(resource)}; it is planned when {then}"
        for node in reading.observed.documents
        for resource, cause in unplanned(reading, plan, node).items()
    )
    return replace(plan, warnings=(*plan.warnings, *told))
