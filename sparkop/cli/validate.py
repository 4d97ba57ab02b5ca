"""``sparkop validate``: every error of one or more specs."""

from __future__ import annotations

from pathlib import Path

import click

from sparkop.cli.options import choose, output_option
from sparkop.errors import ExitCode


@click.command("validate")
@click.argument("specs", nargs=-1)
@click.option(
    "--overlay",
    "overlays",
    multiple=True,
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML merged over each spec. Repeatable, later ones win.",
)
@click.option("--set", "sets", multiple=True, metavar="PATH=VALUE", help="Override one value. Repeatable.")
@output_option
def command(specs: tuple[str, ...], overlays: tuple[Path, ...], sets: tuple[str, ...], output: str) -> int:
    """Check one or more specs and show every error with its place. Reaches no node.

    Exit codes: 0 all are valid, 65 one is not.
    """
    from sparkop.errors import SpecError
    from sparkop.spec.load import load
    from sparkop.spec.problems import InvalidSpecError
    from sparkop.views.console import print_json

    choices = [choose(spec, overlays, sets) for spec in specs or (None,)]
    results = []
    invalid = 0
    for choice in choices:
        problems: list[object] = []
        error: SpecError | None = None
        try:
            load([choice.path, *choice.overlays], choice.sets)
        except InvalidSpecError as found:
            error, problems = found, [problem.as_json() for problem in found.problems]
        except SpecError as found:
            error = found
        invalid += error is not None
        results.append({"spec": str(choice.path), "valid": error is None, "problems": problems})
        if output == "json":
            continue
        if error is None:
            click.echo(f"{choice.path}: valid")
        else:
            click.echo(f"{error.detail}\n" if error.detail else f"{choice.path}: {error.message}\n", err=True)
    if output == "json":
        print_json({"version": 1, "specs": results})
    elif invalid and len(choices) > 1:
        click.echo(f"{invalid} of {len(choices)} specs are invalid", err=True)
    return ExitCode.INVALID_SPEC if invalid else ExitCode.OK
