"""``sparkop lease``: who may write to the cluster."""

from __future__ import annotations

from pathlib import Path

import click

from sparkop.cli.options import output_option, reach_spec, spec_options, yes_option
from sparkop.errors import ExitCode, SparkopError


@click.group("lease")
def group() -> None:
    """Show who writes to the cluster, or take the right to write from a writer that is gone."""


@group.command("show")
@spec_options
@output_option
def show(spec: str | None, overlays: tuple[Path, ...], sets: tuple[str, ...], output: str) -> int:
    """Show the lease of every node. Exit codes: 0, 4 a node could not be read."""
    from sparkop.reconcile.lease_seen import show_lease
    from sparkop.reconcile.nodes import readable_nodes
    from sparkop.views.lease import show_leases

    loaded, _ = reach_spec(spec, overlays, sets)
    with readable_nodes(loaded.spec) as hosts:
        leases = show_lease(loaded.spec, hosts)
    show_leases(leases, output)
    unread = any(isinstance(lease, SparkopError) for lease in leases.values())
    return ExitCode.UNREACHABLE if unread else ExitCode.OK


@group.command("break")
@spec_options
@yes_option
def break_(spec: str | None, overlays: tuple[Path, ...], sets: tuple[str, ...], yes: bool) -> int:
    """Take the lease from whoever holds it: none of its writes is accepted any more.

    Only when the holder is gone for good. Tells of every node; of one that is silent the others lose it all
    the same. Exit codes: 0, 4 a node could not be read, 6 it could not be written on a node.
    """
    from sparkop.reconcile.lease import break_lease
    from sparkop.reconcile.nodes import writable_nodes
    from sparkop.views.confirm import confirm
    from sparkop.views.lease import show_broken

    loaded, _ = reach_spec(spec, overlays, sets)
    if not yes:
        confirm(f"Fence out whoever writes to cluster {loaded.spec.name} now?")
    with writable_nodes(loaded.spec) as hosts:
        broken = break_lease(loaded.spec, hosts)
    show_broken(broken)
    return next((each.exit_code for each in broken.values() if isinstance(each, SparkopError)), ExitCode.OK)
