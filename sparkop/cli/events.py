"""``sparkop events``: what happened to the cluster, and why."""

from __future__ import annotations

from pathlib import Path

import click

from sparkop.cli.options import output_option, reach_spec, spec_options
from sparkop.errors import ExitCode, UnreachableError


@click.command("events")
@spec_options
@click.option("-n", "--last", type=click.IntRange(min=1), default=40, show_default=True, help="How many.")
@output_option
def command(
    spec: str | None, overlays: tuple[Path, ...], sets: tuple[str, ...], last: int, output: str
) -> int:
    """Show starts, restarts and their causes, what watch has mended, faults that came and went, edits of the
    spec that it refused (spec-refused) and those that it took again (spec-accepted), stops and guard trips.
    Reads only.

    Exit codes: 0, or 4 when the head could not be read.
    """
    from sparkop.reconcile.events import happened
    from sparkop.reconcile.nodes import readable_nodes
    from sparkop.reconcile.observe import observe
    from sparkop.views.events import show_events

    loaded, _ = reach_spec(spec, overlays, sets)
    with readable_nodes(loaded.spec) as hosts:
        reading = observe(loaded.spec, hosts, canary=False)
    head = loaded.spec.head.name
    if head in reading.observed.unknown:
        unknown = reading.observed.unknown[head]
        raise UnreachableError(
            "the history is on the head, which can't be read",
            node=head,
            cause=unknown.reason,
            remedy=unknown.remedy,
        )
    show_events(happened(reading)[-last:], output)
    return ExitCode.OK
