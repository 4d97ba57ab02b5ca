"""``sparkop stop``: stop serving, and remember that a human wanted it so."""

from __future__ import annotations

from pathlib import Path

import click

from sparkop.cli.options import output_option, reach_spec, spec_options, yes_option
from sparkop.errors import ExitCode


@click.command("stop")
@spec_options
@yes_option
@output_option
def command(
    spec: str | None, overlays: tuple[Path, ...], sets: tuple[str, ...], yes: bool, output: str
) -> int:
    """Stop serving: remove ranks and guards, check that they are gone and that memory is back.

    `watch` leaves a stopped cluster alone until the next `apply` that starts something.
    Where the cluster was destroyed, or never applied, nothing is written.
    A node that does not answer, or whose state folder can't be written, is named; the others are stopped.
    Exit codes: 0 stopped, 4 a node did not answer (its ranks may still run), 5 another sparkop writes,
    6 a container stays, or a node's state folder can't be written.
    """
    from sparkop.cli.interrupts import stop_on_interrupt
    from sparkop.reconcile.nodes import writable_nodes
    from sparkop.reconcile.stop import stop_serving
    from sparkop.views.confirm import confirm
    from sparkop.views.outcomes import show_stopped
    from sparkop.views.progress import logged_progress

    loaded, _ = reach_spec(spec, overlays, sets)
    if not yes:
        confirm(f"Stop serving {', '.join(loaded.spec.api.served_names)} on cluster {loaded.spec.name}?")
    with (
        stop_on_interrupt() as stop,
        writable_nodes(loaded.spec) as hosts,
        logged_progress(loaded.spec.name) as emit,
    ):
        stopped = stop_serving(loaded.spec, hosts, emit=emit, stop=stop)
    show_stopped(stopped, output)
    if stopped.unknown:
        return ExitCode.UNREACHABLE
    return ExitCode.FAILED if stopped.refused else ExitCode.OK
