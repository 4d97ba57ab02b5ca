"""KV bytes of a token and tokens of a pool, for every kind of attention."""

from __future__ import annotations

from typing import Any

import pytest

from sparkop.engines.budget.asked import asked
from sparkop.engines.budget.budget import budget
from sparkop.engines.budget.checkpoint import read_checkpoint
from sparkop.engines.budget.formats import named
from sparkop.engines.budget.lines import Basis, Pool
from sparkop.engines.budget.pool import costs
from tests.engines.budget.models import checkpoint
from tests.engines.specs import RECIPE_A, RECIPE_B, spec


def pool(recipe: str, changes: dict[str, Any] | None = None, model: str | None = None) -> Pool:
    made = budget(spec(recipe, changes), checkpoint(model) if model else None)
    assert made is not None
    assert made.pool is not None
    return made.pool


@pytest.mark.parametrize(
    ("changes", "tokens"),
    [
        ({}, 2_023_717),
        ({"engine.maxBatchedTokens": 4096}, 1_541_640),
        ({"engine.extraArgs": ["--max-num-batched-tokens", "4096"]}, 1_541_640),
        ({"engine.extraArgs": ["--max_num_batched_tokens=4096"]}, 1_541_640),
    ],
)
def test_recipe_a_pool_to_the_token(changes: dict[str, Any], tokens: int) -> None:
    """Both published pools follow from the configuration, 2.7e9 bytes and the batch."""
    assert pool(RECIPE_A, changes).tokens == tokens


def test_recipe_a_token_is_890_bytes_on_every_gpu() -> None:
    """Compressed KV has one head: tensor parallelism does not divide it."""
    both, one = pool(RECIPE_A), pool(RECIPE_A, {"engine.tensorParallel": 1})
    assert [cost.size for cost in both.costs] == [720.0, 170.0]
    assert both.token_size == one.token_size == 890.0
    assert both.basis is Basis.FITTED, "the window groups are no reading of the configuration"


def test_recipe_b_token_in_bf16() -> None:
    """12,288 B a token and GPU for the full layers; the draft's layer only with speculation."""
    made = pool(RECIPE_B)
    assert made.costs[0].size == 12_288
    assert made.costs[1].size == 1_024
    assert (made.costs[0].basis, made.costs[2].basis) == (Basis.COMPUTED, Basis.FITTED)
    plain = pool(RECIPE_B, {"engine.speculative": None})
    assert [cost.size for cost in plain.costs] == [12_288, 87]


def test_recipe_b_pool_as_recorded() -> None:
    made = pool(RECIPE_B)
    assert made.tokens == 956_800
    assert made.contexts == pytest.approx(1.063, abs=0.001)
    assert made.basis is Basis.FITTED


def test_heads_are_divided_until_one_is_left() -> None:
    """Two KV heads over four GPUs are kept twice, not halved again."""
    four = {"engine.tensorParallel": 4}
    assert pool(RECIPE_B, four).costs[0].size == 12_288
    assert pool(RECIPE_B, {"engine.tensorParallel": 1}).costs[0].size == 24_576


@pytest.mark.parametrize(
    ("dtype", "bytes_each"), [("bf16", 2), ("fp8_e4m3", 1), ("mxfp8", 33 / 32), ("nvfp4", 9 / 16)]
)
def test_types_with_their_scales(dtype: str, bytes_each: float) -> None:
    found = costs(
        checkpoint("qwen3.8-flash-next").shape, asked(spec(RECIPE_B, {"engine.kvCacheDtype": dtype}))
    )
    assert found is not None
    assert found[0].size == 12 * 512 * bytes_each


def test_unknown_type_gives_no_pool_and_says_so() -> None:
    """Better no figure than a wrong one."""
    made = budget(spec(RECIPE_B, {"engine.kvCacheDtype": "fp6_weird"}))
    assert made is not None
    assert made.pool is None
    assert any("fp6_weird" in sentence for sentence in made.unknown)
    assert named("fp6_weird") is None


def test_grouped_query_pool_in_blocks() -> None:
    """64 MiB at TP2: 2 layers x 1 head x 64 values x 2 B are 256 B a token, in blocks of 16."""
    changes = {"weights.repository": "owner/model", "memory.kvCache": "64MiB", "engine.kvCache": {}}
    made = pool(RECIPE_A, changes, "grouped-query")
    assert made.token_size == 256
    assert made.tokens == 64 * 1024 * 1024 // 256
    odd = pool(RECIPE_A, changes | {"memory.kvCache": "1000000B"}, "grouped-query")
    assert odd.tokens == 1_000_000 // (256 * 16) * 16


def test_latent_attention_is_kept_whole_by_every_shard() -> None:
    """61 layers x (512 + 64) values x 2 B, whatever the number of shards."""
    made = pool(RECIPE_A, {"weights.repository": "owner/model", "engine.kvCache": {}}, "latent")
    assert made.token_size == 61 * 576 * 2


def test_sliding_windows_cost_a_request_not_a_token() -> None:
    """18 full and 18 sliding layers of 4 heads at TP2 share blocks of 16 tokens: the printed tokens are full
    contexts, each with 8,192 blocks of its own and those of one window and one batch."""
    changes = {
        "weights.repository": "owner/model",
        "engine.kvCache": {},
        "engine.context": 131072,
        "memory.kvCache": "10GiB",
    }
    made = pool(RECIPE_A, changes, "sliding")
    assert made.token_size == 18 * 4 * 2 * 64 * 2
    blocks = (10 << 30) // (18 * 16 * 4 * 2 * 64 * 2)
    assert made.tokens == blocks * 131072 // (131072 // 16 + 136 + 1)


def test_windows_only_as_a_real_vllm_printed_it() -> None:
    """vLLM 0.32 for CPU, TP2, 64 MiB, three layers with windows of 192, batch 512: "CPU KV cache size:
    6,389,760 tokens, Maximum concurrency for 32,768 tokens per request: 195.00x"."""
    windows = {"layer_types": ["sliding_attention"] * 3, "num_hidden_layers": 3, "sliding_window": 192}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "hidden_size": 128}
    config = {"model_type": "llama", "max_position_embeddings": 32768, **windows, **heads}
    measured = spec("lab", {"engine.maxBatchedTokens": 512})
    made = budget(measured, read_checkpoint("owner/model", config, (), "a test"))
    assert made is not None
    assert made.pool is not None
    assert (made.pool.tokens, made.pool.contexts) == (6_389_760, 195.0)


def test_sglang_tokens_by_argument_are_a_limit() -> None:
    made = pool(RECIPE_B, {"engine.extraArgs": ["--max-total-tokens", "100000"]})
    assert made.tokens == 100_000


def test_a_model_of_windows_only_has_no_pool_of_tokens_on_sglang() -> None:
    """Its cache does not grow with the context: nothing to divide by."""
    windows = {"layer_types": ["sliding_attention"] * 2, "num_hidden_layers": 2, "sliding_window": 256}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "hidden_size": 128}
    config = {"model_type": "llama", "max_position_embeddings": 32768, **windows, **heads}
    read = read_checkpoint("owner/model", config, (), "a test")
    made = budget(spec(RECIPE_B, {"weights.repository": "owner/model"}), read)
    assert made is not None
    assert made.pool is None
