# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""What ``destroy`` takes away beside ranks and guards: what sparkop made or fetched on the nodes.

Never planned by ``diff``: it is the opposite of desired state.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from sparkop.hosts.base import Json
from sparkop.resources.acts import write_file
from sparkop.resources.base import Context, Difference, Resource
from sparkop.resources.desired import Desired
from sparkop.resources.events import Event, Phase
from sparkop.resources.labels import BUILT_FOR
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Action, Operation
from sparkop.resources.peers import withdraw
from sparkop.resources.state import HISTORY, first_of, named_within
from sparkop.resources.weights.files import Checkpoint, removal
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

KIND = "made"
IMAGE, TRANSFERS, WEIGHTS, STATE = "made/image", "made/transfers", "made/weights", "made/state"

_SHOWN = {TRANSFERS: "transfers and their keys", WEIGHTS: "checkpoint", STATE: "state folder"}
_DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]+")

REMOVAL = 600.0
"""Seconds that a node gets for the checkpoint's files."""


def words_for(resource: str) -> str:
    """A resource as people read it: ``state folder``, ``image lab/standin@sha256:5668e35e5668``."""
    if resource.startswith(f"{IMAGE}/"):
        return "image " + _DIGEST.sub(r"\1", resource.removeprefix(f"{IMAGE}/"))
    return _SHOWN.get(resource, resource)


class Made(Resource):
    """Removes; plans nothing by itself."""

    kind = KIND

    def __init__(self, weights: Resource | None = None) -> None:
        self._weights = weights
        """The resource of the checkpoint, when that goes too."""

    def prepare(self, spec: ClusterSpec) -> Any:
        return self._weights.prepare(spec) if self._weights else None

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Json]:
        wanted: dict[str, Json] = {"pulled": True, "unnamed": f"{BUILT_FOR}={spec.name}"}
        if isinstance(outside, Checkpoint) and outside.repository is not None:
            wanted["removable"] = removal(spec, node, outside)
        return wanted

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        return Difference()

    def perform(self, operation: Operation, context: Context) -> None:
        assert operation.action is Action.REMOVE  # nothing else is planned
        host, fence = context.host(operation.node), context.fence(operation.node)
        wanted = operation.parameters
        if operation.resource.startswith(IMAGE):
            host.act("image.remove", dict(wanted), fence)
        elif operation.resource == TRANSFERS:
            withdraw(context, operation.node)
        elif operation.resource == WEIGHTS:
            node = context.desired.spec.node(operation.node)
            going = removal(context.desired.spec, node, context.desired.outside[KIND])
            going = {**going, "keep": wanted.get("keep", [])}
            host.act("weights.remove", going, fence, timeout=REMOVAL)
        else:
            self._remove_state(operation, context)

    def _remove_state(self, operation: Operation, context: Context) -> None:
        """What is ours, but for the entries of what stays: a later ``destroy`` finds it by them."""
        path, left = operation.parameters["path"], operation.parameters["left"]
        if left:
            ledger = json.dumps({"version": 1, "entries": left}).encode() + b"\n"
            write_file(context, operation.node, f"{path}/{HISTORY}", ledger, mode=0o600)
        spec, name = context.desired.spec, operation.node
        wanted: dict[str, Json] = {
            "path": path,
            "keep": [HISTORY] if left else [],
            "apart": operation.parameters["apart"],
            "ours": named_within(spec, spec.node(name)),
        }
        done = context.host(name).act("directory.remove", wanted, context.fence(name))
        others = done.get("left")
        if isinstance(others, list) and others:
            text = (
                f"kept: {path}, which has files that are not sparkop's ({first_of(list(map(str, others)))})"
            )
            context.emit(Event(Phase.NOTE, node=name, text=text))
