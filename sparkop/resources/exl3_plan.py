# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""The EXL3 plan of the checkpoint, rewritten to the ranks' paths, on every node (row A9).

Its content is the checkpoint's; only the bank folders are other. So it can be compared once the weights are
there, and is made from the node's own copy of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from sparkop.engines.common import weights_target
from sparkop.engines.exl3 import plan_file, rewritten
from sparkop.engines.paths import PLANS
from sparkop.errors import BlockedError, SparkopError
from sparkop.hosts.base import Json
from sparkop.hosts.document import Document
from sparkop.resources.acts import write_file
from sparkop.resources.base import Context, Difference
from sparkop.resources.compare import unread
from sparkop.resources.desired import Desired
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Action, Blocker, Cause, Operation, Unknown
from sparkop.resources.weights_files import shown_directory
from sparkop.spec.engines import VllmEngine
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

KIND = "exl3-plan"


class Exl3Plan:
    """Nothing for engines that have no such plan."""

    kind = KIND

    def prepare(self, spec: ClusterSpec) -> Any:
        return None

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Json]:
        plan = plan_of(spec)
        return {} if plan is None else {"files": [f"{PLANS}/{plan}"], "contents": [source(spec, node, plan)]}

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        plan = plan_of(desired.spec)
        operations: list[Operation] = []
        blockers: list[Blocker] = []
        unknown: list[Unknown] = []
        for node in desired.nodes.values() if plan is not None else ():
            assert plan is not None
            document = observed.documents[node.name]
            if document.files is None:
                unknown.append(unread(document, "files", node.name, KIND))
                continue
            path = source(desired.spec, desired.spec.nodes[node.index], plan)
            content = observed.contents.get(node.name, {}).get(path)
            found = _compare(desired.spec, node.name, document, plan, content)
            operations += [found] if isinstance(found, Operation) else []
            blockers += [found] if isinstance(found, Blocker) else []
        return Difference(tuple(operations), tuple(blockers), tuple(unknown))

    def perform(self, operation: Operation, context: Context) -> None:
        spec, node = context.desired.spec, context.desired.nodes[operation.node]
        plan = plan_of(spec)
        assert plan is not None  # planned only then
        content = context.host(operation.node).read_file(source(spec, spec.nodes[node.index], plan))
        if content is None:
            raise BlockedError(
                f"the checkpoint has no {plan_file(plan)}",
                node=operation.node,
                remedy="name another plan in engine.exl3.plan",
            )
        made = rewritten(content, weights_target(spec))
        write_file(context, operation.node, f"{node.state}/{PLANS}/{plan}", made)


def plan_of(spec: ClusterSpec) -> str | None:
    """Name of the plan; None when the engine has none."""
    engine = spec.engine
    return engine.exl3.plan if isinstance(engine, VllmEngine) and engine.exl3 is not None else None


def source(spec: ClusterSpec, node: NodeSpec, plan: str) -> str:
    """Where the checkpoint's own plan lies on a node; may begin with ``~``."""
    return f"{shown_directory(spec, node, spec.weights.revision)}/{plan_file(plan)}"


def _compare(
    spec: ClusterSpec, node: str, document: Document, plan: str, content: bytes | None
) -> Operation | Blocker | None:
    found = (document.files or {}).get(f"{PLANS}/{plan}")
    action = Action.CREATE if found is None else Action.UPDATE
    if content is None:
        if document.weights is not None and document.weights.complete and spec.weights.path is not None:
            cause = Cause("checkpoint", f"no {plan_file(plan)}", "present")
            return Blocker(node, KIND, cause, "name another plan in engine.exl3.plan")
        return Operation(action, node, KIND, Cause("plan", "absent", plan)) if found is None else None
    try:
        wanted = hashlib.sha256(rewritten(content, weights_target(spec))).hexdigest()
    except SparkopError as error:
        cause = Cause("plan", error.cause or error.message, "an EXL3 plan")
        return Blocker(node, KIND, cause, error.remedy or "name another plan in engine.exl3.plan")
    if found is not None and found.sha256 == wanted:
        return None
    observed = "absent" if found is None else "another content"
    return Operation(action, node, KIND, Cause("plan", observed, f"{plan} of the checkpoint"))
