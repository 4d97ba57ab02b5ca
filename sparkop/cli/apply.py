"""``sparkop apply``: make the machines what the spec says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkop.cli.options import Choice, output_option, reach_spec, refuse_unsafe, spec_options, yes_option
from sparkop.errors import BlockedError, DeclinedError, ExitCode, InTheWayError, TimedOutError, UsageError

if TYPE_CHECKING:
    from sparkop.reconcile.converge import Approve
    from sparkop.reconcile.remembered import Applied, Rollback
    from sparkop.resources.events import Event, Listener
    from sparkop.spec.load import LoadedSpec
    from sparkop.spec.models import ClusterSpec


@click.command("apply")
@spec_options
@yes_option
@click.option("--adopt", is_flag=True, help="Replace a recipe's containers that have the ranks' names.")
@click.option("--after-trip", is_flag=True, help="Launch the numbers again that the memory guard stopped.")
@output_option
def command(
    spec: str | None,
    overlays: tuple[Path, ...],
    sets: tuple[str, ...],
    yes: bool,
    adopt: bool,
    after_trip: bool,
    output: str,
) -> int:
    """Make the machines what the spec says. Safe to interrupt and to repeat.

    Exit codes: 0 converged, 3 timed out, 4 a node could not be read, 5 another sparkop writes,
    6 failed for good, 65 the spec is refused.
    """
    loaded, choice = reach_spec(spec, overlays, sets)
    return apply_spec(loaded, choice, yes=yes, adopt=adopt, after_trip=after_trip, output=output)


def apply_spec(
    loaded: LoadedSpec,
    choice: Choice,
    *,
    yes: bool,
    adopt: bool,
    after_trip: bool,
    output: str,
    rollback: Rollback | None = None,
    fled: tuple[str, ...] = (),
) -> int:
    """Converge, remember what was applied and what served, and tell. ``rollback`` goes to this spec, and away
    from ``fled``."""
    from sparkop.cli.interrupts import stop_on_interrupt
    from sparkop.reconcile.nodes import writable_nodes

    # The nodes connect while the rest is imported.
    with stop_on_interrupt() as stop, writable_nodes(loaded.spec) as hosts:
        refuse_unsafe(loaded)
        from sparkop.reconcile.converge import converge
        from sparkop.reconcile.left_behind import note_places
        from sparkop.reconcile.ready_specs import kept_path, remember_ready
        from sparkop.reconcile.remembered import remember
        from sparkop.views.left_behind import show_left_behind
        from sparkop.views.outcomes import show_applied
        from sparkop.views.plan import ask_approval, show_left
        from sparkop.views.progress import logged_progress

        approve: Approve | None = None if yes else ask_approval
        show_left_behind(loaded.spec)
        applied = _applied(loaded.spec, choice, rollback, fled)
        with logged_progress(loaded.spec.name) as emit:
            try:
                result = converge(
                    loaded.spec,
                    hosts,
                    emit=_remembering(loaded.spec, applied, emit),
                    stop=stop,
                    approve=approve,
                    command="rollback" if rollback else "apply",
                    confirm_trip=after_trip,
                    adopt=adopt,
                )
            except (DeclinedError, InTheWayError):
                raise  # another spec would end there, too
            except (BlockedError, TimedOutError):
                _tell_of_rollback(loaded.spec, applied)
                raise
        if result.interrupted:
            show_left(result.left)
    with _memory_may_fail("rollback will not find this spec"):
        kept = kept_path(loaded.spec) == choice.path.absolute()
        note_places(loaded.spec)
        remember_ready(loaded.spec, "" if kept else choice.absolute().words)
        if applied.rollback:
            applied = replace(applied, rollback=replace(applied.rollback, served=True))
        remember(applied)
    show_applied(result, output)
    return ExitCode.OK


def _tell_of_rollback(spec: ClusterSpec, applied: Applied) -> None:
    """Where another spec has served: this one may be what is wrong. Not of one that was never begun: that has
    changed nothing, and rollback would leave what serves."""
    from sparkop.reconcile.ready_specs import kept_path, last_ready

    served = last_ready(spec.name)
    if applied.rollback or (served is not None and str(served) in applied.fled):
        # rollback goes on with this one, or not to the one that it has left
        from sparkop.views.rollback import show_others

        show_others(spec.name, kept_path(spec))
        return
    if served is not None and served == last_ready(spec.name, other_than=spec) and _was_begun(applied):
        click.echo(
            "note: this spec has not served yet; sparkop rollback goes back to the one that did", err=True
        )


def _was_begun(applied: Applied) -> bool:
    """By this apply or one before: it is what later commands are about."""
    from sparkop.reconcile.remembered import last_of

    with suppress(UsageError):
        last = last_of(applied.cluster)
        return last is not None and replace(last, rollback=None, fled=()) == replace(
            applied, rollback=None, fled=()
        )
    return False


@contextmanager
def _memory_may_fail(what_is_lost: str) -> Iterator[None]:
    """What is remembered here is a convenience: without it the apply goes on, and says what is lost."""
    try:
        yield
    except OSError as error:
        click.echo(f"warning: nothing can be remembered on this machine: {error}; {what_is_lost}", err=True)


def _applied(spec: ClusterSpec, choice: Choice, rollback: Rollback | None, fled: tuple[str, ...]) -> Applied:
    """What there is to remember of an apply. One of the spec that a rollback was begun to goes on with it."""
    from sparkop.reconcile.ready_specs import kept_path
    from sparkop.reconcile.remembered import Applied, last_of

    before: Applied | None = None
    with suppress(UsageError):
        before = last_of(spec.name)
    choice, kept = choice.absolute(), str(kept_path(spec))
    applied = Applied(
        cluster=spec.name,
        spec=str(choice.path),
        overlays=tuple(map(str, choice.overlays)),
        sets=choice.sets,
        rollback=rollback,
        fled=fled,
    )
    if rollback or before is None:
        return applied
    if before.rollback and before.rollback.goes_to in (applied.spec, kept):
        applied = replace(applied, rollback=before.rollback)
    return replace(applied, fled=tuple(path for path in before.fled if path != kept))


def _remembering(spec: ClusterSpec, applied: Applied, emit: Listener) -> Listener:
    """Later commands are about this spec once its first operation starts, however the apply ends: not about
    one that was refused, declined, blocked, or never got the lease."""
    from sparkop.reconcile.left_behind import note_places
    from sparkop.reconcile.remembered import remember
    from sparkop.resources.events import Phase

    begun = False

    def remembering(event: Event) -> None:
        nonlocal begun
        if event.phase is Phase.STARTED and not begun:
            begun = True
            with _memory_may_fail("later commands need the spec named"):
                remember(applied)
                note_places(spec)
        emit(event)

    return remembering
