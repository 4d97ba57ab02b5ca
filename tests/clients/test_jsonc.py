"""Editing JSON in place: what is not edited stays, byte for byte, comments included."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkop.clients.jsonc import BrokenTextError, Document

KEYS = st.text(alphabet='ab"/,{}\\é', max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
SPACE = st.lists(st.sampled_from([" ", "\n  ", '//c "{}],\n', "\r\n\t"]), max_size=2).map("".join)


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A document as people write it, and its value."""
    value = {
        "providers": draw(st.dictionaries(KEYS, VALUES, max_size=3)),
        "list": draw(st.lists(KEYS, max_size=3)),
    }
    value |= draw(st.dictionaries(KEYS.map(lambda key: "x" + key), VALUES, max_size=2))

    def written(item: Any) -> str:
        if not isinstance(item, (dict, list)):
            return draw(SPACE) + json.dumps(item) + draw(SPACE)
        if isinstance(item, dict):
            parts = [
                draw(SPACE) + json.dumps(key) + draw(SPACE) + ":" + written(each)
                for key, each in item.items()
            ]
        else:
            parts = [written(each) for each in item]
        trailing = "," if parts and draw(st.booleans()) else ""
        inside = ",".join(parts) + trailing + draw(SPACE)
        opening, closing = ("{", "}") if isinstance(item, dict) else ("[", "]")
        return draw(SPACE) + opening + inside + closing + draw(SPACE)

    return written(value), value


def read(text: str) -> Any:
    return Document(text, comments=True).value


def comments(text: str) -> int:
    return sum(found.startswith("//") for found in re.findall(r'"(?:\\.|[^"\\])*"|//[^\n]*', text))


@given(texts(), VALUES)
def test_a_new_provider_changes_nothing_else(document: tuple[str, dict[str, Any]], new: Any) -> None:
    text, value = document
    assert read(text) == value
    added = Document(text, comments=True).with_value(("providers", "ours"), new)
    assert read(added) == value | {"providers": {**value["providers"], "ours": new}}
    assert comments(added) == comments(text)
    assert read(Document(added, comments=True).without(("providers", "ours"))) == value


@given(texts(), st.data())
def test_one_member_is_replaced_or_removed(document: tuple[str, dict[str, Any]], data: st.DataObject) -> None:
    text, value = document
    key = data.draw(st.sampled_from(sorted(value)))
    replaced = Document(text, comments=True).with_value((key,), {"new": [1]})
    assert read(replaced) == value | {key: {"new": [1]}}
    removed = Document(text, comments=True).without((key,))
    assert read(removed) == {k: v for k, v in value.items() if k != key}


@given(texts())
def test_an_item_comes_last_and_goes_again(document: tuple[str, dict[str, Any]]) -> None:
    text, value = document
    added = Document(text, comments=True).with_item(("list",), "ours/model")
    assert read(added)["list"] == [*value["list"], "ours/model"]
    assert read(Document(added, comments=True).without_item(("list",), "ours/model")) == value


def test_the_manner_of_the_file_is_kept() -> None:
    """Indentation, comments at line ends, trailing commas and line ends; and the way back is exact."""
    text = '{\r\n\t"providers": {\r\n\t\t// first\r\n\t\t"a": {"x": 1}, // tail\r\n\t},\r\n}\r\n'
    added = Document(text, comments=True).with_value(("providers", "b"), {"y": 2})
    assert added == text.replace("// tail\r\n", '// tail\r\n\t\t"b": {\r\n\t\t\t"y": 2\r\n\t\t},\r\n')
    assert Document(added, comments=True).without(("providers", "b")) == text


def test_a_byte_order_mark_stays() -> None:
    assert Document('\ufeff{"a": 1}', comments=True).with_value(("a",), 2) == '\ufeff{"a": 2}'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "line 1"),
        ('{"a": 1 /* no */}', "line 1"),
        ('{\n "a": NaN}', "NaN"),
        ('{"a": 1}{', "line 1"),
        ('{"a": 1,\n "a": 2}', "line 2: the key 'a' is there twice"),
        ("[" * 5000, "nested too deep"),
        ('{"a": 1,,}', "line 1"),
        ("{'a': 1}", "line 1"),
        ("", "line 1"),
    ],
)
def test_what_pi_would_not_read_is_refused(text: str, told: str) -> None:
    with pytest.raises(BrokenTextError, match=re.escape(told)):
        Document(text, comments=True)


def test_strict_json_has_no_comments() -> None:
    """Pi drops the whole of settings.json when it has one."""
    for text in ('{"a": 1, // no\n}', '{"a": 1,}'):
        with pytest.raises(BrokenTextError):
            Document(text, comments=False)
