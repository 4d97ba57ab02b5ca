"""Every bad spec of tests/data/specs/bad is refused with the errors that stand beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sparkop.spec.load import load, load_text
from sparkop.spec.problems import InvalidSpecError
from tests.spec.corpus import bad_specs, errors_of
from tests.spec.samples import MINIMAL


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


def test_errors_do_not_steer_the_terminal() -> None:
    """A spec from elsewhere may hold escape sequences; its errors show them as text."""
    with pytest.raises(InvalidSpecError) as caught:
        load_text(MINIMAL.replace("kind: vllm", 'kind: "\\e[31mred"').replace("spark-1", "\u202espark"))
    shown = str(caught.value.detail)
    assert all(each.isprintable() or each == "\n" for each in shown)
    assert "\\u001b[31mred is not one of them" in shown


def test_thousands_of_errors_are_cut_when_shown() -> None:
    with pytest.raises(InvalidSpecError) as caught:
        load_text(MINIMAL + "x: 1\n" * 3000)
    assert len(caught.value.problems) == 3000
    assert str(caught.value.detail).endswith("\nand 2800 more")


def test_a_device_without_an_end_is_refused_soon() -> None:
    with pytest.raises(InvalidSpecError, match="1 error"):
        load([Path("/dev/zero")])


def test_a_key_written_into_the_spec_is_not_shown_back() -> None:
    [path] = [path for path in bad_specs() if path.stem == "value-api-key"]
    assert "sk-2b1c0d6e9f8a7b6c5d4e" in path.read_text()
    assert "sk-2b1c" not in errors_of(path)
