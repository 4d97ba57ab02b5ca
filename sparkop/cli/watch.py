"""``sparkop watch``: heal the cluster by itself."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

from sparkop.cli.options import Seconds, output_option, reach_spec, refuse_unsafe, spec_options
from sparkop.errors import ExitCode, SparkopError, SpecError, UsageError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping

    from sparkop.hosts.base import Host
    from sparkop.reconcile.restrain import Asked
    from sparkop.reconcile.watch.known import Known
    from sparkop.reconcile.watch.loop import Watch
    from sparkop.reconcile.watch.say import Say
    from sparkop.spec.load import LoadedSpec


@click.command("watch")
@spec_options
@click.option(
    "--period",
    type=Seconds(min=1, max=3600),
    default=10.0,
    show_default=True,
    help="Seconds between two looks at rest.",
)
@click.option(
    "--pauses",
    default="2min,5min,15min",
    show_default=True,
    metavar="TIME,...",
    help="Least time from one restart to the next; after the last one watch gives up until apply.",
)
@click.option("--once", is_flag=True, help="Heal what can be healed now, and exit as apply does (for cron).")
@click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing.")
@output_option
def command(
    spec: str | None,
    overlays: tuple[Path, ...],
    sets: tuple[str, ...],
    period: float,
    pauses: str,
    once: bool,
    dry_run: bool,
    output: str,
) -> int:
    """Look, and heal: a dead or wedged group is replaced, once, right; what only a human can mend is told.

    A cluster that `stop` stopped is left alone until `apply`. Events go to stdout, one line each.
    Exit codes: with --once as apply. With --dry-run 0, also when there is something to do (the events tell
    it), 4 when a node could not be read, 6 when a human has to do something, or a pause between restarts is
    not over. Else it runs until you stop it (130, 143). In each case 65 when the spec that it starts with is
    refused, by itself or by the first look at all nodes (CPUs, memory).
    """
    from sparkop.cli.interrupts import stop_on_interrupt
    from sparkop.reconcile.restrain import Asked, By
    from sparkop.reconcile.watch.story import accepted_edit
    from sparkop.views.watch import logged, watch_events

    asked = Asked(By.WATCH, _pauses(pauses))
    loaded, choice = reach_spec(spec, overlays, sets)
    say = logged(watch_events(output), loaded.spec.name)
    refuse_unsafe(loaded)
    with stop_on_interrupt() as stop:
        if once or dry_run:
            _once(loaded, say, stop, asked, dry_run)
            return ExitCode.OK

        def read() -> LoadedSpec:
            again, _ = reach_spec(spec, overlays, sets)
            refuse_unsafe(again)
            return again

        files = (choice.path, *choice.overlays)
        source = _Source(files, _changed(files), read, [accepted_edit(time.time())])
        _forever(loaded, say, stop, asked, period, source)
    return ExitCode.OK


class _Source(NamedTuple):
    """Where the spec comes from, and whether that has been written since it was read."""

    files: tuple[Path, ...]
    changed: Callable[[], bool]
    read: Callable[[], LoadedSpec]
    edits: list[dict[str, Any]]
    """That one was refused, and that one was read: what is yet to be written down."""


class _Watched(NamedTuple):
    """A spec that is watched by, and what its watch knows."""

    loaded: LoadedSpec
    known: Known

    def edited(self, loaded: LoadedSpec) -> _Watched:
        """With another spec. Of other nodes nothing is known."""
        from sparkop.reconcile.watch.known import Known

        old, new = self.loaded.spec, loaded.spec
        same = (old.name, old.nodes) == (new.name, new.nodes)
        return _Watched(loaded, self.known if same else Known())


def _forever(
    loaded: LoadedSpec, say: Say, stop: threading.Event, asked: Asked, period: float, source: _Source
) -> None:
    """Watch, by a spec that has changed from its change on; by the one before when it is refused."""
    from sparkop.reconcile.watch.known import Known

    before: _Watched | None = None
    now = _Watched(loaded, Known())
    while True:  # it ends in a watch, which takes its sign of life back
        try:
            new = _run(now, say, stop, asked, period, source, instead_of=before)
        except SpecError as error:
            if before is None:
                raise _nothing_healed(error) from error
            _tell_refused(say, error, source)
            now, before = before, None
            continue
        if new is None:
            break
        before, now, source = now, new[0], source._replace(changed=new[1])
        say("spec-changed", spec=str(source.files[0]))


def _run(
    now: _Watched,
    say: Say,
    stop: threading.Event,
    asked: Asked,
    period: float,
    source: _Source,
    *,
    instead_of: _Watched | None = None,
) -> tuple[_Watched, Callable[[], bool]] | None:
    """Watch until there is another spec, with what tells that it has changed in turn; None: told to stop. One
    that is refused leaves the watch as it is, and is told once. ``instead_of`` another: raises SpecError when
    the nodes' facts forbid it."""
    from sparkop.reconcile.nodes import writable_nodes
    from sparkop.reconcile.watch.eye import Rhythm
    from sparkop.reconcile.watch.loop import Watch

    spec = now.loaded.spec
    say("watching", cluster=spec.name, period=period)
    rhythm = Rhythm(period=period, canary=max(3 * period, 10.0))
    with writable_nodes(spec) as hosts:
        watch = Watch(
            spec,
            hosts,
            say,
            stop=stop,
            asked=asked,
            rhythm=rhythm,
            instead=instead_of is not None,
            edits=source.edits,
            known=now.known,
        )
        follows: _Watched | None = None
        try:
            edited = _next_spec(watch, now, say, source)
            follows = edited[0] if edited is not None else None
            return edited
        except SpecError:
            follows = instead_of
            raise
        finally:
            if follows is None or follows.known is not now.known:
                watch.leave()


