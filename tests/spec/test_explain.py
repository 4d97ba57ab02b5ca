"""explain: every field by path, key, flag and recipe variable."""

from __future__ import annotations

import pytest

from sparkop.errors import UsageError
from sparkop.spec.explain import explain, find
from sparkop.spec.fields import every_field
from sparkop.spec.tree import show_path


def test_a_section_lists_its_keys() -> None:
    text = explain("memory.guard")
    assert "actionFloor: size such as 1 GiB; default 1 GiB" in text
    assert "kills the ranks" in text
    assert text.count("Keys:") == 1


def test_a_value_tells_everything() -> None:
    text = explain("memory.kvCache")
    for words in ("size such as 1 GiB", "Unit: bytes", "--kv-cache-memory-bytes", "KV_BYTES"):
        assert words in text
    assert "Accepted: at least 1, at most 65535" in explain("api.port")
    assert "Example: ssh: user@10.0.0.2" in explain("nodes.ssh")


def test_every_field_can_be_explained() -> None:
    for field in every_field():
        assert show_path(field.path) in explain(show_path(field.path))


@pytest.mark.parametrize(
    ("word", "path"),
    [
        ("KV_BYTES", "memory.kvCache"),
        ("WORKER_HF_HOME", "nodes.paths.weights"),
        ("--kv-cache-memory-bytes", "memory.kvCache"),
        ("NCCL_IB_HCA", "nodes.fabric.hcas"),
        ("kvCache", "memory.kvCache"),
        ("nodes[0].ssh", "nodes[0].ssh"),
        ("nodes.ssh", "nodes.ssh"),
    ],
)
def test_other_names(word: str, path: str) -> None:
    assert path in [show_path(field.path) for field in find(word)]


def test_one_engine_by_its_kind() -> None:
    both = explain("engine.speculative")
    assert "kind: vllm" in both
    assert "kind: sglang" in both
    one = explain("engine.sglang.speculative")
    assert "kind: vllm" not in one
    assert "topK" in one
    assert "Keys with kind vllm" not in explain("engine.sglang")
    assert "mamba" in explain("engine.sglang")


@pytest.mark.parametrize(
    ("word", "advice"),
    [("memory.gard", "did you mean guard?"), ("memry", "did you mean memory?"), ("x.y", "nodes")],
)
def test_unknown_words(word: str, advice: str) -> None:
    with pytest.raises(UsageError) as caught:
        explain(word)
    assert advice in str(caught.value.remedy)


def test_the_whole_spec() -> None:
    text = explain(None)
    assert "apiVersion: sparkop/v1; required" in text
    assert "rules:" in text


def test_odd_words() -> None:
    """A flag without its hyphens; a dot alone; a free key, which both engines have, once; no raw escapes."""
    assert explain("max-model-len") == explain("--max-model-len")
    assert explain(".") == explain(None)
    assert explain("engine.environment.FOO").count("engine.environment.FOO") == 1
    with pytest.raises(UsageError) as caught:
        explain("\x1b[31mx")
    assert "\x1b" not in str(caught.value)
