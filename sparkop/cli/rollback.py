"""``sparkop rollback``: go back to the last spec that was ready."""

from __future__ import annotations

from pathlib import Path

import click

from sparkop.cli.options import Choice, choose, output_option, reach_spec, spec_options, yes_option
from sparkop.errors import BlockedError, SpecError


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
    from sparkop.views.errors import show_error

    name: str | None
    try:
        loaded, _ = reach_spec(spec, overlays, sets)
        name, path = loaded.spec.name, last_ready(loaded.spec.name, other_than=loaded.spec)
    except SpecError as error:
        name = _applied_from(spec, overlays, sets)  # a spec that is broken is a reason to go back
        path = last_ready(name) if name else None
        if path is None:
            raise
        show_error(error)
        reach_spec(str(path), (), ())  # into its lab, where it is of one
    if path is None:
        raise BlockedError(
            f"no other spec of cluster {name} is known to have been ready",
            cause="apply remembers the specs that served, on the machine that ran it",
            remedy="sparkop apply OLDER.yaml",
        )
    click.echo(f"rolling back to {path}", err=True)
    choice = Choice(path)
    return apply_spec(load([path]), choice, yes=yes, adopt=False, after_trip=False, output=output)


def _applied_from(spec: str | None, overlays: tuple[Path, ...], sets: tuple[str, ...]) -> str | None:
    """The cluster that was applied last, when it was from this very file."""
    from sparkop.reconcile.remembered import last_applied

    last = last_applied()
    chosen = choose(spec, overlays, sets).path.absolute()
    return last.cluster if last and Path(last.spec) == chosen else None
