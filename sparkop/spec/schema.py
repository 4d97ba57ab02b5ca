"""The JSON Schema of the spec, for editors."""

from __future__ import annotations

import json
from typing import Any

from sparkop.spec.models import ClusterSpec

_TOLD = {
    "unit": "Unit: {}.",
    "defaultText": "Left out: {}.",
    "flag": "Becomes {}.",
    "variable": "Becomes the variable {}.",
    "recipe": "Replaces {}.",
}


def json_schema(*, overlay: bool = False) -> dict[str, Any]:
    """Draft 2020-12. With ``overlay`` no key is required and null takes a value away."""
    schema = ClusterSpec.model_json_schema(by_alias=True)
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "sparkop ClusterSpec" + (" overlay" if overlay else ""),
        **{key: value for key, value in schema.items() if key != "title"},
    }
    _tidy(schema, overlay)
    return schema


def schema_text(*, overlay: bool = False) -> str:
    """The schema as it is committed."""
    return json.dumps(json_schema(overlay=overlay), indent=2, ensure_ascii=False) + "\n"


def _tidy(node: Any, overlay: bool) -> None:
    if isinstance(node, list):
        for each in node:
            _tidy(each, overlay)
    if not isinstance(node, dict):
        return
    if overlay:
        node.pop("required", None)
    properties = node.get("properties")
    if isinstance(properties, dict):
        for field in properties.values():
            field.pop("title", None)
            _describe(field)
    for key, value in node.items():
        if key not in ("default", "examples", "const", "enum"):
            _tidy(value, overlay)


def _describe(field: dict[str, Any]) -> None:
    """What editors show when the pointer rests on a key: the description, then the facts."""
    facts = [words.format(field.pop(key)) for key, words in _TOLD.items() if key in field]
    text = " ".join([field.get("description", ""), *facts]).strip()
    if text:
        field["description"] = text
    field.pop("valueText", None)
    field.pop("hint", None)
    example = field.pop("example", None)
    if example is not None:
        field["examples"] = [_value(example)]


def _value(example: str) -> Any:
    from sparkop.spec.tree import Source, data
    from sparkop.spec.yaml_text import parse

    node, _ = parse(Source("example", (example,)), example)
    return data(node) if node is not None else example
