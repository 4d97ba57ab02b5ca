"""Every bad spec of tests/data/specs/bad is refused with the errors that stand beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.spec.corpus import bad_specs, errors_of


@pytest.mark.parametrize("path", bad_specs(), ids=lambda path: path.stem)
def test_errors_are_the_expected_ones(path: Path) -> None:
    """Words, places, carets. After a deliberate change: python -m tests.spec.corpus, then read the diff."""
    assert errors_of(path) == path.with_suffix(".expected").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", bad_specs(), ids=lambda path: path.stem)
def test_every_error_has_its_place_and_order(path: Path) -> None:
    heads = re.findall(rf"^{re.escape(path.name)}:(\d+):(\d+): \S", errors_of(path), re.MULTILINE)
    places = [(int(line), int(column)) for line, column in heads]
    assert places, "no error names its file, line and column"
    assert places == sorted(places)


def test_the_corpus_is_as_large_as_promised() -> None:
    assert len(bad_specs()) >= 60
    assert {path.stem for path in bad_specs()} == {
        path.stem for path in bad_specs()[0].parent.glob("*.expected")
    }


def test_a_key_written_into_the_spec_is_not_shown_back() -> None:
    [path] = [path for path in bad_specs() if path.stem == "value-api-key"]
    assert "sk-2b1c0d6e9f8a7b6c5d4e" in path.read_text()
    assert "sk-2b1c" not in errors_of(path)
