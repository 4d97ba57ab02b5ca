"""The JSON Schema: committed, true to the loader, and every field documented."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sparkop.spec.fields import every_field
from sparkop.spec.load import load
from sparkop.spec.reference import reference_page
from sparkop.spec.schema import json_schema, schema_text
from sparkop.spec.tree import data, show_path
from tests.spec.corpus import bad_specs
from tests.spec.samples import SHIPPED

DOCS = Path(__file__).parents[2] / "docs" / "reference"


def test_committed_files_are_current() -> None:
    """Editors and readers get what the models say now."""
    made = {
        "schema/clusterspec.schema.json": schema_text(),
        "schema/overlay.schema.json": schema_text(overlay=True),
        "spec.md": reference_page(),
    }
    stale = [name for name, text in made.items() if (DOCS / name).read_text(encoding="utf-8") != text]
    assert stale == [], "write them anew: sh tests/spec/regenerate.sh"


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_specs_fit(path: Path) -> None:
    jsonschema.Draft202012Validator(json_schema()).validate(data(load([path]).tree))


@pytest.mark.parametrize(
    "name", ["key-typo", "value-size-two-readings", "value-port", "key-missing-section", "value-distribution"]
)
def test_it_refuses_what_the_loader_refuses(name: str) -> None:
    """An editor should underline the common mistakes before sparkop is run."""
    from ruamel.yaml import YAML

    [path] = [path for path in bad_specs() if path.stem == name]
    document = YAML(typ="safe").load(path)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(json_schema()).validate(document)


def test_an_overlay_needs_no_key() -> None:
    validator = jsonschema.Draft202012Validator(json_schema(overlay=True))
    validator.validate({"memory": {"kvCache": "1 GiB"}})
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({"memory": {"kvCash": "1 GiB"}})


def test_every_field_is_documented() -> None:
    """Description of its own, as a sentence; a size or time says that it takes one."""
    silent = [
        show_path(field.path)
        for field in every_field()
        if not field.info or not field.info.description or not field.info.description.strip().endswith(".")
    ]
    assert silent == []


def test_hover_text_has_the_facts() -> None:
    found: dict[str, Any] = json_schema()["$defs"]["MemorySpec"]["properties"]["kvCache"]
    assert "Unit: bytes." in found["description"]
    assert "--kv-cache-memory-bytes" in found["description"]
    assert "KV_BYTES" in found["description"]


def test_no_private_keywords() -> None:
    """Editors warn of keywords that they do not know."""
    text = json.dumps(json_schema())
    for word in ("defaultText", "valueText", '"flag"', '"recipe"', '"unit":', '"hint"', '"variable"'):
        assert word not in text, word
