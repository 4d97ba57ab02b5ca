"""``sparkop budget``: what the memory of every node and rank will hold, and what is left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkop.cli.options import load_spec, output_option, picture_option, reach_spec, spec_options
from sparkop.errors import ExitCode, SpecError, UsageError

if TYPE_CHECKING:
    from sparkop.engines.budget.lines import Budget
    from sparkop.engines.fit import What
    from sparkop.reconcile.checkpoint import Sources
    from sparkop.spec.load import LoadedSpec
    from sparkop.views.budget import Checked


@click.command("budget")
@spec_options
@click.option(
    "--fit",
    "what",
    type=click.Choice(["context", "sequences", "kv", "fraction"]),
    help="Find the largest safe value of one setting.",
)
@click.option(
    "--compare",
    "compared",
    multiple=True,
    metavar="PATH=VALUE|FILE",
    help="A second setting beside the first: a value or an overlay. Repeatable.",
)
@click.option(
    "--from",
    "origin",
    type=click.Choice(["auto", "known", "nodes", "hub"]),
    default="auto",
    show_default=True,
    help="Configuration and weights: the numbers shipped with sparkop, the nodes' copies (and memory), "
    "or the hub's headers. auto: shipped, else nodes.",
)
@picture_option("bars")
@output_option
def command(
    spec: str | None,
    overlays: tuple[Path, ...],
    sets: tuple[str, ...],
    what: What | None,
    compared: tuple[str, ...],
    origin: str,
    picture: Path | None,
    output: str,
) -> int:
    """Show what the memory of every node and rank will hold, and what is left. Changes nothing.

    Exit codes: 0 it fits, 4 a node could not be read, 6 the hub can't be asked, 65 a rule refuses the spec or
    nothing is known of its model.
    """
    from sparkop.engines.fit import fit
    from sparkop.reconcile.checkpoint import sources
    from sparkop.views.budget import show_budget, show_comparison, show_fit

    if what and compared:
        raise UsageError("--fit and --compare exclude each other", remedy="give one of them")
    loaded, origin = _loaded(spec, overlays, sets, origin)
    read = sources(loaded.spec, origin)
    if what:
        found = fit(loaded.spec, what, read.checkpoint, read.memory)
        show_fit(found, output)
        _picture(picture, [("", found.budget)])
        return ExitCode.OK
    first = _checked(loaded, read)
    if not compared:
        show_budget(first.budget, first.findings, output)
        _picture(picture, [("", first.budget)])
        return ExitCode.INVALID_SPEC if first.refused else ExitCode.OK
    second = _checked(_changed(loaded, compared), read)
    show_comparison(first, second, output)
    _picture(picture, [("as it is", first.budget), (" ".join(compared), second.budget)])
    return ExitCode.INVALID_SPEC if second.refused else ExitCode.OK


def _loaded(
    spec: str | None, overlays: tuple[Path, ...], sets: tuple[str, ...], origin: str
) -> tuple[LoadedSpec, str]:
    """The spec, and where to read from. Nodes are reached only where that is asked for or nothing else is."""
    from sparkop.engines.budget.checkpoint import known

    if origin in ("auto", "known"):
        loaded = load_spec(spec, overlays, sets)
        if origin == "known" or known(loaded.spec.weights.repository):
            return loaded, "known"
    return reach_spec(spec, overlays, sets)[0], "hub" if origin == "hub" else "nodes"


def _checked(loaded: LoadedSpec, read: Sources) -> Checked:
    from sparkop.engines.budget.budget import budget
    from sparkop.engines.rules import check
    from sparkop.views.budget import Checked

    found = budget(loaded.spec, read.checkpoint, read.memory)
    assert found is not None
    return Checked(found, tuple(check(loaded.spec, budget=found)))


def _changed(loaded: LoadedSpec, compared: tuple[str, ...]) -> LoadedSpec:
    from sparkop.spec.load import load

    sets = [text for text in compared if "=" in text]
    overlays = [Path(text) for text in compared if "=" not in text]
    return load([*loaded.paths, *overlays], [*loaded.sets, *sets])


def _picture(path: Path | None, budgets: list[tuple[str, Budget]]) -> None:
    if path is None:
        return
    from sparkop.views.budget_picture import svg

    try:
        path.write_text(svg(budgets), encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{path} can't be written: {error.strerror}") from None
    click.echo(f"picture: {path}", err=True)
