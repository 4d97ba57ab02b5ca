"""``sparkop rollback``: go back to the last spec that was ready."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkop.cli.options import Choice, choose, output_option, reach_spec, spec_options, yes_option
from sparkop.errors import BlockedError, SpecError, UsageError

if TYPE_CHECKING:
    from sparkop.reconcile.ready_specs import ReadySpec
    from sparkop.reconcile.remembered import Applied


@click.command("rollback")
@spec_options
@yes_option
@output_option
def command(
    spec: str | None, overlays: tuple[Path, ...], sets: tuple[str, ...], yes: bool, output: str
) -> int:
    """Apply the last spec of this cluster that was ready before SPEC, as it was then.

    Until the next apply of another spec, a repeat goes on with the same rollback, and names the other specs
    that were ready.
    Exit codes: as apply; 6 when no other spec was ever ready.
    """
    from sparkop.cli.apply import apply_spec
    from sparkop.reconcile.ready_specs import text_of
    from sparkop.spec.load import load
    from sparkop.views.errors import show_error
    from sparkop.views.rollback import show_others, show_target

    chosen = choose(spec, overlays, sets).path.absolute()
    name: str | None
    before: str | None = None
    try:
        loaded, _ = reach_spec(spec, overlays, sets)
        name, before = loaded.spec.name, text_of(loaded.spec)
        begun = _begun(name)
        target = _target(name, before, begun)
    except SpecError as error:
        name = _applied_from(chosen)  # a spec that is broken is a reason to go back
        begun = _begun(name) if name else None
        target = _target(name, None, begun, broken=chosen) if name else None
        if target is None:
            raise
        show_error(error)
        reach_spec(str(target.path), (), ())  # into its lab, where it is of one
    if target is None:
        raise BlockedError(
            f"no other spec of cluster {name} is known to have been ready",
            cause="apply remembers the specs that served, on the machine that ran it",
            remedy="sparkop apply OLDER.yaml",
        )
    again = begun is not None and str(target.path) == begun.spec
    left = begun.instead_of if begun and begun.instead_of else str(chosen)
    served = again and begun is not None and begun.served
    what = ("rolled back already" if served else "going on with the rollback") if again else "rolling back"
    show_target(target, f"{what} from {left}", before)
    if served:
        show_others(str(name), target.path)
    return apply_spec(
        load([target.path]),
        Choice(target.path),
        yes=yes,
        adopt=False,
        after_trip=False,
        output=output,
        instead_of=left,
    )


def _target(
    cluster: str, before: str | None, begun: Applied | None, *, broken: Path | None = None
) -> ReadySpec | None:
    """Where a rollback that was begun goes, whatever SPEC is by now; else the newest but ``before``."""
    from sparkop.reconcile.ready_specs import ready_specs

    kept = [each for each in ready_specs(cluster) if each.path != broken]
    own = [each for each in kept if begun is not None and str(each.path) == begun.spec]
    return next((each for each in (*own, *kept) if each in own or each.text != before), None)


def _begun(cluster: str) -> Applied | None:
    """The rollback of this cluster that was applied last, until another spec is."""
    from sparkop.reconcile.remembered import last_applied

    last: Applied | None = None
    with suppress(UsageError):
        last = last_applied()
    return last if last and last.cluster == cluster and last.instead_of else None


def _applied_from(chosen: Path) -> str | None:
    """The cluster that was applied last, when it was from this very file, or a rollback has left it."""
    from sparkop.reconcile.remembered import last_applied

    last = last_applied()
    return last.cluster if last and str(chosen) in (last.spec, last.instead_of) else None
