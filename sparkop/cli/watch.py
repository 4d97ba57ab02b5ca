"""``sparkop watch``: heal the cluster by itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkop.cli.options import output_option, reach_spec, refuse_unsafe, spec_options
from sparkop.errors import ExitCode, SparkopError

if TYPE_CHECKING:
    import threading

    from sparkop.reconcile.watch import Say
    from sparkop.spec.load import LoadedSpec


@click.command("watch")
@spec_options
@click.option(
    "--period",
    type=click.FloatRange(min=1, max=3600),
    default=10.0,
    show_default=True,
    help="Seconds between two looks at rest.",
)
@click.option("--once", is_flag=True, help="Heal what can be healed now, and exit as apply does (for cron).")
@click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing.")
@output_option
def command(
    spec: str | None,
    overlays: tuple[Path, ...],
    sets: tuple[str, ...],
    period: float,
    once: bool,
    dry_run: bool,
    output: str,
) -> int:
    """Look, and heal: a dead or wedged group is replaced, once, right; what only a human can mend is told.

    A cluster that `stop` stopped is left alone until `apply`. Events go to stdout, one line each.
    Exit codes: with --once as apply; else until you stop it (130, 143), or 65 when the spec is refused.
    """
    from sparkop.cli.interrupts import stop_on_interrupt
    from sparkop.views.watch import watch_events

    say = watch_events(output)
    loaded, choice = reach_spec(spec, overlays, sets)
    refuse_unsafe(loaded)
    with stop_on_interrupt() as stop:
        if once or dry_run:
            _once(loaded, say, stop, dry_run)
            return ExitCode.OK
        while not stop.is_set():
            files = (choice.path, *choice.overlays)
            before = _stamps(files)
            if not _run(loaded, say, stop, period, lambda b=before, f=files: _stamps(f) != b):
                break
            try:
                loaded, choice = reach_spec(spec, overlays, sets)
                refuse_unsafe(loaded)
                say("spec-changed", spec=str(choice.path))
            except SparkopError as error:
                say(
                    "spec-refused",
                    error=error.message,
                    remedy="the spec of before is kept until it is mended",
                )
    return ExitCode.OK


def _run(loaded: LoadedSpec, say: Say, stop: threading.Event, period: float, changed: object) -> bool:
    from sparkop.reconcile.nodes import writable_nodes
    from sparkop.reconcile.watch import Watch
    from sparkop.reconcile.watch_eye import Rhythm

    assert callable(changed)
    say("watching", cluster=loaded.spec.name, period=period)
    rhythm = Rhythm(period=period, canary=max(3 * period, 10.0))
    with writable_nodes(loaded.spec) as hosts:
        return Watch(loaded.spec, hosts, say, stop=stop, rhythm=rhythm).run(changed)


def _once(loaded: LoadedSpec, say: Say, stop: threading.Event, dry_run: bool) -> None:
    from sparkop.reconcile.nodes import writable_nodes
    from sparkop.reconcile.watch import Watch, once

    with writable_nodes(loaded.spec) as hosts:
        once(Watch(loaded.spec, hosts, say, stop=stop, dry_run=dry_run, steps_aside=False))


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
