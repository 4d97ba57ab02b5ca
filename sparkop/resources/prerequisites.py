# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""What a node must bring along: Docker that this user may use, enough memory, a machine of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkop.hosts.base import Json
from sparkop.resources.base import Context, Difference
from sparkop.resources.checks import refused
from sparkop.resources.desired import Desired
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Operation
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

KIND = "prerequisites"


class Prerequisites:
    """Only tells; there is nothing that sparkop would install by itself."""

    kind = KIND

    def prepare(self, spec: ClusterSpec) -> Any:
        return None

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Json]:
        return {}

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        return refused(KIND, desired, observed.documents)

    def perform(self, operation: Operation, context: Context) -> None:
        raise AssertionError(f"{KIND} plans nothing: {operation.key}")
