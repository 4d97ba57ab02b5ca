"""No launch that the arithmetic forbids: rules on the budget, and the largest values that pass."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sparkop.engines.budget.budget import budget
from sparkop.engines.fit import What, fit
from sparkop.engines.rules import check, refusals
from sparkop.errors import SpecError, UsageError
from sparkop.spec.load import load
from tests.engines.budget.models import checkpoint
from tests.engines.specs import RECIPE_A, RECIPE_B, SPECS, facts_of, spec

REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    (RECIPE_B, "sglang.chunk", {"engine.chunkedPrefillSize": 2048}, "13.7 GiB"),
    (
        RECIPE_B,
        "sglang.chunk",
        {"engine.chunkedPrefillSize": 4096, "memory.gpuFraction": 0.85},
        "froze the machines",
    ),
    (RECIPE_B, "sglang.chunk", {"engine.chunkedPrefillSize": None}, "8192 (SGLang's own)"),
    (RECIPE_B, "budget.memory", {"memory.gpuFraction": 0.95}, "too much"),
    (RECIPE_B, "budget.memory", {"engine.extraArgs": ["--mem-fraction-static", "0.95"]}, "too much"),
    (
        RECIPE_B,
        "sglang.chunk",
        {"engine.extraArgs": ["--chunked-prefill-size", "-1"]},
        "900000 (whole prompts) takes 6035.0 GiB",
    ),
    (RECIPE_A, "budget.memory", {"engine.extraArgs": ["--kv-cache-memory-bytes", "25G"]}, "too much"),
    (
        RECIPE_B,
        "budget.memory",
        {"memory.guard.actionFloor": "8GiB"},
        "8.0 GiB must stay by memory.guard.actionFloor",
    ),
    (RECIPE_B, "budget.pool", {"memory.gpuFraction": 0.8}, "of the 900,000 tokens of one context"),
    (RECIPE_B, "budget.pool", {"engine.context": 1048576}, "956,800 of the 1,048,576"),
    (RECIPE_A, "budget.memory", {"memory.kvCache": "6GB"}, "too much"),
    (RECIPE_A, "budget.pool", {"memory.kvCache": "300MB"}, "of the 262,144"),
    (RECIPE_A, "budget.context", {"engine.context": 1048577, "engine.modelContext": None}, "1,048,576"),
    (RECIPE_B, "budget.context", {"engine.longContext": None}, "over the model's 262,144"),
    (RECIPE_A, "budget.fraction", {"memory.gpuFraction": 0.97}, "116.6 GiB"),
    (RECIPE_A, "budget.fraction", {"engine.extraArgs": ["--gpu-memory-utilization=0.97"]}, "116.6 GiB"),
]


@pytest.mark.parametrize(("recipe", "rule", "changes", "words"), REFUSED)
def test_refused_with_the_figures(recipe: str, rule: str, changes: dict[str, Any], words: str) -> None:
    (finding,) = [each for each in check(spec(recipe, changes)) if each.refuses]
    assert finding.rule.id == rule
    assert words in finding.message
    assert finding.rule.source


def test_weights_that_are_too_large_are_told_apart() -> None:
    """A lower memory.kvCache, as the remedy says, does not help there."""
    changes = {"engine.tensorParallel": 1}
    alone = [
        each.observed for each in check(spec(RECIPE_A, changes, nodes=1)) if each.rule.id == "budget.memory"
    ]
    assert "without a KV cache too: take more nodes" in alone[0]
    large = check(spec(RECIPE_A, {"memory.kvCache": "6GB"}))
    assert not any("without a KV cache too" in each.observed for each in large)


def test_no_state_slot_is_refused() -> None:
    """Rather than a server that accepts requests and runs none."""
    ids = {each.rule.id for each in check(spec(RECIPE_B, {"memory.gpuFraction": 0.6})) if each.refuses}
    assert ids == {"budget.state", "budget.pool"}


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        (RECIPE_B, {"engine.chunkedPrefillSize": 1536}),
        (RECIPE_B, {"engine.chunkedPrefillSize": 4096, "engine.context": 262144}),
        (RECIPE_B, {"memory.gpuFraction": 0.85}),
        (RECIPE_A, {"memory.kvCache": "4GB"}),
        (RECIPE_A, {"engine.context": 1048576}),
        (RECIPE_A, {"memory.gpuFraction": 0.95}),
    ],
)
def test_what_fits_is_accepted(recipe: str, changes: dict[str, Any]) -> None:
    """More than 1024 is refused only where the budget does not allow it."""
    assert refusals(check(spec(recipe, changes))) == []


def test_chunk_of_a_model_without_a_budget_goes_by_what_froze() -> None:
    changes = {"weights.repository": "somebody/else", "engine.chunkedPrefillSize": 1536}
    (finding,) = [each for each in check(spec(RECIPE_B, changes)) if each.refuses]
    assert finding.rule.id == "sglang.chunk"
    assert not [
        each for each in check(spec(RECIPE_B, {"weights.repository": "somebody/else"})) if each.refuses
    ]


def test_a_node_with_less_memory_is_named() -> None:
    cluster = spec(RECIPE_A)
    facts = [
        dataclasses.replace(fact, memory_total=total)
        for fact, total in zip(facts_of(cluster), (130_663_165_952, 66_000_000_000), strict=True)
    ]
    found = [each for each in check(cluster, facts) if each.refuses]
    assert {each.rule.id for each in found} == {"budget.memory"}
    assert "spark-2 would use" in found[0].observed
    assert refusals(check(cluster, facts_of(cluster))) == []


def test_one_override_is_enough_for_a_chunk() -> None:
    """The chunk's override is not answered by another rule with the same cause."""
    override = [{"id": "sglang.chunk", "reason": "measured on our machines with room to spare"}]
    changes = {"engine.chunkedPrefillSize": 4096, "rules.override": override}
    findings = check(spec(RECIPE_B, changes))
    assert refusals(findings) == []
    assert [each.override for each in findings if each.rule.id == "sglang.chunk"] == [override[0]["reason"]]


