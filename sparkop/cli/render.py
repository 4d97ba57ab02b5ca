"""``sparkop render``: the rank containers that the spec stands for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkop.cli.options import load_spec, output_option, reach_spec, spec_options

if TYPE_CHECKING:
    from sparkop.engines.render import Rendering


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

    show_rendering(_rendering(spec, overlays, sets, facts_file), output)


def _rendering(
    spec: str | None, overlays: tuple[Path, ...], sets: tuple[str, ...], facts_file: Path | None
) -> Rendering:
    from sparkop.reconcile.facts import load_facts
    from sparkop.reconcile.nodes import readable_nodes
    from sparkop.reconcile.rendering import rendering_of, rendering_on

    if facts_file is not None:
        described = load_spec(spec, overlays, sets).spec
        return rendering_of(described, load_facts(facts_file, [node.name for node in described.nodes]))
    loaded, _ = reach_spec(spec, overlays, sets)
    with readable_nodes(loaded.spec) as hosts:
        return rendering_on(loaded.spec, hosts)
