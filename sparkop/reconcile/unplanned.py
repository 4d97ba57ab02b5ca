"""Ranks that don't run and that no plan names: of a group nothing is planned while another node is unknown,
or something is in the way. Told to who only looks. Pure."""

from __future__ import annotations

from dataclasses import replace

from sparkop.reconcile.observe import Reading
from sparkop.reconcile.plan import Plan
from sparkop.resources.group import as_a_human_wants, down, missing
from sparkop.resources.operations import Cause, kind_of


def unplanned(reading: Reading, plan: Plan, node: str) -> dict[str, Cause]:
    """How plans call the rank -> what differs, of one node that was read."""
    desired, document = reading.desired, reading.observed.documents[node]
    if any(o.node == node and kind_of(o.resource) == "rank" for o in plan.operations):
        return {}
    found = {rank: Cause("state", state, "running") for rank, state in down(desired, document).items()}
    if not as_a_human_wants(desired, reading.observed, reading.history):
        gone = missing(desired, node, document)
        found |= {rank: Cause("container", "missing", "running") for rank in gone}
    return found


def with_unplanned(plan: Plan, reading: Reading) -> Plan:
    """The plan, with a warning for each of them. Nothing is planned for it."""
    if plan.converged:
        return plan
    told = tuple(
        f"{node}: {rank} {cause.told}; it is planned when the rest is known and mended"
        for node in reading.observed.documents
        for rank, cause in unplanned(reading, plan, node).items()
    )
    return replace(plan, warnings=(*plan.warnings, *told))
