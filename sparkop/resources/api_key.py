# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""The API key: made once on the head, owner-only, handed to the engine in a mounted file (principle 10).

A key file that is gone gets the key back that runs: clients have it, and the ranks need no restart. A key
that somebody else has written stays: the ranks are restarted with it, when a human applies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkop.engines.common import has_key
from sparkop.engines.paths import ENGINE_FILE, ENGINE_FILE_TARGET, expand, key_path
from sparkop.hosts.base import Json
from sparkop.hosts.document import Document
from sparkop.resources.base import Context, Difference, Resource
from sparkop.resources.compare import unread
from sparkop.resources.desired import Desired
from sparkop.resources.labels import ROLE_RANK, ours
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Action, Blocker, Cause, Operation, Unknown
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

KIND = "api-key"
PLACEHOLDER = "{key}"
"""What the node's program replaces by the key, so that a new key never leaves the node."""


class ApiKey(Resource):
    """One operation makes or mends both files."""

    kind = KIND

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Json]:
        if not has_key(spec) or node.name != spec.head.name:
            return {}
        both = [key_path(spec), ENGINE_FILE]
        return {"files": both, "contents": both}

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        document = observed.documents.get(desired.head)
        if not has_key(desired.spec) or document is None:
            return Difference()
        if document.files is None:
            return Difference(unknown=(unread(document, "files", desired.head, KIND),))
        path = key_path(desired.spec)
        for name in (path, ENGINE_FILE):
            problem = document.error("files", name) or document.error("contents", name)
            if problem is not None:
                return Difference(unknown=(Unknown(desired.head, f"{name}: {problem}", KIND),))
        if observed.key is not None and observed.key.problem:
            unfit = Cause("key", observed.key.problem, "one that an engine takes")
            return Difference(blockers=(Blocker(desired.head, KIND, unfit, observed.key.remedy),))
        cause = _cause(document, path, observed, _running(document, desired.spec))
        if cause is None:
            return Difference()
        action = Action.CREATE if document.files.get(path) is None else Action.UPDATE
        return Difference((Operation(action, desired.head, KIND, cause),))

    def perform(self, operation: Operation, context: Context) -> None:
        desired = context.desired
        template = desired.engine.key_file(PLACEHOLDER).decode()
        running = _running(context.observed.documents[operation.node], desired.spec)
        context.host(operation.node).act(
            "key.ensure",
            {
                "path": expand(key_path(desired.spec), desired.nodes[operation.node].home),
                "config": {"path": ENGINE_FILE, "template": template},
                "running": {"container": running, "path": ENGINE_FILE_TARGET} if running else None,
            },
            context.fence(operation.node),
        )


def _running(document: Document, spec: ClusterSpec) -> str | None:
    """The head's rank that runs: it has the key mounted."""
    return next((c.name for c, _ in ours(document, spec.name, ROLE_RANK) if c.running), None)


def _cause(document: Document, path: str, observed: Observed, running: str | None) -> Cause | None:
    files = document.files or {}
    key, handed = files.get(path), files.get(ENGINE_FILE)
    if key is None or observed.key is None:
        known = "the one that runs" if running else "the one handed out last" if handed else "present"
        return Cause("key", "absent" if key is None else "empty", known)
    for name, file in (("key", key), (ENGINE_FILE, handed)):
        if file is not None and file.mode & 0o077:
            return Cause(f"{name}.mode", f"{file.mode:04o}", "0600")
    if handed is None:
        return Cause(ENGINE_FILE, "absent", "present")
    if observed.key is not None and not observed.key.handed:
        return Cause(ENGINE_FILE, "another key", "the key of the key file")
    return None
