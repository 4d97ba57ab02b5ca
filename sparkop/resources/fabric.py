# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""The network between the nodes: an active rail with an address on each, one subnet, the asked MTU.

Read only. What is wrong here is physical or needs root: it is told with what to do (decision 6).
"""

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

KIND = "fabric"


class Fabric:
    """Nothing is planned; ranks wait until it is right."""

    kind = KIND

    def prepare(self, spec: ClusterSpec) -> Any:
        return None

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Json]:
        return {}

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        return refused(KIND, desired, observed.documents)

    def perform(self, operation: Operation, context: Context) -> None:
        raise AssertionError(f"{KIND} plans nothing: {operation.key}")
