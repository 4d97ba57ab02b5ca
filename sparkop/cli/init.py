"""``sparkop init``: a commented spec for the user's machines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkop.cli.new_file import write_new
from sparkop.errors import UsageError

if TYPE_CHECKING:
    from sparkop.spec.init import Found


@click.command("init")
@click.option("--head", metavar="SSH", help="The head: user@host, an ssh alias, or local for this machine.")
@click.option("--worker", "workers", multiple=True, metavar="SSH", help="A worker. Repeatable.")
@click.option("--recipe", help="The recipe to begin with: qwen3.8-flash-next or deepseek-v4.1-flash.")
@click.option("--name", help="Name of the cluster. Default: the recipe's.")
@click.option("--detect", is_flag=True, help="Ask the nodes over SSH for their names and fabric.")
@click.option(
    "--write",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file, which must not exist, instead of stdout.",
)
def command(
    head: str | None,
    workers: tuple[str, ...],
    recipe: str | None,
    name: str | None,
    detect: bool,
    target: Path | None,
) -> None:
    """Write a spec for your machines. Asks for what is not given, on a terminal.

    Exit codes: 0, 64 something is missing or wrong.
    """
    from sparkop.spec.init import Wishes, new_spec

    recipe, head, workers = _complete(recipe, head, workers)
    wishes = Wishes(recipe, (head, *workers), name)
    text = new_spec(wishes)
    if detect:
        text = new_spec(wishes, _ask_nodes(text))
    if target is None:
        click.echo(text, nl=False)
    else:
        write_new(target, text)
        click.echo(f"{target} written", err=True)
    _tell_refusals(text)
    where = target or "spec.yaml"
    click.echo(f"Next: sparkop validate {where}, then sparkop diff {where} (reads only).", err=True)
    if not detect:
        click.echo(
            "No node was asked; addresses and devices are found at apply, or now with --detect.", err=True
        )


def _tell_refusals(text: str) -> None:
    """What rules say of the recipe on these machines, such as one node where its weights need two."""
    from sparkop.engines.rules import check
    from sparkop.spec.load import load_text

    for finding in check(load_text(text).spec):
        if finding.refuses:
            click.echo(f"will be refused: {finding.message} [{finding.rule.id}]", err=True)


def _complete(
    recipe: str | None, head: str | None, workers: tuple[str, ...]
) -> tuple[str, str, tuple[str, ...]]:
    """Ask for what is missing; without a terminal, say what is."""
    if recipe is not None and head is not None:
        return recipe, head, workers
    from sparkop.spec.recipes import recipes

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        missing = [name for name, value in (("--recipe", recipe), ("--head", head)) if value is None]
        nodes = "--head you@10.0.0.1 --worker you@10.0.0.2"
        raise UsageError(
            f"{' and '.join(missing)} missing, and no terminal to ask on",
            remedy=f"sparkop init --recipe {recipe or recipes()[0]} {nodes}",
        )
    if recipe is None:
        recipe = click.prompt("Recipe", type=click.Choice(recipes()), err=True)
    if head is None:
        head = click.prompt("Head (user@host, an ssh alias, or local)", default="local", err=True)
        answer = click.prompt("Workers (blanks between, or nothing)", default="", err=True)
        workers = workers or tuple(answer.split())
    return str(recipe), str(head), workers


def _ask_nodes(text: str) -> dict[int, Found]:
    """What the nodes that answer say; each that does not is told and left out."""
    from sparkop.hosts.rails import select_fabric
    from sparkop.reconcile.nodes import readable_nodes
    from sparkop.reconcile.observe import observe
    from sparkop.spec.init import Found
    from sparkop.spec.load import load_text

    spec = load_text(text).spec
    found: dict[int, Found] = {}
    with readable_nodes(spec) as hosts:
        observed = observe(spec, hosts, canary=False, resources=()).observed
    for index, node in enumerate(spec.nodes):
        document = observed.documents.get(node.name)
        if document is None or document.machine is None:
            reason = observed.unknown[node.name].told if node.name in observed.unknown else "no answer"
            click.echo(f"{node.name}: not read ({reason}); its values are found at apply", err=True)
            continue
        fabric = select_fabric(document)
        words = None
        if fabric is not None:
            words = f"fabric {fabric.address} on {fabric.interface}, devices {', '.join(fabric.hcas)}"
        found[index] = Found(document.machine.hostname, words)
    return found
