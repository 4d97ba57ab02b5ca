"""``sparkop schema``: the JSON Schema of the spec."""

from __future__ import annotations

import click


@click.command("schema")
@click.option("--overlay", is_flag=True, help="For overlay files: no key is required.")
@click.option("--markdown", is_flag=True, help="The reference page instead.")
def command(overlay: bool, markdown: bool) -> None:
    """Print the JSON Schema of the spec, for editors."""
    if markdown:
        from sparkop.spec.reference import reference_page

        click.echo(reference_page(), nl=False)
        return
    from sparkop.spec.schema import schema_text

    click.echo(schema_text(overlay=overlay), nl=False)