def test_a_read_checkpoint_is_what_the_rules_judge() -> None:
    """A model that is not shipped is refused too, once its numbers were read."""
    changes = {"weights.repository": "owner/model", "memory.kvCache": "1MB", "engine.kvCache": {}}
    cluster = spec(RECIPE_A, changes)
    assert refusals(check(cluster)) == []
    found = budget(cluster, checkpoint("grouped-query"))
    assert [rule for _, _, rule in refusals(check(cluster, budget=found))] == ["budget.pool"]


@pytest.mark.parametrize(
    ("recipe", "what", "setting"),
    [
        (RECIPE_A, "context", "engine.context=1048576"),
        (RECIPE_A, "sequences", "engine.maxSequences=7"),
        (RECIPE_A, "kv", "memory.kvCache=4310MB"),
        (RECIPE_A, "fraction", "memory.gpuFraction=0.95"),
        (RECIPE_B, "context", "engine.context=956800"),
        (RECIPE_B, "sequences", "engine.maxRequests=14"),
        (RECIPE_B, "fraction", "memory.gpuFraction=0.86"),
    ],
)
def test_largest_safe_value(recipe: str, what: What, setting: str) -> None:
    """The value is accepted as --set takes it, and what stops the next one is said."""
    found = fit(spec(recipe), what)
    assert found.setting == setting
    assert found.stop
    assert refusals(check(load([SPECS / f"{recipe}.yaml"], [setting]).spec)) == []


@pytest.mark.parametrize(
    ("recipe", "what", "step"), [(RECIPE_A, "kv", "4320MB"), (RECIPE_B, "fraction", "0.87")]
)
def test_the_next_value_is_refused(recipe: str, what: What, step: str) -> None:
    name = fit(spec(recipe), what).setting.partition("=")[0]
    assert refusals(check(load([SPECS / f"{recipe}.yaml"], [f"{name}={step}"]).spec))


