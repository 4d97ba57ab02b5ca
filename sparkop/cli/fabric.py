"""``sparkop fabric``: the network between the nodes, as it is."""

from __future__ import annotations

from pathlib import Path

import click

from sparkop.cli.doctor import facts_option, make_report
from sparkop.cli.options import output_option, picture_option, spec_options
from sparkop.errors import SpecError


@click.command("fabric")
@spec_options
@facts_option
@picture_option("drawing")
@output_option
def command(
    spec: str | None,
    overlays: tuple[Path, ...],
    sets: tuple[str, ...],
    facts_file: Path | None,
    picture: Path | None,
    output: str,
) -> int:
    """Show the fabric: nodes, cages, rails, addresses, what the ranks are told, what is wrong. Reads only.

    Exit codes: 0 nothing failed (warnings included), 4 a node could not be read, 6 a check failed.
    """
    from sparkop.views.fabric import show_fabric
    from sparkop.views.fabric_map import fabric_map
    from sparkop.views.fabric_picture import svg

    report = make_report(spec, overlays, sets, facts_file, only=("rdma", "fabric", "nccl"))
    drawn = fabric_map(report)
    show_fabric(drawn, output)
    if picture is not None:
        try:
            picture.write_text(svg(drawn), encoding="utf-8")
        except OSError as error:
            raise SpecError(f"{picture} can't be written: {error.strerror}") from None
        click.echo(f"picture: {picture}", err=True)
    return report.exit_code
