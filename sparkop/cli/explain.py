"""``sparkop explain``: a field of the spec, in the models' own words."""

from __future__ import annotations

import click


@click.command("explain")
@click.argument("path", required=False)
def command(path: str | None) -> None:
    """Explain a field: PATH as in memory.guard, a recipe's variable, or nothing for the whole spec.

    Exit codes: 0, 64 there is no such field.
    """
    import shutil

    from sparkop.spec.explain import explain

    click.echo(explain(path, width=min(shutil.get_terminal_size((96, 24)).columns, 110)), nl=False)
