"""The engine's own pool and the memory that is left, beside the budget; rules before anything."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from sparkop.engines.budget.budget import budget
from sparkop.engines.budget.machine import NodeMemory
from sparkop.errors import SpecError
from sparkop.reconcile.measured import Measured, measure
from sparkop.reconcile.status import status_of, with_measured
from sparkop.resources.events import Event
from sparkop.resources.weights.files import Checkpoint
from sparkop.spec.models import ClusterSpec
from sparkop.views.status import show_status
from tests.engines.budget.models import document
from tests.reconcile.simulation import GIB, Cluster, PlayedWeights

TOKENS = 64 * (1 << 20) // 256 // 16 * 16
"""64 MiB of the model of tests/data/models/grouped-query.json, over two ranks."""


def serving(line: str = f"GPU KV cache size: {TOKENS:,} tokens", **changes: Any) -> Cluster:
    cluster = Cluster.make(**changes)
    cluster.apply()
    node, head = cluster.rank(0)
    head.log.append(line.encode())
    config = json.dumps(document("grouped-query")["config"]).encode()
    node.files[f"{node.home}/models/model/config.json"] = (config, 0o644)
    return cluster


def figures(cluster: Cluster) -> dict[str, Measured]:
    return {f"{each.what} {each.node}": each for each in measure(cluster.observe(), cluster.hosts())}


def test_pool_of_the_log_beside_the_budget() -> None:
    found = figures(serving())["KV cache spark-1"]
    assert (found.real, found.budget, found.off) == (TOKENS, TOKENS, "")


@pytest.mark.parametrize(("tokens", "warned"), [(TOKENS * 104 // 100, False), (TOKENS * 94 // 100, True)])
def test_more_than_five_percent_is_a_warning_with_both_numbers(tokens: int, warned: bool) -> None:
    cluster = serving(f"(EngineCore) GPU KV cache size: {tokens:,} tokens, Maximum concurrency")
    found = figures(cluster)["KV cache spark-1"]
    assert bool(found.off) is warned
    if warned:
        assert f"{tokens:,}" in found.off
        assert f"{TOKENS:,}" in found.off
        status = with_measured(status_of(cluster.observe(), cluster.plan()), (found,))
        assert status.warnings == (f"spark-1: {found.off}",)


def test_last_line_counts() -> None:
    """A container that was started again has the lines of both starts."""
    cluster = serving("GPU KV cache size: 16 tokens")
    cluster.rank(0)[1].log.append(f"GPU KV cache size: {TOKENS:,} tokens".encode())
    assert figures(cluster)["KV cache spark-1"].real == TOKENS


IGNORED = [{"id": "budget.memory", "reason": "only to make a cluster of it"}]
RECIPE_B: dict[str, Any] = {
    "weights": {"repository": "RadixArk/Qwen3.8-Flash-Next-NVFP4", "path": "~/models/model"},
    "engine": {
        "kind": "sglang",
        "context": 900000,
        "longContext": {"native": 262144, "maximum": 1048576},
        "chunkedPrefillSize": 1024,
        "maxRequests": 16,
        "pageSize": 64,
        "mamba": {"fullMemoryRatio": 0.3, "radixCacheStrategy": "extra_buffer", "ssmDtype": "bfloat16"},
        "speculative": {"steps": 3},
    },
    "memory": {"gpuFraction": 0.82},
}


def recipe_b(tokens: float) -> Cluster:
    """The settings of recipe B on simulated nodes, whose ranks take what the budget says."""
    cluster = Cluster.make(**RECIPE_B)
    made = budget(cluster.spec, memory={each.name: NodeMemory(121 * GIB) for each in cluster.spec.nodes})
    assert made is not None
    taken = made.ranks[0].steady - cluster.node("spark-1").memory_used
    cluster.world.memory_of = lambda made: taken if made.labels.get("sparkop.role") == "rank" else 0
    cluster.apply()
    node, head = cluster.rank(0)

    def answer(
        method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, Iterable[bytes]]:
        if path == "/metrics":
            return 200, [f'sglang:max_total_num_tokens{{model="tiny",tp="0"}} {tokens:.4e}\n'.encode()]
        return cluster.answer(node, head, method, path, headers, body)

    node.services[8000] = answer
    return cluster


def test_metric_where_the_engine_has_one() -> None:
    """SGLang tells it by a metric, with labels and in scientific notation."""
    found = figures(recipe_b(956_800))["KV cache spark-1"]
    assert (found.real, found.budget, found.off) == (956_800, 956_800, "")
    assert found.source == "metric sglang:max_total_num_tokens"
    assert "700,000" in figures(recipe_b(700_000))["KV cache spark-1"].off


def test_memory_beside_the_budget_of_a_known_model() -> None:
    """What a node has left between prefills; another process that takes 10 GiB is seen."""
    cluster = recipe_b(956_800)
    found = figures(cluster)["available memory spark-2"]
    assert abs(found.real - found.budget) < GIB // 10
    assert (found.off, found.unit) == ("", "bytes")
    cluster.node("spark-2").memory_used += 10 * GIB
    assert "GB of memory are available, the budget says" in figures(cluster)["available memory spark-2"].off


def test_nothing_is_measured_of_a_group_that_does_not_serve() -> None:
    cluster = serving()
    cluster.manner = "loading"
    assert measure(cluster.observe(), cluster.hosts()) == ()


def unknown_model(tokens: int) -> Cluster:
    cluster = serving(f"GPU KV cache size: {tokens:,} tokens")
    node = cluster.rank(0)[0]
    del node.files[f"{node.home}/models/model/config.json"]
    return cluster


def test_of_an_unknown_model_only_the_cache_is_told_against_its_context() -> None:
    (found,) = measure((cluster := unknown_model(65_536)).observe(), cluster.hosts())
    assert (found.real, found.budget, found.contexts, found.off) == (65_536, None, 2.0, "")


@pytest.mark.parametrize("cluster", [unknown_model(30_000), serving("GPU KV cache size: 30,000 tokens")])
def test_a_cache_that_holds_no_whole_context_is_a_warning(cluster: Cluster) -> None:
    """Recipe B's check after the start: long prompts would be cut."""
    found = figures(cluster)["KV cache spark-1"]
    assert "30,000 of the 32,768 tokens of one context" in found.off
    assert "--fit context" in found.off


