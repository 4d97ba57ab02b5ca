"""What sparkop writes keeps the comments, the order and the quotes of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkop.spec.edit import dump, edit
from sparkop.spec.load import load_text
from tests.spec.samples import SHIPPED

TEXT = """\
# head
b: 1   # one
a:
  # inside
  y: 'quoted'   # kept
  x: [1, 2]

# before the list
items:
- name: first   # the first
- name: second
# end
"""


def test_one_value_changes_and_nothing_else() -> None:
    assert edit(TEXT, [(("a", "x"), [3])]) == TEXT.replace("x: [1, 2]", "x:\n  - 3")
    assert edit(TEXT, [(("b",), 2)]) == TEXT.replace("b: 1 ", "b: 2 ")
    assert edit(TEXT, [(("items", 1, "name"), "other")]) == TEXT.replace("second", "other")


def test_nothing_changes_without_changes() -> None:
    assert edit(TEXT, []) == TEXT


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_specs_survive(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert edit(text, []) == text
    changed = edit(text, [(("nodes", 0, "ssh"), "you@10.0.0.1")])
    assert changed != text
    assert [line for line in text.splitlines() if line.lstrip().startswith("#")] == [
        line for line in changed.splitlines() if line.lstrip().startswith("#")
    ]
    head = load_text(changed).spec.head.remote
    assert head is not None
    assert (head.user, head.host) == ("you", "10.0.0.1")


def test_line_ends_of_windows_stay() -> None:
    assert edit("a: 1  # x\r\nb: 2\r\n", [(("b",), 3)]) == "a: 1  # x\r\nb: 3\r\n"


def test_keys_are_made_and_taken_away() -> None:
    text = edit("a: 1\n", [(("b", "c"), True), (("a",), None)])
    assert text == "b:\n  c: true\n"


def test_text_that_looks_like_something_else_is_quoted() -> None:
    """An overlay made from a recipe's variables must read back as the text that was meant."""
    assert dump({"weights": {"revision": "1234567"}, "engine": {"environment": {"A": "yes"}}}) == (
        'weights:\n  revision: "1234567"\nengine:\n  environment:\n    A: "yes"\n'
    )
