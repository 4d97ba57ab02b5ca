"""``sparkop render``: the rank containers that the spec stands for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkop.cli.options import load_spec, output_option, reach_spec, spec_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkop.hosts.document import Document
    from sparkop.spec.models import ClusterSpec


@click.command("render")
@spec_options
@click.option(
    "--facts",
    "facts_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Use recorded facts (sparkop facts) instead of asking the nodes.",
)
@click.option(
    "--spec", "only_spec", is_flag=True, help="Show the merged spec and where each value came from."
)
@output_option
def command(
    spec: str | None,
    overlays: tuple[Path, ...],
    sets: tuple[str, ...],
    facts_file: Path | None,
    only_spec: bool,
    output: str,
) -> None:
    """Show the rank containers, as docker command lines or JSON. Changes nothing.

    Exit codes: 0, 4 a node could not be read, 65 the spec or the facts are invalid.
    """
    if only_spec:
        from sparkop.spec.show import show_spec

        click.echo(show_spec(load_spec(spec, overlays, sets)), nl=False)
        return
    from sparkop.views.render import show_rendering

    if facts_file is not None:
        from sparkop.reconcile.facts import load_facts

        loaded = load_spec(spec, overlays, sets)
        documents = load_facts(facts_file, [node.name for node in loaded.spec.nodes])
    else:
        loaded, _ = reach_spec(spec, overlays, sets)
        documents = _observed(loaded.spec)
    show_rendering(loaded.spec, documents, output)


def _observed(spec: ClusterSpec) -> Mapping[str, Document]:
    from sparkop.errors import UnreachableError
    from sparkop.reconcile.nodes import readable_nodes
    from sparkop.reconcile.observe import observe

    with readable_nodes(spec) as hosts:
        observed = observe(spec, hosts, canary=False).observed
    for node, unknown in observed.unknown.items():
        raise UnreachableError(unknown.reason, node=node)
    return observed.documents