def _next_spec(
    watch: Watch, now: _Watched, say: Say, source: _Source
) -> tuple[_Watched, Callable[[], bool]] | None:
    """See `_run`. An edit that changes nothing, as a comment, leaves the watch as it is."""
    from sparkop.reconcile.watch.story import accepted_edit

    told: tuple[str | None, ...] = ()
    changed = source.changed
    while watch.run(changed):
        changed = _changed(source.files)  # before it is read: no write is missed
        try:
            loaded = source.read()
        except SparkopError as error:
            before, told = told, (error.message, error.detail or error.cause)
            if told != before:
                _tell_refused(say, error, source)
            continue
        source.edits.append(accepted_edit(time.time()))
        if loaded.spec != now.loaded.spec:
            return now.edited(loaded), changed
        told = ()
        say("spec-unchanged", spec=str(source.files[0]))
    return None


def _tell_refused(say: Say, error: SparkopError, source: _Source) -> None:
    """At once, and in the history as soon as it can be written: nobody may be reading what watch says."""
    from sparkop.reconcile.history import ACCEPTED
    from sparkop.reconcile.watch.story import refused_edit

    remedy = "mend it; until then the spec of before is kept"
    say("spec-refused", error=error.message, cause=error.detail or error.cause, remedy=remedy)
    source.edits[:] = [edit for edit in source.edits if edit["event"] != ACCEPTED]  # the nodes refuse it
    source.edits.append(refused_edit(_in_short(error), time.time()))


def _in_short(error: SparkopError) -> str:
    """What is wrong, or of several things the first, in one line."""
    from sparkop.spec.problems import InvalidSpecError

    if not isinstance(error, InvalidSpecError):
        return error.message + (f": {error.cause}" if error.cause else "")
    more = f" (and {len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
    return str(error.problems[0]).partition("\n")[0] + more


def _nothing_healed(error: SpecError) -> SpecError:
    """It ends the watch: there is no spec that it could heal by."""
    again = "start watch again when it is mended: nothing is healed by a spec that is refused"
    remedy = f"{error.remedy}\n  then {again}" if error.remedy else again
    return SpecError(error.message, node=error.node, cause=error.cause, remedy=remedy, detail=error.detail)


def _once(loaded: LoadedSpec, say: Say, stop: threading.Event, asked: Asked, dry_run: bool) -> None:
    from sparkop.reconcile.nodes import readable_nodes, writable_nodes
    from sparkop.reconcile.watch.loop import Watch, once

    with ExitStack() as stack:
        if dry_run:  # it is never asked to write, and it could not
            hosts = cast("Mapping[str, Host]", stack.enter_context(readable_nodes(loaded.spec)))
        else:
            hosts = stack.enter_context(writable_nodes(loaded.spec))
        watch = Watch(loaded.spec, hosts, say, stop=stop, asked=asked, dry_run=dry_run, steps_aside=False)
        try:
            once(watch)
        finally:
            watch.leave()  # it has given signs of life while it waited for a start


def _pauses(text: str) -> tuple[float, ...]:
    from sparkop.spec.quantities import Duration

    try:
        return tuple(float(Duration.parse(part.strip())) for part in text.split(","))
    except ValueError as error:
        raise UsageError(
            f"--pauses {text!r} is no list of times: it {error}",
            remedy="for example --pauses 2min,5min,15min",
        ) from error


def _changed(files: tuple[Path, ...]) -> Callable[[], bool]:
    """Whether one of the files has been written since now."""
    before = _stamps(files)
    return lambda: _stamps(files) != before


def _stamps(files: tuple[Path, ...]) -> list[tuple[int, int]]:
    """What changes when one of the files is written; a file that is being replaced counts as unchanged."""
    found = []
    for file in files:
        try:
            stat = file.stat()
            found.append((stat.st_mtime_ns, stat.st_size))
        except OSError:
            found.append((0, 0))
    return found
