"""``sparkop rollback``: go back to the last spec that was ready."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from sparkop.cli.options import (
    Choice,
    choose,
    output_option,
    reach_spec,
    refuse_unsafe,
    spec_options,
    yes_option,
)
from sparkop.errors import BlockedError, SpecError, UsageError

if TYPE_CHECKING:
    from sparkop.reconcile.ready_specs import ReadySpec
    from sparkop.reconcile.remembered import Applied
    from sparkop.spec.load import LoadedSpec


@click.command("rollback")
@spec_options
@yes_option
@output_option
def command(
    spec: str | None, overlays: tuple[Path, ...], sets: tuple[str, ...], yes: bool, output: str
) -> int:
    """Apply the last spec of this cluster that was ready before SPEC, as it was then.

    Until the next apply of another spec, a repeat goes on with the same rollback, and names the other specs
    that were ready. None goes to a spec that a rollback has left, until that is applied again.
    Exit codes: as apply; 6 when no other spec was ever ready.
    """
    from sparkop.cli.apply import apply_spec
    from sparkop.reconcile.ready_specs import kept_path, text_of
    from sparkop.reconcile.remembered import Rollback
    from sparkop.views.rollback import show_others, show_passed, show_target

    choice = choose(spec, overlays, sets).absolute()
    broken: SpecError | None = None
    before: str | None = None
    left: list[str] = []
    try:
        loaded, _ = reach_spec(spec, overlays, sets)
        name, before, left = loaded.spec.name, text_of(loaded.spec), [str(kept_path(loaded.spec))]
    except SpecError as error:
        known = _applied_from(choice.path)  # a spec that is broken is a reason to go back
        if known is None:
            raise
        name, broken = known, error
    last = _last(name)
    kept = _kept(name, before, last, but=choice.path if broken else None)
    if broken is not None:
        if not kept:
            raise broken
        show_passed(broken)
    target, goal = _first_whole(name, kept, last, _instead(choice, name, before))
    if broken is not None:
        reach_spec(str(target.path), (), ())  # into its lab, where it is of one
    rollback, what = Rollback(str(choice.path), choice.words, str(target.path)), "rolling back"
    if last and last.rollback and last.rollback.goes_to == str(target.path):
        rollback, left = last.rollback, []
        what = "rolled back already" if rollback.served else "going on with the rollback"
    fled = dict.fromkeys((*(last.fled if last else ()), *left))
    show_target(target, f"{what} from {rollback.words}", before)
    if rollback.served:
        click.echo(
            "where it still serves nothing is done; stopped, destroyed or changed, it is applied", err=True
        )
        show_others(name, target.path)
    return apply_spec(
        goal,
        Choice(target.path),
        yes=yes,
        adopt=False,
        after_trip=False,
        output=output,
        rollback=rollback,
        fled=tuple(each for each in fled if each != str(target.path) and Path(each).exists()),
    )


def _kept(cluster: str, before: str | None, last: Applied | None, *, but: Path | None) -> list[ReadySpec]:
    """Where a rollback may go: first where one that was begun goes, whatever SPEC is by now; then the others,
    the newest first, but not ``before``, nor what one has fled from."""
    from sparkop.reconcile.ready_specs import ready_specs

    kept = [each for each in ready_specs(cluster) if each.path != but]
    begun, fled = (last.rollback, last.fled) if last else (None, ())
    own = [each for each in kept if begun is not None and str(each.path) == begun.goes_to]
    return [*own, *(e for e in kept if e not in own and e.text != before and str(e.path) not in fled)]


def _instead(choice: Choice, cluster: str, before: str | None) -> str:
    """What to type where no other spec is known: SPEC, which an apply with other ``--set`` has left; else
    SPEC without them; else it has to be corrected."""
    from sparkop.reconcile.ready_specs import ready_specs

    if any(each.text == before for each in ready_specs(cluster)):
        return f"sparkop apply {choice.arguments}  # it has served"
    path = quote(str(choice.path))
    if choice.sets or choice.overlays:
        return f"sparkop apply {path}  # without --set and overlays"
    return f"correct {path}, then sparkop apply {path}"


def _first_whole(
    cluster: str, kept: Sequence[ReadySpec], last: Applied | None, instead: str
) -> tuple[ReadySpec, LoadedSpec]:
    """The first that can still be applied; what is wrong with those before it is told. ``instead``: what to
    type where there is none."""
    from sparkop.spec.load import load

    refused: SpecError | None = None
    for each in kept:
        try:
            loaded = load([each.path])
            refuse_unsafe(loaded)
            return each, loaded
        except SpecError as error:
            click.echo(f"warning: {each.path} on this machine can't be applied: {error.reason}", err=True)
            refused = refused or error
    if refused is not None:
        raise SpecError(
            f"no other spec of cluster {cluster} that was ready can be applied",
            cause=f"{kept[0].path} on this machine is damaged, or refused by now",
            remedy=f"rm {kept[0].path} forgets one that is damaged; {instead}",
        )
    fled = [path for path in (last.fled if last else ()) if Path(path).exists()]
    if fled:
        raise BlockedError(
            f"no other spec of cluster {cluster} was ready but what a rollback has left",
            remedy=f"sparkop apply {fled[-1]} goes there all the same",
        )
    raise BlockedError(
        f"no other spec of cluster {cluster} is known to have been ready",
        cause="apply remembers the specs that served, on the machine that ran it",
        remedy=instead,
    )


def _last(cluster: str) -> Applied | None:
    """What was applied last of this cluster."""
    from sparkop.reconcile.remembered import last_of

    with suppress(UsageError):
        return last_of(cluster)
    return None


def _applied_from(chosen: Path) -> str | None:
    """The cluster that was applied last, when it was from this very file, or a rollback has left it."""
    from sparkop.reconcile.remembered import last_applied

    last = last_applied()
    files = (last.spec, last.rollback.left if last.rollback else None) if last else ()
    return last.cluster if last and str(chosen) in files else None
