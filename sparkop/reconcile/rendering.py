"""The ranks that a spec stands for on nodes that were read, or on recorded facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparkop.engines.base import NodeFacts
from sparkop.engines.render import Rendering, engine_of, render
from sparkop.errors import UnreachableError
from sparkop.hosts.base import ReadableHost
from sparkop.hosts.document import Document
from sparkop.reconcile.observe import observe
from sparkop.resources.base import Resource
from sparkop.resources.desired import Desired, desire
from sparkop.resources.registry import RESOURCES
from sparkop.spec.models import ClusterSpec


def rendering_on(spec: ClusterSpec, hosts: Mapping[str, ReadableHost]) -> Rendering:
    """What apply would start on these nodes. Raises UnreachableError for a node that can't be read."""
    reading = observe(spec, hosts, canary=False)
    for node, unknown in reading.observed.unknown.items():
        raise UnreachableError(unknown.reason, node=node, remedy=unknown.remedy)
    return render(spec, _facts(reading.desired))


def rendering_of(
    spec: ClusterSpec, documents: Mapping[str, Document], resources: Sequence[Resource] = RESOURCES
) -> Rendering:
    """The same from recorded facts. Raises UnreachableError when they are not enough."""
    outside: dict[str, Any] = {resource.kind: resource.prepare(spec) for resource in resources}
    return render(spec, _facts(desire(spec, engine_of(spec), documents, outside)))


def _facts(desired: Desired) -> list[NodeFacts]:
    found = []
    for node in desired.spec.nodes:
        facts, unread = desired.nodes[node.name].facts, desired.nodes[node.name].unread
        if unread:
            raise UnreachableError(
                "what changes its rank can't be read",
                node=node.name,
                cause=unread,
                remedy="make the file readable for the user, or take it out of the spec",
            )
        if facts is None:
            raise UnreachableError(
                "its place on the fabric is not known",
                node=node.name,
                cause="no active RDMA device of it has an IPv4 address",
                remedy=f"sparkop status; or set the fabric address and interface of {node.name} in the spec",
            )
        found.append(facts)
    return found
