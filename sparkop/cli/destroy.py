"""``sparkop destroy``: remove what sparkop made."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

from sparkop.cli.options import output_option, reach_spec, spec_options, yes_option
from sparkop.errors import ExitCode, UsageError


@click.command("destroy")
@spec_options
@yes_option
@click.option(
    "--weights",
    metavar="CLUSTER",
    help="Delete the checkpoint on every node too: the files of the spec's revision, in a hub cache what no "
    "other revision shares. Type the cluster's name: it took hours to fetch.",
)
@output_option
def command(
    spec: str | None,
    overlays: tuple[Path, ...],
    sets: tuple[str, ...],
    yes: bool,
    weights: str | None,
    output: str,
) -> int:
    """Remove what sparkop made: ranks, guards, images it pulled or built, state folders with key and history.

    What you have put into a state folder stays, and is named; not so what lies in sparkop's own folders there
    (cache, folders, incidents, ledger, logs, plans, transfer, units): they go whole.
    Exit codes: 0 removed, 4 a node did not answer (run it again for it), 5 another sparkop writes,
    6 something can't be removed.
    """
    from sparkop.cli.interrupts import stop_on_interrupt
    from sparkop.reconcile.destroy import destroy
    from sparkop.reconcile.left_behind import is_of_a_node, note_cleared
    from sparkop.reconcile.nodes import writable_nodes
    from sparkop.views.confirm import confirm
    from sparkop.views.left_behind import show_left_behind
    from sparkop.views.outcomes import show_destroyed
    from sparkop.views.progress import logged_progress

    loaded, choice = reach_spec(spec, overlays, sets)
    name = loaded.spec.name
    if weights is not None and weights != name:
        raise UsageError(f"--weights {weights}: the cluster is called {name}; nothing was removed")

    def agree(going: tuple[str, ...]) -> None:
        for line in going:
            click.echo(f"the checkpoint goes: {line}", err=True)
        if not yes:
            what = "checkpoint, " if going else ""
            confirm(f"Remove {what}ranks, guards, images, key and history of cluster {name} on every node?")

    with (
        stop_on_interrupt() as stop,
        writable_nodes(loaded.spec) as hosts,
        logged_progress(loaded.spec.name) as emit,
    ):
        gone = destroy(loaded.spec, hosts, weights=weights is not None, agree=agree, emit=emit, stop=stop)
    if not gone.interrupted:
        with suppress(OSError):  # an apply warns once too often
            left = {*gone.unknown, *gone.kept}
            note_cleared(loaded.spec, {each.name for each in loaded.spec.nodes} - left)
    show_destroyed(gone, output)
    if not is_of_a_node(loaded.spec, choice.path):
        show_left_behind(loaded.spec)
    return ExitCode.UNREACHABLE if gone.unknown else ExitCode.OK
