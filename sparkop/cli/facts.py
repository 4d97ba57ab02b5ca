"""``sparkop facts``: record what the nodes are."""

from __future__ import annotations

from pathlib import Path

import click

from sparkop.cli.options import reach_spec, spec_options


@click.command("facts")
@spec_options
@click.option("--gpu", is_flag=True, help="Ask nvidia-smi too (slower).")
def command(spec: str | None, overlays: tuple[Path, ...], sets: tuple[str, ...], gpu: bool) -> None:
    """Record what the nodes are, as JSON on stdout: for `render --facts` and for reports. Holds no secret.

    Exit codes: 0, 4 a node could not be read (the others are recorded).
    """
    from sparkop.reconcile.facts import record_facts
    from sparkop.reconcile.nodes import readable_nodes
    from sparkop.views.console import print_json

    loaded, _ = reach_spec(spec, overlays, sets)
    with readable_nodes(loaded.spec) as hosts:
        facts, failure = record_facts(loaded.spec, hosts, gpu=gpu)
    print_json(facts)
    if failure is not None:
        raise failure
