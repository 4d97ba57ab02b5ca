"""``sparkop logs``: the launcher's and the ranks' logs."""

from __future__ import annotations

from pathlib import Path

import click

from sparkop.cli.options import reach_spec, spec_options


@click.command("logs")
@spec_options
@click.option("--rank", type=click.IntRange(min=0), help="Only this rank.")
@click.option("-n", "--lines", type=click.IntRange(min=0), default=40, help="Last lines of each. Default 40.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until Ctrl-C.")
def command(
    spec: str | None,
    overlays: tuple[Path, ...],
    sets: tuple[str, ...],
    rank: int | None,
    lines: int,
    follow: bool,
) -> None:
    """Show the last lines of every rank, masked: keys do not appear. Before them the launcher's: what
    commands told on this machine. Of a rank that is gone, the lines that its node has kept.

    Exit codes: 0, 4 a node could not be read, 6 no log of that rank, 64 no such rank.
    """
    from sparkop.reconcile.launcher import launcher_lines
    from sparkop.reconcile.logs import rank_logs
    from sparkop.reconcile.nodes import readable_nodes
    from sparkop.views.logs import show_launcher, show_logs

    loaded, _ = reach_spec(spec, overlays, sets)
    if rank is None:
        show_launcher(launcher_lines(loaded.spec.name, lines))
    with readable_nodes(loaded.spec) as hosts:
        show_logs(rank_logs(loaded.spec, hosts, rank=rank, tail=lines, follow=follow))
