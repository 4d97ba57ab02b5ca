"""``sparkop doctor``: what is wrong, on which node, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkop.cli.options import load_spec, output_option, reach_spec, spec_options

if TYPE_CHECKING:
    from sparkop.reconcile.doctor import Report

facts_option = click.option(
    "--facts",
    "facts_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Use recorded facts (sparkop facts) instead of asking the nodes.",
)


@click.command("doctor")
@spec_options
@click.option("--node", "nodes", multiple=True, metavar="NAME", help="Tell of this node only. Repeatable.")
@click.option(
    "--only", multiple=True, metavar="CHECK", help="Run this check, or group: fabric,rdma. Repeatable."
)
@click.option("--all", "everything", is_flag=True, help="Also show the evidence of what is ok.")
@facts_option
@output_option
def command(
    spec: str | None,
    overlays: tuple[Path, ...],
    sets: tuple[str, ...],
    nodes: tuple[str, ...],
    only: tuple[str, ...],
    everything: bool,
    facts_file: Path | None,
    output: str,
) -> int:
    """Check every node: what is wrong, where, and the exact fix. Reads only.

    Exit codes: 0 nothing failed (warnings included), 4 a node could not be read, 6 a check failed.
    """
    from sparkop.views.doctor import show_report

    report = make_report(spec, overlays, sets, facts_file, nodes=nodes, only=only)
    show_report(report, output, everything=everything)
    return report.exit_code


def make_report(
    spec: str | None,
    overlays: tuple[Path, ...],
    sets: tuple[str, ...],
    facts_file: Path | None,
    *,
    nodes: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
) -> Report:
    """Of the nodes, or of recorded facts."""
    from sparkop.reconcile.doctor import chosen_checks, chosen_nodes, examine_facts, examine_nodes
    from sparkop.reconcile.facts import load_facts
    from sparkop.reconcile.nodes import readable_nodes

    if facts_file is not None:
        described = load_spec(spec, overlays, sets).spec
        documents = load_facts(facts_file, [node.name for node in described.nodes])
        return examine_facts(described, documents, nodes=nodes, only=only)
    loaded, _ = reach_spec(spec, overlays, sets)
    chosen_checks(only)
    chosen_nodes(loaded.spec, nodes)
    with readable_nodes(loaded.spec) as hosts:
        return examine_nodes(loaded.spec, hosts, nodes=nodes, only=only)
