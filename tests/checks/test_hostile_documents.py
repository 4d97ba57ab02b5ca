"""A node's answer, or a file of facts, with anything in any field: words, never a traceback, and nothing that
steers a terminal."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkop.engines.render import engine_of
from sparkop.errors import SpecError, UnreachableError
from sparkop.hosts.document import Document, parse_document
from sparkop.reconcile.doctor import Report, examine_facts
from sparkop.reconcile.facts import load_facts
from sparkop.resources.desired import desire
from sparkop.views.console import out
from sparkop.views.doctor import report_json, show_report
from sparkop.views.fabric import show_fabric
from sparkop.views.fabric_map import fabric_map
from sparkop.views.fabric_picture import svg
from tests.checks.cases import BASE, SPEC, spec_of

DIRECTIONS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
NODES = ("spark-1", "spark-2")
RECORDED: dict[str, Any] = json.loads(BASE.read_text(encoding="utf-8"))
HOSTILE = "\x1b[31m\x9b2J\r\nfake: all is well\x07\u202e\ud800\x00"
WORTHLESS = (None, -1, 2**62, 10**400, float("nan"), "", HOSTILE, [])


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of every field, entry and item."""
    if at:
        yield at
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in steps:
        yield from places(item, (*at, step))


PLACES = sorted(places(RECORDED["spark-2"]), key=str)
KINDS = sorted({tuple(0 if isinstance(step, int) else step for step in place) for place in PLACES}, key=str)


def replaced(raw: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed = deepcopy(raw)
    found: Any = changed
    for step in place[:-1]:
        found = found[step]
    found[place[-1]] = value
    return changed


def shown(report: Report, capsys: pytest.CaptureFixture[str]) -> str:
    """Everything that is made of a report: text, JSON, picture."""
    out.cache_clear()
    show_report(report, everything=True)
    drawn = fabric_map(report)
    show_fabric(drawn)
    text = capsys.readouterr().out
    show_report(report, "json")
    show_fabric(drawn, "json")
    text += capsys.readouterr().out
    picture = svg(drawn)
    ElementTree.fromstring(picture)
    return text + picture


def steering(text: str) -> set[str]:
    """What a terminal obeys, and halves of characters that no file holds."""
    kinds = {each for each in text if unicodedata.category(each) in ("Cc", "Cs")} - {"\n"}
    return kinds | {each for each in text if unicodedata.bidirectional(each) in DIRECTIONS}


def judged(document: Any, capsys: pytest.CaptureFixture[str]) -> Report | None:
    """None where the answer was refused."""
    spec = spec_of(SPEC, ())
    try:
        read = parse_document(document, node="spark-2")
    except UnreachableError:
        return None
    documents = {"spark-1": parse_document(RECORDED["spark-1"]), "spark-2": read}
    report = examine_facts(spec, documents)
    broken = [f.text for r in report.results for f in r.findings if "this check broke" in f.text]
    assert not broken
    assert steering(shown(report, capsys)) == set()
    return report


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: ".".join(map(str, kind)))
def test_nothing_in_a_field_breaks_anything(
    kind: tuple[Any, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Every field of the recorded answer, each with every worthless value."""
    for value in WORTHLESS:
        judged(replaced(RECORDED["spark-2"], kind, value), capsys)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(
        st.tuples(
            st.sampled_from(PLACES),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(HOSTILE),
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
                max_leaves=4,
            ),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_nothing_in_several_fields_breaks_anything(
    changes: list[tuple[tuple[Any, ...], Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    raw = RECORDED["spark-2"]
    for place, value in changes:
        try:
            raw = replaced(raw, place, value)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took the place away
    judged(raw, capsys)


@pytest.mark.parametrize("peers", ["others", "none", "same"])
@pytest.mark.parametrize("node", NODES)
def test_no_prefix_length_breaks_a_check_or_comes_back_in_a_fix(node: str, peers: str) -> None:
    """A network of one, of two, or of everything: fixes were made of its second address, or not at all."""
    (other,) = set(NODES) - {node}
    for prefix in range(33):
        raw = deepcopy(RECORDED)
        own = [each["addresses"][0].partition("/")[0] for each in _rails(raw[node])]
        held = [[f"{address}/{prefix}"] for address in own]
        _give(raw[node], held)
        if peers != "others":
            _give(raw[other], held if peers == "same" else [[] for _ in held])
        documents = {name: parse_document(raw[name], node=name) for name in NODES}
        report = examine_facts(spec_of(SPEC, ()), documents, only=("fabric", "rdma"))
        found = [each for result in report.results for each in result.findings]
        assert not [each.text for each in found if "this check broke" in each.text]
        added = [to for each in found for to in re.findall(r"ip addr add (\S+)", each.remedy)]
        assert not [to for to in added if to.startswith("0.") or to.endswith(("/0", "/32"))]
        if prefix in (0, 32):
            assert any(each.observed.endswith(f"/{prefix}") and each.remedy for each in found)


def _rails(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in document["fabric"]["interfaces"] if each["speed_mbps"] == 200000]


def _give(document: dict[str, Any], addresses: list[list[str]]) -> None:
    for interface, held in zip(_rails(document), addresses, strict=True):
        interface["addresses"] = held


def test_a_malformed_gid_is_unknown_and_named() -> None:
    raw = replaced(RECORDED["spark-2"], ("fabric", "devices", 0, "gids", 0, "gid"), "not a gid")
    with pytest.raises(UnreachableError) as caught:
        parse_document(raw, node="spark-2")
    assert caught.value.node == "spark-2"
    assert (caught.value.cause or "").startswith("fabric.devices.0.gids.0: ")
    assert "'not a gid'" in (caught.value.cause or "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (json.dumps({**RECORDED, "spark-2": 7}), "spark-2: it should be a mapping, not int"),
        (json.dumps({**RECORDED, "spark-2": {}}), "spark-2: version is missing"),
        (
            json.dumps({**RECORDED, "spark-2": replaced(RECORDED["spark-2"], ("memory", "free"), "much")}),
            "spark-2: memory.free should be a whole number, not str",
        ),
        ('{"spark-1": ' + "[" * 100_000, "can't be read"),
        ("\x00\x01", "can't be read"),
        (json.dumps({HOSTILE: 1}), "holds no facts of spark-1, spark-2"),
    ],
)
def test_a_file_of_facts_is_the_users(tmp_path: Path, text: str, words: str) -> None:
    """No node has failed: the file is refused, with the place."""
    file = tmp_path / "facts.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=words):
        load_facts(file, NODES)


def test_ranks_are_rendered_of_what_can_be_read() -> None:
    """The same good facts make the same ranks, whatever names of theirs hold."""
    spec = spec_of(SPEC, ())
    documents: dict[str, Document] = {name: parse_document(RECORDED[name]) for name in NODES}
    assert len(desire(spec, engine_of(spec), documents).ranks) == 2
    assert report_json(examine_facts(spec, documents))["cluster"] == spec.name
