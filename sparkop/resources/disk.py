# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""Room on the disks of a node, beside what the weights need (``weights`` asks for that itself)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkop.engines.paths import cache_directory, state_directory
from sparkop.hosts.base import Json
from sparkop.resources.base import Context, Difference
from sparkop.resources.checks import refused
from sparkop.resources.checks.storage import DOCKER_ROOT, TEMPORARY
from sparkop.resources.desired import Desired
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Operation
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

KIND = "disk"


class Disk:
    """Nothing is planned: sparkop deletes nothing to make room."""

    kind = KIND

    def prepare(self, spec: ClusterSpec) -> Any:
        return None

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Json]:
        return {"disk": [state_directory(spec, node), cache_directory(spec, node), DOCKER_ROOT, TEMPORARY]}

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        return refused(KIND, desired, observed.documents)

    def perform(self, operation: Operation, context: Context) -> None:
        raise AssertionError(f"{KIND} plans nothing: {operation.key}")
