"""validate never fails but with errors of its own, never hangs, and what it accepts renders or meets a rule.

Values are made from the models themselves, so that a new field is fuzzed without a change here.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from sparkop.engines.render import render
from sparkop.engines.rules import check, refusals
from sparkop.spec.fields import Field, alternatives, fields_of, is_model, root_model
from sparkop.spec.layers import apply_setting
from sparkop.spec.layers import settings as set_lines
from sparkop.spec.load import LoadedSpec, load, load_text
from sparkop.spec.problems import InvalidSpecError, Problem
from sparkop.spec.quantities import ByteSize, Duration
from sparkop.spec.tree import data
from tests.engines.specs import facts_of
from tests.spec.corpus import bad_specs
from tests.spec.samples import MINIMAL, SHIPPED

SECONDS = 20.0
"""Of processor time. No text of these sizes may take longer: what grows with the square takes minutes."""

JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=True),
    st.text(max_size=12),
    st.just([]),
    st.just({}),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)


def _of_type(annotation: Any) -> st.SearchStrategy[Any]:
    """Values that a field of this type often accepts."""
    return st.one_of([_member(each) for each in alternatives(annotation)] or [st.none()])


def _member(annotation: Any) -> st.SearchStrategy[Any]:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return st.sampled_from(parts)
    if origin in (tuple, list):
        return st.lists(_of_type(parts[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(_of_type(parts[0]), _of_type(parts[1]), max_size=2)
    if is_model(annotation):
        return st.deferred(lambda: _mapping(annotation))
    return _SCALARS.get(annotation, JUNK)


_SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.one_of(st.integers(0, 70000), st.sampled_from([1, 2, 64, 1024, 262144])),
    float: st.sampled_from([0.0, 0.3, 0.82, 1.0, 4.0]),
    str: st.one_of(
        st.sampled_from(
            ["a", "a/b", "~/x", "/model", "10.0.0.1", "auto", "B12X", "x:1", "--flag", "name-1", "*"]
        ),
        st.text(min_size=1, max_size=8),
    ),
    ByteSize: st.sampled_from(["1 GiB", "512 MiB", "9 GB", "0 B", "1G", "20 GiB"]),
    Duration: st.sampled_from(["1 s", "90 s", "45 min", "0 s", "5m"]),
}


@st.composite
def _mapping(draw: st.DrawFn, model: Any) -> dict[str, Any]:
    """The required fields and a few of the others; with all of them hardly anything is ever accepted."""
    fields = list(fields_of(model))
    optional = [field for field in fields if not field.required]
    chosen = draw(st.lists(st.sampled_from(optional), max_size=3, unique=True)) if optional else []
    return {field.key: draw(_of_type(field.annotation)) for field in [*filter(_required, fields), *chosen]}


def _required(field: Field) -> bool:
    return field.required


SECTIONS: list[Field] = list(fields_of(root_model()))


@st.composite
def changed_specs(draw: st.DrawFn) -> dict[str, Any]:
    """A shipped spec with a section made from the models, or a part of it turned into junk."""
    spec = data(load([draw(st.sampled_from(SHIPPED))]).tree)
    for _ in range(draw(st.integers(1, 3))):
        section = draw(st.sampled_from(SECTIONS))
        new = draw(_of_type(section.annotation))
        old = spec.get(section.key)
        if (
            isinstance(old, dict)
            and isinstance(new, dict)
            and new.get("kind", old.get("kind")) == old.get("kind")
        ):
            spec[section.key] = {**old, **new}
        else:
            spec[section.key] = new
    if draw(st.integers(0, 3)) == 0:
        _spoil(draw, spec)
    return dict(spec)


def _spoil(draw: st.DrawFn, node: Any) -> None:
    for _ in range(draw(st.integers(0, 4))):
        keys = (
            list(node) if isinstance(node, dict) else list(range(len(node))) if isinstance(node, list) else []
        )
        if not keys:
            return
        key = draw(st.sampled_from(keys))
        if not isinstance(node[key], (dict, list)) or draw(st.booleans()):
            node[key] = draw(JUNK)
            return
        node = node[key]


def _dumped(value: Any) -> str:
    out = io.StringIO()
    YAML(typ="safe").dump(value, out)
    return out.getvalue()


def _accepted(read: Callable[[], LoadedSpec]) -> LoadedSpec | None:
    """The spec, or None when it was refused in the one way that is allowed. Other exceptions go through."""
    began = time.process_time()
    loaded, problems = _outcome(read)
    assert time.process_time() - began < SECONDS
    assert loaded or problems
    for problem in problems:
        assert str(problem).startswith(f"{problem.place}: ")
        assert problem.place.line >= 1
        assert problem.place.column >= 1
    return loaded


def _outcome(read: Callable[[], LoadedSpec]) -> tuple[LoadedSpec | None, tuple[Problem, ...]]:
    try:
        return read(), ()
    except InvalidSpecError as error:
        return None, error.problems


@settings(max_examples=150)
@given(changed_specs())
def test_what_is_accepted_renders_or_meets_a_rule(spec: dict[str, Any]) -> None:
    loaded = _accepted(lambda: load_text(_dumped(spec)))
    if loaded is None:
        return
    refused = refusals(check(loaded.spec))
    if refused:
        assert all(rule for _, _, rule in refused)
        assert loaded.refuse(refused).problems
        return
    # With the commit that a download would have found, where the spec names a branch.
    facts = [replace(node, revision="0" * 40) for node in facts_of(loaded.spec)]
    ranks = render(loaded.spec, facts).ranks
    assert len(ranks) == len(loaded.spec.nodes)


@settings(max_examples=200)
@given(st.data())
def test_damaged_texts(draw: st.DataObject) -> None:
    """A character put in, taken out or doubled anywhere; lines moved."""
    text = draw.draw(st.sampled_from([MINIMAL, *(path.read_text(encoding="utf-8") for path in SHIPPED)]))
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(0, len(text)))
        cut = draw.draw(st.integers(0, 6))
        put = draw.draw(st.one_of(st.text(max_size=3), st.sampled_from(list("\t:{}[]\"'&*!|>%@`#-?,\n\r~<"))))
        text = text[:at] + put + text[at + cut :]
    _accepted(lambda: load_text(text))


@settings(max_examples=200)
@given(st.one_of(st.text(max_size=60), st.text(alphabet="ab:{}[]\"'&*!|>%@`#-?,\n ~<0.", max_size=60)))
def test_any_text(text: str) -> None:
    _accepted(lambda: load_text(text))


@settings(max_examples=100)
@given(content=st.binary(max_size=60))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("bytes") / "spec.yaml"
    path.write_bytes(content)
    assert _accepted(lambda: load([path])) is None


@settings(max_examples=200)
@given(
    st.one_of(
        st.text(max_size=40),
        st.tuples(
            st.sampled_from(
                ["memory.kvCache", "nodes[0].ssh", "engine", "api.port", "nodes", "name", "a.b[c]"]
            ),
            st.text(max_size=20),
        ).map("=".join),
    )
)
def test_any_setting(text: str) -> None:
    tree = load_text(MINIMAL).tree
    [line] = set_lines([text])
    changed, problems = apply_setting(tree, line)
    assert problems or data(changed) is not None
    for problem in problems:
        assert str(problem.place).startswith("--set:1:")


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 5000,
        "a: " + "{" * 5000,
        "? " * 3000,
        "- " * 3000 + "x",
        "a: " + "&a " * 2000,
        "a: |\n" + " x\n" * 20000,
        "x: 1\n" * 4000,
        ("a" * 1000 + ": 1\n") * 60,
        "'" * 9999,
        "a: !" + "x" * 5000,
        "name: " + "9" * 100_000,
        "name: 1" + "e9" * 4000,
        "# c\n" * 60_000,
        "nodes:\n" + "- {name: a, ssh: b}\n" * 3000,
        "".join(f"token{number}: yes{number}\n" for number in range(9000)),
        "engine: {environment: {" + ", ".join(f"HF_{number}_KEY: yes" for number in range(8000)) + "}}",
    ],
    ids=range(16),
)
def test_large_and_odd_texts_end_soon(text: str) -> None:
    assert _accepted(lambda: load_text(text)) is None


def test_bad_specs_as_overlays_and_under_one() -> None:
    """Layers of any kind over any base end in errors with a place."""
    small = min(SHIPPED, key=lambda path: path.stat().st_size)
    for path in bad_specs():
        _accepted(partial(load, [small, path]))
        _accepted(partial(load, [path, small]))