def test_overrides_do_not_make_values_safe() -> None:
    override = [{"id": "budget.memory", "reason": "we like to live dangerously"}]
    assert fit(spec(RECIPE_A, {"rules.override": override}), "kv").value == "4310MB"


def test_smaller_chunk_gives_no_more_context_than_the_pool() -> None:
    """At 0.85 the pool grows; then the workspace of a larger context is what stops."""
    found = fit(spec(RECIPE_B, {"memory.gpuFraction": 0.85}), "context")
    assert int(found.value) == 1_048_576
    assert "sglang.context" in found.stop


def test_fit_says_when_nothing_is_safe() -> None:
    with pytest.raises(SpecError, match="no context is safe"):
        fit(spec(RECIPE_A, {"memory.kvCache": "20GB"}), "context")
    with pytest.raises(SpecError, match="no kv is safe"):
        fit(spec(RECIPE_A, {"engine.context": 1048577}), "kv")


def test_fit_has_no_bytes_for_sglang() -> None:
    with pytest.raises(UsageError, match=r"memory\.gpuFraction"):
        fit(spec(RECIPE_B), "kv")


def test_fit_is_not_fooled_by_extra_arguments() -> None:
    """An argument that wins over the field would make every value look the same."""
    with pytest.raises(UsageError, match="extraArgs"):
        fit(spec(RECIPE_B, {"engine.extraArgs": ["--context-length", "262144"]}), "context")


def test_fit_needs_a_model_that_is_known() -> None:
    with pytest.raises(SpecError, match="has no budget"):
        fit(spec(RECIPE_A, {"weights.repository": "somebody/else"}), "context")


@pytest.mark.parametrize(
    ("recipe", "nodes", "changes", "words"),
    [
        (RECIPE_A, 3, {}, "64 attention heads of the model for 3 shards"),
        (RECIPE_B, 5, {}, "24 attention heads of the model for 5 shards"),
        (RECIPE_B, 3, {}, "16 key heads of its linear attention of the model for 3 shards"),
        (RECIPE_B, 2, {"engine.tensorParallel": 6}, "16 key heads of its linear attention"),
    ],
)
def test_heads_that_can_not_be_divided_are_refused(
    recipe: str, nodes: int, changes: dict[str, Any], words: str
) -> None:
    """Both engines end there, after minutes, with words that name no node and no setting."""
    (finding,) = [
        each for each in check(spec(recipe, changes, nodes=nodes)) if each.rule.id == "engine.heads"
    ]
    assert finding.refuses
    assert words in finding.message
    assert finding.path == (("engine", "tensorParallel") if changes else ("nodes",))


@pytest.mark.parametrize(("recipe", "nodes"), [(RECIPE_A, 4), (RECIPE_B, 4), (RECIPE_B, 8), (RECIPE_A, 8)])
def test_heads_that_divide_are_no_matter(recipe: str, nodes: int) -> None:
    """2 key/value heads on 4 or 8 shards are kept by several: no fault."""
    assert not [each for each in check(spec(recipe, nodes=nodes)) if each.rule.id == "engine.heads"]


@pytest.mark.parametrize("value", ["-1", "auto", "AUTO"])
def test_a_context_that_vllm_finds_itself_is_never_too_long(value: str) -> None:
    """--max-model-len -1 takes what the cache holds: "300 MB hold no whole context" would be wrong."""
    changes = {"memory.kvCache": "300MB", "engine.extraArgs": ["--max-model-len", value]}
    assert "budget.pool" not in {each.rule.id for each in check(spec(RECIPE_A, changes))}
    made = budget(spec(RECIPE_A, changes))
    assert made is not None
    assert made.pool is not None
    assert made.pool.tokens > 0
