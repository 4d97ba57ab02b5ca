"""``sparkop rollback``: go back to the last spec that was ready."""

from __future__ import annotations

from pathlib import Path

import click

from sparkop.cli.options import Choice, output_option, reach_spec, spec_options, yes_option
from sparkop.errors import BlockedError


@click.command("rollback")
@spec_options
@yes_option
@output_option
def command(
    spec: str | None, overlays: tuple[Path, ...], sets: tuple[str, ...], yes: bool, output: str
) -> int:
    """Apply the last spec of this cluster that was ready before SPEC, as it was then.

    Exit codes: as apply; 6 when no other spec was ever ready.
    """
    from sparkop.cli.apply import apply_spec
    from sparkop.reconcile.ready_specs import last_ready
    from sparkop.spec.load import load

    loaded, _ = reach_spec(spec, overlays, sets)
    path = last_ready(loaded.spec.name, other_than=loaded.spec)
    if path is None:
        raise BlockedError(
            f"no other spec of cluster {loaded.spec.name} is known to have been ready",
            cause="apply remembers the specs that served, on the machine that ran it",
            remedy="sparkop apply OLDER.yaml",
        )
    click.echo(f"rolling back to {path}", err=True)
    choice = Choice(path)
    return apply_spec(load([path]), choice, yes=yes, adopt=False, after_trip=False, output=output)