def test_status_shows_rules_that_are_set_aside(capsys: pytest.CaptureFixture[str]) -> None:
    override = [{"id": "api.exposure", "reason": "the fabric has no other users"}]
    cluster = serving(rules={"override": override})
    status = with_measured(
        status_of(cluster.observe(), cluster.plan()), measure(cluster.observe(), cluster.hosts())
    )
    from sparkop.views.console import out

    out.cache_clear()
    show_status(status)
    shown = capsys.readouterr().out
    assert "rule set aside: api.exposure (the fabric has no other users)" in shown
    assert f"KV cache {TOKENS:,} tokens, budget {TOKENS:,} tokens" in shown


def test_apply_is_refused_on_what_the_nodes_are() -> None:
    """A node with half of the memory: 65, named, and nothing was written."""
    cluster = Cluster.make(
        weights={"repository": "RadixArk/Qwen3.8-Flash-Next-NVFP4", "path": "~/models/model"},
        engine={"kind": "sglang", "context": 65536, "container": {"cpuset": "0-19"}},
        memory={"gpuFraction": 0.82},
    )
    before = cluster.shape()
    cluster.node("spark-2").memory_total = 64 * GIB
    with pytest.raises(SpecError, match="spark-2") as refused:
        cluster.apply()
    assert refused.value.exit_code == 65
    assert "budget." in f"{refused.value} {refused.value.detail}"
    assert cluster.shape() == before
    assert cluster.started == []


def test_apply_is_refused_by_the_configuration_on_the_head() -> None:
    """A model that sparkop ships no numbers of: a cache larger than the node is not tried."""
    cluster = serving()
    started = len(cluster.started)
    cluster.spec = serving(memory={"kvCache": "200 GB"}, rules={"override": IGNORED}).spec.model_copy(
        update={"rules": cluster.spec.rules}
    )
    with pytest.raises(SpecError, match=r"budget\.memory"):
        cluster.apply()
    assert len(cluster.started) == started


@pytest.mark.parametrize(
    ("changes", "rule"),
    [({"memory": {"kvCache": "200 GB"}}, r"budget\.memory"), ({}, r"engine\.heads")],
)
def test_a_first_apply_is_refused_by_the_configuration_on_the_hub(
    changes: dict[str, Any], rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the weights come: heads that the nodes can't share were told after hours of a download."""
    config = {**document("grouped-query")["config"], **({} if changes else {"num_attention_heads": 7})}
    prepare = PlayedWeights.prepare

    def with_config(self: PlayedWeights, spec: ClusterSpec) -> Checkpoint:
        found = prepare(self, spec)
        assert found.repository is not None
        return replace(found, repository=replace(found.repository, config=config))

    monkeypatch.setattr(PlayedWeights, "prepare", with_config)
    cluster = Cluster.make(**changes)
    with pytest.raises(SpecError, match=rule):
        cluster.apply()
    assert not cluster.node("spark-1").checkpoint


def test_a_first_apply_is_refused_once_the_configuration_was_downloaded() -> None:
    """Nothing is known of the model before; the ranks still do not start."""
    cluster = Cluster.make(memory={"kvCache": "200 GB"})
    config = json.dumps(document("grouped-query")["config"]).encode()

    def arrived(event: Event) -> None:
        node = cluster.node("spark-1")
        if node.checkpoint:
            node.files[f"{node.home}/models/model/config.json"] = (config, 0o644)

    with pytest.raises(SpecError, match=r"budget\.memory"):
        cluster.apply(emit=arrived)
    assert cluster.node("spark-1").checkpoint
    assert cluster.started == []
