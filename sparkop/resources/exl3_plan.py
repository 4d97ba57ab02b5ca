# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""The EXL3 plan of the checkpoint, rewritten to the ranks' paths, on every node.

Its content is the checkpoint's; only the bank folders are other. So it is compared once the node's own copy
of the checkpoint's plan is verified, and is made from that one. The banks are files of the checkpoint: the
weights verify each of them by its hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Set
from typing import Any

from sparkop.engines.common import weights_target
from sparkop.engines.exl3 import FOLDER, bank_folders, plan_file, rewritten
from sparkop.engines.paths import PLANS
from sparkop.errors import BlockedError
from sparkop.hosts.base import Json
from sparkop.hosts.document import Document
from sparkop.resources.acts import write_file
from sparkop.resources.base import Context, Difference, Resource
from sparkop.resources.compare import unread
from sparkop.resources.desired import Desired
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Action, Blocker, Cause, Operation, Unknown
from sparkop.resources.weights.files import Checkpoint, shown_directory
from sparkop.resources.weights.resource import KIND as WEIGHTS
from sparkop.spec.engines import VllmEngine
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

KIND = "exl3-plan"
_OTHER_PLAN = "name another plan of the checkpoint in engine.exl3.plan"
_NO_PLANS = "weights.repository has no EXL3 plans: take another one, or leave engine.exl3 out"


class Exl3Plan(Resource):
    """Nothing for engines that have no such plan."""

    kind = KIND

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Json]:
        plan = plan_of(spec)
        return {} if plan is None else {"files": [f"{PLANS}/{plan}"], "contents": [source(spec, node, plan)]}

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        plan, checkpoint = plan_of(desired.spec), desired.outside.get(WEIGHTS)
        if plan is None or not isinstance(checkpoint, Checkpoint) or checkpoint.repository is None:
            return Difference()  # an unknown checkpoint is told by the weights
        paths = {file.path for file in checkpoint.files}
        if plan_file(plan) not in paths:
            return Difference(blockers=(_no_such_plan(desired.head, plan, paths),))
        operations: list[Operation] = []
        blockers: list[Blocker] = []
        unknown: list[Unknown] = []
        for node in desired.nodes.values():
            document = observed.documents[node.name]
            if document.files is None:
                unknown.append(unread(document, "files", node.name, KIND))
                continue
            unseen = document.error("files", f"{PLANS}/{plan}")
            if unseen is not None:
                unknown.append(Unknown(node.name, f"{PLANS}/{plan}: {unseen}", KIND))
                continue
            content = None
            if _verified(document, plan_file(plan)):
                path = source(desired.spec, desired.spec.nodes[node.index], plan)
                content = observed.contents.get(node.name, {}).get(path)
            found = _compare(desired.spec, node.name, document, plan, content, paths)
            operations += [found] if isinstance(found, Operation) else []
            blockers += [found] if isinstance(found, Blocker) else []
        return Difference(tuple(operations), tuple(blockers), tuple(unknown))

    def perform(self, operation: Operation, context: Context) -> None:
        spec, node = context.desired.spec, context.desired.nodes[operation.node]
        plan = plan_of(spec)
        assert plan is not None  # planned only then
        content = context.host(operation.node).read_file(source(spec, spec.nodes[node.index], plan))
        try:
            made = rewritten(content or b"", weights_target(spec))
        except BlockedError as error:
            raise BlockedError(
                f"{plan_file(plan)} can't be used",
                node=operation.node,
                cause=error.cause,
                remedy=error.remedy,
            ) from None
        write_file(context, operation.node, f"{node.state}/{PLANS}/{plan}", made)


def plan_of(spec: ClusterSpec) -> str | None:
    """Name of the plan; None when the engine has none."""
    engine = spec.engine
    return engine.exl3.plan if isinstance(engine, VllmEngine) and engine.exl3 is not None else None


def source(spec: ClusterSpec, node: NodeSpec, plan: str) -> str:
    """Where the checkpoint's own plan lies on a node; may begin with ``~``."""
    return f"{shown_directory(spec, node, spec.weights.revision)}/{plan_file(plan)}"


def _no_such_plan(head: str, plan: str, paths: Set[str]) -> Blocker:
    folder = plan_file("")
    others = sorted(path.removeprefix(folder) for path in paths if path.startswith(folder))
    remedy = f"name one that it has in engine.exl3.plan: {', '.join(others)}" if others else _NO_PLANS
    return Blocker(
        head, KIND, Cause("engine.exl3.plan", plan, f"a plan of the checkpoint's {folder}"), remedy
    )


def _verified(document: Document, path: str) -> bool:
    """Whether the node's copy of a file of the checkpoint is the published one."""
    weights = document.weights
    if weights is None or not weights.exists:
        return False
    return path not in {*weights.missing, *weights.wrong, *weights.unverified}


def _compare(
    spec: ClusterSpec, node: str, document: Document, plan: str, content: bytes | None, paths: Set[str]
) -> Operation | Blocker | None:
    """``content``: of the checkpoint's own plan; None until it is there and verified."""
    found = (document.files or {}).get(f"{PLANS}/{plan}")
    action = Action.CREATE if found is None else Action.UPDATE
    if content is None:
        return Operation(action, node, KIND, Cause("plan", "absent", plan)) if found is None else None
    try:
        wanted = hashlib.sha256(rewritten(content, weights_target(spec))).hexdigest()
        lost = [bank for bank in bank_folders(content) if not _has_folder(paths, f"{FOLDER}/{bank}/")]
    except BlockedError as error:
        cause = Cause(plan_file(plan), error.cause or error.message, "an EXL3 plan")
        return Blocker(node, KIND, cause, error.remedy or _OTHER_PLAN)
    if lost:
        cause = Cause(f"{plan_file(plan)} qdir", f"names {', '.join(lost)}", f"bank folders of {FOLDER}/")
        return Blocker(node, KIND, cause, _OTHER_PLAN)
    if found is not None and found.sha256 == wanted:
        return None
    observed = "absent" if found is None else "another content"
    return Operation(action, node, KIND, Cause("plan", observed, f"{plan} of the checkpoint"))


def _has_folder(paths: Set[str], folder: str) -> bool:
    return any(path.startswith(folder) for path in paths)
