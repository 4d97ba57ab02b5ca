# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""What a node must bring along, and what sparkop only tells: Docker, memory, the fabric, room on the disks.

Nothing is planned: what is wrong is physical, needs root, or would delete what is not ours. Other resources
wait until it is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sparkop.engines.paths import cache_directory, state_directory
from sparkop.hosts.base import Json
from sparkop.records import dataclass
from sparkop.resources.base import Context, Difference, Resource
from sparkop.resources.checks import refused
from sparkop.resources.checks.model import DISK, FABRIC, PREREQUISITES
from sparkop.resources.checks.storage import DOCKER_ROOT, TEMPORARY
from sparkop.resources.desired import Desired
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Operation
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

Request = Callable[[ClusterSpec, NodeSpec], Mapping[str, Json]]


def _nothing_more(_spec: ClusterSpec, _node: NodeSpec) -> Mapping[str, Json]:
    return {}


def _disks(spec: ClusterSpec, node: NodeSpec) -> Mapping[str, Json]:
    return {"disk": [state_directory(spec, node), cache_directory(spec, node), DOCKER_ROOT, TEMPORARY]}


@dataclass(frozen=True)
class Precondition(Resource):
    """The failed checks of one kind."""

    kind: str
    asks: Request = _nothing_more

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Json]:
        return self.asks(spec, node)

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        return refused(self.kind, desired, observed.documents)

    def perform(self, operation: Operation, context: Context) -> None:
        raise AssertionError(f"{self.kind} plans nothing: {operation.key}")


PRECONDITIONS = (Precondition(PREREQUISITES), Precondition(FABRIC), Precondition(DISK, _disks))
