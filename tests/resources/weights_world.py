"""Nodes, a hub and a spec for tests of the weights: everything real but the machines."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkop.engines.base import FabricFacts, NodeFacts
from sparkop.hosts.document import parse_document
from sparkop.resources.base import Context, Difference
from sparkop.resources.desired import Desired, DesiredNode
from sparkop.resources.events import Event
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Operation
from sparkop.resources.transfer_program import call
from sparkop.resources.weights.resource import KIND, WeightFiles
from sparkop.spec.models import ClusterSpec
from tests.node.hub_standin import Hub
from tests.resources.local_node import LocalNode


def spec_of(hub: Hub, nodes: Sequence[str], **weights: Any) -> ClusterSpec:
    """A spec whose weights come from the stand-in hub. ``trusted`` and ``otherRoutes`` go to the fabric."""
    fabric = {"trusted": weights.pop("trusted", True), "otherRoutes": weights.pop("otherRoutes", False)}
    place = {} if "hubCache" in weights else {"path": "~/models/it is ü"}
    return ClusterSpec.model_validate(
        {
            "apiVersion": "sparkop/v1",
            "name": "test",
            "nodes": [{"name": name, "ssh": f"user@{name}"} for name in nodes],
            "fabric": fabric,
            "weights": {"repository": hub.repository, "endpoint": hub.base, **place, **weights},
            "image": {"reference": "x/y:z"},
            "engine": {"kind": "vllm"},
            "api": {"servedNames": ["m"]},
        }
    )


@dataclass
class World:
    """One cluster. ``look`` observes and compares, ``do`` performs."""

    spec: ClusterSpec
    nodes: dict[str, LocalNode]
    events: list[Event] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    resource: WeightFiles = field(default_factory=WeightFiles)
    addresses: dict[str, str] = field(default_factory=dict)
    """On the fabric, where it is not loopback's own."""

    @classmethod
    def make(cls, folder: Path, hub: Hub, names: Sequence[str] = ("one", "two"), **weights: Any) -> World:
        nodes = {name: LocalNode(name, folder / name) for name in names}
        return cls(spec_of(hub, names, **weights), nodes)

    def context(self, *, deep: bool = False) -> Context:
        outside = self.resource.prepare(self.spec)
        documents = {}
        desired = {}
        for index, spec in enumerate(self.spec.nodes):
            node = self.nodes[spec.name]
            request: dict[str, Any] = {
                "cluster": "test",
                "state": str(node.state),
                "sections": ["machine", "weights", "state", "disk"],
            }
            request |= self.resource.request(self.spec, spec, outside)
            request["deep"] = deep
            documents[spec.name] = parse_document(node.probe(request))
            link = FabricFacts(
                address=self.addresses.get(spec.name, "127.0.0.1"), interface="lo", hcas=(), gid_index=None
            )
            facts = NodeFacts(spec.name, str(node.home), link, 2, revision=outside.revision)
            desired[spec.name] = DesiredNode(
                spec.name, index, str(node.home), str(node.state), str(node.home / "models"), facts
            )
        return Context(
            Desired(self.spec, None, desired, outside={KIND: outside}),  # type: ignore[arg-type]
            Observed(documents),
            dict(self.nodes),  # type: ignore[arg-type]
            {name: node.fence for name, node in self.nodes.items()},
            self.events.append,
            self.stop,
        )

    def look(self, *, deep: bool = False) -> Difference:
        context = self.context(deep=deep)
        return self.resource.diff(context.desired, context.observed, History())

    def do(self, operations: Sequence[Operation] | None = None) -> None:
        """Perform side by side, as the executor does. Raises the first failure."""
        context = self.context()
        if operations is None:
            operations = self.resource.diff(context.desired, context.observed, History()).operations
        failures: list[BaseException] = []

        def run(operation: Operation) -> None:
            try:
                self.resource.perform(operation, context)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=run, args=(operation,)) for operation in operations]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def end(self) -> None:
        """End whatever still runs on the nodes."""
        for node in self.nodes.values():
            call(node, node.fence, "cancel")  # type: ignore[arg-type]
            call(node, node.fence, "unshare")  # type: ignore[arg-type]
