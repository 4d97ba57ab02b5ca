"""docs/reference/spec.md, made from the models: ``sparkop schema --markdown``."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from sparkop.spec.explain import default_text, facts, plain_text
from sparkop.spec.fields import Field, fields_of, inner_models, kinds_of, root_model
from sparkop.spec.tree import show_path

_HEAD = """\
# The ClusterSpec

Made by `sparkop schema --markdown` from the models. `sparkop explain PATH` shows the same in the terminal.

* Keys are camelCase. A key that sparkop does not know is an error.
* Sizes and times carry a unit: `1 GiB`, `2700 MB`, `90 s`, `45 min`. A bare number or `1G` is refused.
* Text that YAML would read as a number, a truth value or nothing goes in quotes: `revision: "1234567"`.
* `--overlay FILE` lays a file over the spec: mappings are merged, everything else is replaced, null takes a
  value away (JSON Merge Patch). `nodes` are merged by `name`; a new name comes last.
* `--set path=value` changes one value: `--set memory.kvCache="9 GB"`,
  `--set nodes[spark-2].ssh=you@10.0.0.2`. The field decides whether the value is text
  or YAML; null takes it away.
* `sparkop render --spec` shows the result, and where each value came from.
* `sparkop schema` prints the JSON Schema for editors. With yaml-language-server, put this line on top:
  `# yaml-language-server: $schema=clusterspec.schema.json`
"""

_HASH = """\
## The desired-state hash

What sparkop makes is labelled with `v1:` and the SHA-256 of the canonical JSON of what was asked for:
mappings sorted by key and without entries that are not set, lists in order, sizes in bytes, whole numbers
without a fraction, UTF-8, no blanks. Nothing learnt later is in it, such as the digest of a pulled tag. A
change of this form would get a new version; a newer sparkop compares a container by the version on its
label, and so restarts nothing that an older one started.
"""


def reference_page() -> str:
    """The page."""
    return "\n".join([_HEAD, *_section(Field((), root_model()), root_model()), _HASH])


def _section(field: Field, model: type[BaseModel]) -> Iterator[str]:
    title = show_path(field.path) or "Top level"
    kinds = kinds_of(model)
    named = f" with `kind: {kinds[0]}`" if kinds and field.path else ""
    level = "##" if len(field.path) < 2 else "###"
    yield f"{level} {title}{named}\n\n{plain_text(model.__doc__)}\n"
    yield "| key | value | default | meaning |\n| --- | --- | --- | --- |"
    for each in fields_of(model, field.path):
        cells = (f"`{each.key}`", each.value, _default(each), _meaning(each))
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""
    for each in fields_of(model, field.path):
        for inner in inner_models(each.annotation):
            yield from _section(each, inner)


def _default(field: Field) -> str:
    text = default_text(field).removeprefix("default: ").removeprefix("default ")
    return {"see its keys": "", "not set": "", "required": "**required**"}.get(text, text).replace(
        "<", "&lt;"
    )


def _meaning(field: Field) -> str:
    return " ".join([field.description, *facts(field)]).replace("<", "&lt;")
