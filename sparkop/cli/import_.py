"""``sparkop import``: a recipe's variables as an overlay."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkop.cli.new_file import write_new
from sparkop.cli.options import output_option
from sparkop.errors import UsageError

if TYPE_CHECKING:
    from sparkop.spec.import_recipe import Imported
    from sparkop.spec.models import ClusterSpec
    from sparkop.spec.recipe_file import Unmapped

_LARGEST = 256 * 1024
"""Bytes of a file of variables; those of the recipes have some thousands."""


@click.command("import")
@click.argument("env_file", metavar="[FILE]", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--recipe", help="The recipe that the variables are of. Default: told by their names.")
@click.option(
    "--over",
    "base",
    metavar="SPEC",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The spec that the overlay is for. Default: the recipe's own.",
)
@click.option(
    "--write",
    "target",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file, which must not exist, instead of stdout.",
)
@click.option("--list", "list_only", is_flag=True, help="Show every variable of both recipes and its field.")
@output_option
def command(
    env_file: Path | None,
    recipe: str | None,
    base: Path | None,
    target: Path | None,
    list_only: bool,
    output: str,
) -> None:
    """Turn a recipe's .env file, or exported variables without FILE, into an overlay.

    What could not be mapped is said, with the reason; secrets are never written.

    Exit codes: 0, 64 the recipe can't be told or FILE can't be read, 65 the overlay would not be valid.
    """
    from sparkop.spec.import_recipe import convert, laid_over, overlay_text, recipe_of
    from sparkop.spec.load import load
    from sparkop.spec.recipe_file import names_in
    from sparkop.spec.recipe_variables import Recipe, reference_page
    from sparkop.spec.recipes import directory

    if list_only:
        click.echo(reference_page(), nl=False)
        return
    text = _read(env_file) if env_file is not None else None
    if recipe is None:
        chosen = recipe_of(names_in(text) if text is not None else set(os.environ))
    elif recipe in list(Recipe):
        chosen = Recipe(recipe)
    else:
        raise UsageError(f"there is no recipe {recipe}", remedy=f"name one of {', '.join(Recipe)}")
    loaded = load([base or directory() / f"{chosen.value}.yaml"])
    nodes = [node.name for node in loaded.spec.nodes]
    imported = convert(
        chosen,
        text,
        os.environ,
        nodes=(nodes[0], nodes[1] if len(nodes) > 1 else nodes[0]),
        home=str(Path.home()),
    )
    overlay = overlay_text(imported)
    spec = laid_over(loaded, overlay, str(target or "overlay"), imported.mapped)
    _tell(imported.unmapped, spec)
    if output == "json":
        _print_json(imported)
    elif target is None:
        click.echo(overlay, nl=False)
    if target is not None:
        write_new(target, overlay)
        click.echo(f"Next: sparkop validate {base or chosen.value + '.yaml'} --overlay {target}", err=True)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"{path}:{line}: byte 0x{content[error.start]:02x} is no UTF-8"
        raise UsageError(message, remedy="save the file as UTF-8") from None
    if len(content) > _LARGEST or "\0" in text:
        raise UsageError(f"{path} is no file of variables: it is too long, or binary")
    return text


def _tell(unmapped: Sequence[Unmapped], spec: ClusterSpec) -> None:
    from sparkop.engines.rules import check

    for each in unmapped:
        click.echo(f"not mapped: {each.name}: {each.reason}", err=True)
    for finding in check(spec):
        if finding.refuses:
            click.echo(f"will be refused: {finding.message} [{finding.rule.id}]", err=True)


def _print_json(imported: Imported) -> None:
    from dataclasses import asdict

    from sparkop.views.console import print_json

    print_json(
        {
            "version": 1,
            "recipe": imported.recipe.value,
            "overlay": imported.overlay,
            "mapped": [asdict(each) for each in imported.mapped],
            "unmapped": [asdict(each) for each in imported.unmapped],
        }
    )
