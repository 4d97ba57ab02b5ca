"""``sparkop status``: nodes, ranks, guard, memory and the API."""

from __future__ import annotations

from pathlib import Path

import click

from sparkop.cli.options import output_option, reach_spec, spec_options
from sparkop.errors import ExitCode


@click.command("status")
@spec_options
@output_option
def command(spec: str | None, overlays: tuple[Path, ...], sets: tuple[str, ...], output: str) -> int:
    """Show nodes, ranks, guard, memory and the API. Reads only.

    Exit codes: 0 as desired, or stopped as a human wished; 4 a node could not be read, 6 not as desired.
    """
    import time

    from sparkop.reconcile.lease_seen import beside_a_writer
    from sparkop.reconcile.logs import harmless_lines
    from sparkop.reconcile.measured import measure
    from sparkop.reconcile.nodes import readable_nodes
    from sparkop.reconcile.observe import observe
    from sparkop.reconcile.reconcile import reconcile
    from sparkop.reconcile.status import status_of, with_measured, with_notes
    from sparkop.views.errors import show_note
    from sparkop.views.status import show_status

    loaded, _ = reach_spec(spec, overlays, sets)
    with readable_nodes(loaded.spec) as hosts:
        reading = observe(loaded.spec, hosts, emit=show_note, brief=True)
        measured, notes = measure(reading, hosts), harmless_lines(reading, hosts)
    plan = reconcile(reading.desired, reading.observed, reading.history, time.time())
    status = status_of(reading, beside_a_writer(plan, reading.observed.documents))
    status = with_notes(with_measured(status, measured), notes)
    show_status(status, output)
    if status.as_wished:
        return ExitCode.OK
    return ExitCode.UNREACHABLE if status.state == "unknown" else ExitCode.FAILED
