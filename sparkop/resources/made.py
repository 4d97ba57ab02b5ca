# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""What ``destroy`` takes away beside ranks and guards: what sparkop made or fetched on the nodes.

Never planned by ``diff``: it is the opposite of desired state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkop.hosts.base import Json
from sparkop.resources.acts import remove_file
from sparkop.resources.base import Context, Difference
from sparkop.resources.desired import Desired
from sparkop.resources.labels import BUILT_FOR
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Action, Operation
from sparkop.resources.peers import withdraw
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

KIND = "made"
IMAGE, WEIGHTS, STATE = "made/image", "made/weights", "made/state"
PULLED = "pulled"
"""Event of a node's history: sparkop has pulled this image, so sparkop may remove it."""


class Made:
    """Removes; plans nothing by itself."""

    kind = KIND

    def prepare(self, spec: ClusterSpec) -> Any:
        return None

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Json]:
        return {"unnamed": f"{BUILT_FOR}={spec.name}"}

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        return Difference()

    def perform(self, operation: Operation, context: Context) -> None:
        assert operation.action is Action.REMOVE  # nothing else is planned
        host, fence = context.host(operation.node), context.fence(operation.node)
        wanted = operation.parameters
        if operation.resource.startswith(IMAGE):
            host.act("image.remove", dict(wanted), fence)
        elif operation.resource == WEIGHTS:
            for number, path in enumerate(wanted["files"], 1):
                remove_file(context, operation.node, path)
                context.progress(f"{number} of {len(wanted['files'])} files")
        else:
            withdraw(context, operation.node)
            host.act("directory.remove", {"path": wanted["path"]}, fence)
