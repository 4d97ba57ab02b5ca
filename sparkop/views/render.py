"""Rank containers on stdout: docker command lines for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from sparkop.engines.base import NodeFacts
from sparkop.engines.render import as_json, docker_command, engine_of, render
from sparkop.errors import UnreachableError
from sparkop.hosts.document import Document
from sparkop.resources.desired import desire
from sparkop.resources.masking import mask
from sparkop.spec.models import ClusterSpec
from sparkop.views.console import out, print_json, talk


def show_rendering(spec: ClusterSpec, documents: Mapping[str, Document], output: str = "text") -> None:
    """Print it. Raises UnreachableError when a node's facts are not enough to render its rank."""
    rendering = render(spec, _facts(spec, documents))
    for warning in rendering.warnings:
        talk().print(Text.assemble(("warning: ", "yellow"), warning))
    if output == "json":
        print_json(as_json(rendering))
        return
    for rank in rendering.ranks:
        out().print(Text(f"# rank {rank.rank} on {rank.node}", style="dim"))
        out().print(Text(mask(docker_command(rank)) + "\n"))


def _facts(spec: ClusterSpec, documents: Mapping[str, Document]) -> list[NodeFacts]:
    desired = desire(spec, engine_of(spec), documents)
    facts = []
    for node in spec.nodes:
        found = desired.nodes[node.name].facts
        if found is None:
            raise UnreachableError(
                "its place on the fabric is not known",
                node=node.name,
                cause="no active RDMA device of it has an IPv4 address",
                remedy=f"sparkop status; or set the fabric address and interface of {node.name} in the spec",
            )
        facts.append(found)
    return facts
