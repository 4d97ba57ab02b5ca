"""Rules on the nodes as they were read: nothing is changed for a spec that one of them refuses."""

from __future__ import annotations

from sparkop.engines.budget.budget import budget
from sparkop.engines.budget.machine import NodeMemory
from sparkop.engines.rules import Finding, check
from sparkop.errors import SpecError
from sparkop.hosts.base import ReadableHost
from sparkop.reconcile.checkpoint import at_hand
from sparkop.resources.desired import Desired
from sparkop.resources.weights.files import Checkpoint
from sparkop.resources.weights.resource import KIND
from sparkop.spec.models import ClusterSpec
from sparkop.spec.tree import show_path


def refuse(spec: ClusterSpec, desired: Desired, head: ReadableHost) -> None:
    """Raise SpecError (65) for what the rules refuse on the facts of the nodes that answered.

    The budget is that of the shipped numbers, else of the configuration on the head, else of the hub's.
    """
    facts = [node.facts for node in desired.nodes.values() if node.facts is not None]
    memory = {fact.name: NodeMemory(fact.memory_total) for fact in facts if fact.memory_total is not None}
    listed = desired.outside.get(KIND)
    on_hub = listed.repository.config if isinstance(listed, Checkpoint) and listed.repository else None
    checkpoint = at_hand(spec, head, on_hub) if spec.head.name in desired.nodes else None
    made = budget(spec, checkpoint, memory)
    refused = [finding for finding in check(spec, facts, made) if finding.refuses]
    if not refused:
        return
    first = refused[0]
    raise SpecError(
        _text(first),
        remedy=f"to set it aside knowingly: rules.override: [{{id: {first.rule.id}, reason: ...}}]"
        if first.rule.overridable
        else None,
        detail="\n".join(_text(finding) for finding in refused[1:]) or None,
    )


def all_known(desired: Desired) -> bool:
    """Whether the rules see every node: the budget takes one that was not read for a Spark, and a refusal by
    that may go by itself. What they look at (CPUs, memory in all, the model's configuration) does not."""
    facts = [node.facts for node in desired.nodes.values()]
    read = [fact for fact in facts if fact is not None and fact.memory_total is not None]
    return len(read) == len(desired.spec.nodes)


def _text(finding: Finding) -> str:
    return f"{show_path(finding.path)}: {finding.message} [{finding.rule.id}]"
