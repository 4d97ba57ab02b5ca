"""``sparkop diff``: what differs, why, and what apply would do."""

from __future__ import annotations

from pathlib import Path

import click

from sparkop.cli.options import output_option, reach_spec, refuse_unsafe, spec_options
from sparkop.errors import ExitCode


@click.command("diff")
@spec_options
@click.option("--deep", is_flag=True, help="Hash every weight file again instead of trusting the ledger.")
@output_option
def command(
    spec: str | None, overlays: tuple[Path, ...], sets: tuple[str, ...], deep: bool, output: str
) -> int:
    """Show what differs, why, and what apply would do. Changes nothing.

    Exit codes: 0 converged, 2 differs, 4 a node could not be read, 65 the spec is refused.
    """
    import time

    from sparkop.reconcile.nodes import readable_nodes

    loaded, _ = reach_spec(spec, overlays, sets)
    with readable_nodes(loaded.spec) as hosts:  # they connect while the rest is imported
        refuse_unsafe(loaded)
        from sparkop.reconcile.lease_seen import beside_a_writer
        from sparkop.reconcile.observe import observe
        from sparkop.reconcile.reconcile import reconcile
        from sparkop.reconcile.refuse import refuse
        from sparkop.reconcile.unplanned import with_unplanned
        from sparkop.resources.weights.follow import running_told
        from sparkop.views.errors import show_note
        from sparkop.views.left_behind import show_left_behind
        from sparkop.views.plan import show_plan

        show_left_behind(loaded.spec)
        reading = observe(loaded.spec, hosts, deep=deep, emit=show_note)
        refuse(loaded.spec, reading.desired, hosts[loaded.spec.head.name])
    plan = reconcile(reading.desired, reading.observed, reading.history, time.time())
    plan = beside_a_writer(with_unplanned(plan, reading), reading.observed.documents)
    show_plan(plan, output, running_told(reading.observed.documents))
    if plan.unknown:
        return ExitCode.UNREACHABLE
    return ExitCode.OK if plan.converged else ExitCode.DIFFERS
