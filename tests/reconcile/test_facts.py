"""Recorded facts are for reports that people post: they hold what a node is, and no secret (principle 10)."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from sparkop.errors import SpecError, UnreachableError
from sparkop.hosts.simulated_node import Answer
from sparkop.reconcile.facts import load_facts, record_facts
from tests.reconcile.simulation import SIMULATED, Cluster

SENTINEL = "sentinel-in-environment-5c1"


def test_facts_hold_neither_the_key_nor_what_users_set() -> None:
    cluster = Cluster.make(engine={"kind": "vllm", "context": 32768, "environment": {"MY_SETTING": SENTINEL}})
    cluster.apply()
    key = cluster.served_key
    facts, failure = record_facts(cluster.spec, cluster.hosts(), resources=SIMULATED)
    assert failure is None
    text = json.dumps(facts)
    assert key
    for secret in (key, base64.b64encode(key.encode()).decode().rstrip("="), SENTINEL):
        assert secret not in text


def test_recorded_facts_can_be_read_back(tmp_path: Path) -> None:
    cluster = Cluster.make()
    facts, _ = record_facts(cluster.spec, cluster.hosts(), resources=SIMULATED)
    file = tmp_path / "facts.json"
    file.write_text(json.dumps(facts))
    documents = load_facts(file, ["spark-2", "spark-1"])
    assert list(documents) == ["spark-2", "spark-1"]
    assert documents["spark-1"].machine is not None
    assert documents["spark-1"].fabric is not None


def test_a_silent_node_is_told_and_the_others_are_recorded() -> None:
    cluster = Cluster.make()
    cluster.node("spark-2").answer = Answer.SILENT
    facts, failure = record_facts(cluster.spec, cluster.hosts(), resources=SIMULATED)
    assert list(facts) == ["spark-1"]
    assert isinstance(failure, UnreachableError)


@pytest.mark.parametrize(
    ("text", "words"), [("{", "can't be read"), ("[]", "no mapping"), ("{}", "no facts of")]
)
def test_a_file_without_the_facts_says_how_to_record_them(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "facts.json"
    file.write_text(text)
    with pytest.raises(SpecError, match=words) as caught:
        load_facts(file, ["spark-1"])
    assert "sparkop facts" in str(caught.value.remedy)
