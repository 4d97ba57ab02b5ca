"""``sparkop memory``: every node's memory, live."""

from __future__ import annotations

from pathlib import Path

import click

from sparkop.cli.options import output_option, reach_spec, spec_options
from sparkop.errors import ExitCode

EVERY = 1.0
"""Seconds between two readings."""


@click.command("memory")
@spec_options
@click.option("--once", is_flag=True, help="Show it once, also on a terminal.")
@output_option
def command(
    spec: str | None, overlays: tuple[Path, ...], sets: tuple[str, ...], once: bool, output: str
) -> int:
    """Show memory, page cache, phase and floors of every node, live on a terminal until Ctrl-C. Reads only.

    Exit codes: 0 all nodes were read, 4 one could not be read.
    """
    import time

    from sparkop.reconcile.memory import MemoryFeed, read_memory
    from sparkop.reconcile.nodes import readable_nodes
    from sparkop.views.console import out
    from sparkop.views.memory import memory_picture, show_memory

    loaded, _ = reach_spec(spec, overlays, sets)
    with readable_nodes(loaded.spec) as hosts:
        if once or output == "json" or not out().is_terminal:
            nodes = read_memory(loaded.spec, hosts)
            show_memory(nodes, output)
            return ExitCode.UNREACHABLE if any(node.reason for node in nodes) else ExitCode.OK
        from rich.live import Live

        feed = MemoryFeed(loaded.spec, hosts)
        with Live(memory_picture(feed.look(EVERY)), console=out(), auto_refresh=False) as live:
            while True:
                due = time.monotonic() + EVERY
                live.update(memory_picture(feed.look(EVERY)), refresh=True)
                time.sleep(max(0.0, due - time.monotonic()))
