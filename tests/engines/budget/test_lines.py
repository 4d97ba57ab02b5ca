"""Weights, tables, state and workspaces of both recipes; what is read, computed, fitted, quoted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkop.engines.budget.budget import budget, indexer_workspace
from sparkop.engines.budget.checkpoint import Checkpoint, known, read_checkpoint, summarise
from sparkop.engines.budget.lines import Basis, Budget, Line, Part, Where
from sparkop.engines.budget.machine import SPARK_TOTAL, NodeMemory
from sparkop.engines.budget.shape import shape_of
from sparkop.engines.rules import check
from tests.engines.budget.models import checkpoint, document
from tests.engines.specs import RECIPE_A, RECIPE_B, spec

REPOSITORY_A = "0xSero/DeepSeek-V4.1-Flash-Spark"
REPOSITORY_B = "RadixArk/Qwen3.8-Flash-Next-NVFP4"
GB = 10**9
GIB = 1 << 30


def made(
    recipe: str,
    changes: dict[str, Any] | None = None,
    of: Checkpoint | None = None,
    memory: dict[str, NodeMemory] | None = None,
) -> Budget:
    found = budget(spec(recipe, changes), of, memory)
    assert found is not None
    return found


def line(found: Budget, part: Part, rank: int = 0) -> Line:
    (only,) = [each for each in found.ranks[rank].lines if each.part is part]
    return only


@pytest.mark.parametrize("headers", [False, True], ids=["configuration", "headers"])
def test_recipe_b_parts_within_five_percent(headers: bool) -> None:
    """Published: 68.0 GB of experts and 52.0 GB of table over two ranks, 3.6 GB (GiB) of state, 73 slots."""
    of = checkpoint("qwen3.8-flash-next", REPOSITORY_B) if headers else None
    found = made(RECIPE_B, of=of)
    assert 2 * line(found, Part.EXPERTS).size == pytest.approx(68.0 * GB, rel=0.05)
    table = line(found, Part.TABLE)
    assert 2 * table.size == pytest.approx(52.0 * GB, rel=0.05)
    assert table.where is Where.PINNED
    assert line(found, Part.STATE).size == pytest.approx(3.6 * GIB, rel=0.05)
    assert found.slots is not None
    assert (found.slots.count, found.slots.requests) == (73, 14)
    basis = Basis.READ if headers else Basis.COMPUTED
    assert line(found, Part.EXPERTS).basis is table.basis is basis


def test_state_slot_to_the_byte() -> None:
    found = made(RECIPE_B)
    assert found.slots is not None
    assert found.slots.slot_size == 28_311_552 + 1_105_920
    assert found.slots.size == 3_846_168_576
    wide = made(RECIPE_B, {"engine.mamba.ssmDtype": "float32"})
    assert wide.slots is not None
    assert wide.slots.copy_size == 2 * 28_311_552


def test_headers_split_recipe_b_by_kind() -> None:
    """The draft's experts are the draft's, shared experts are dense, norms are kept whole by each shard."""
    of = checkpoint("qwen3.8-flash-next", REPOSITORY_B)
    share, whole = of.weights(Part.DRAFT, 2)
    assert whole == 2 * (512 * 3 * 640 * 2560 + 19456 * 2560)
    assert share == whole // 2
    assert of.weights(Part.VISION, 2)[0] == of.weights(Part.VISION, 2)[1] > 0
    dense, all_of_it = of.weights(Part.DENSE, 2)
    small = 2 * (48 * 512 * 2560 + 96 * 2560)
    assert dense == (all_of_it - small) // 2 + small
    assert sum(of.weights(part, 1)[0] for part in Part) == sum(group.size for group in of.tensors)


def test_headers_of_recipe_a() -> None:
    """Engram tables stay on disk, all 202.76e9 bytes of them; EXL3 banks are no memory either."""
    found = made(RECIPE_A, of=checkpoint("deepseek-v4.1-flash", REPOSITORY_A))
    table = line(found, Part.TABLE)
    assert (table.size, table.where, table.basis) == (202_758_032_400, Where.DISK, Basis.READ)
    assert line(found, Part.EXPERTS).where is Where.DISK
    assert found.ranks[0].left == pytest.approx(2.5 * GIB, abs=1000), "the fit follows what was read"
    assert found.pool is not None
    assert found.pool.tokens == 2_023_717


def test_recipe_a_leaves_its_steady_state() -> None:
    found = made(RECIPE_A)
    assert [rank.left for rank in found.ranks] == [2_684_354_560] * 2
    assert line(found, Part.OTHER).basis is Basis.FITTED


def test_native_experts_do_not_fit_two_sparks() -> None:
    """288.8e9 bytes of fp4 experts over two ranks are more than a Spark has."""
    found = made(RECIPE_A, {"engine.exl3": None})
    assert 2 * line(found, Part.EXPERTS).size == pytest.approx(288.8 * GB, rel=0.001)
    assert not found.safe


def test_engram_tables_in_memory_count() -> None:
    found = made(RECIPE_A, {"engine.engram.tableMemory": "cpu"})
    assert line(found, Part.TABLE).counts
    assert not found.safe


def test_indexer_workspace_as_observed() -> None:
    """8 to 10 GB at 4096 x 300,000."""
    size, _ = indexer_workspace(4096, 300_000)
    assert 8 * GB <= size <= 10 * GB


@pytest.mark.parametrize(
    ("words", "tokens"),
    [
        (["--max-model-len", "1M"], 1 << 20),
        (["--max-model-len=1m"], 1_000_000),
        (["--max-model-len", "25.6k"], 25_600),
        (["--max-model-len", "262144"], 262_144),
    ],
)
def test_amounts_as_vllm_takes_them(words: list[str], tokens: int) -> None:
    """The extra argument wins in the engine, so it must not be passed over here."""
    pool = made(RECIPE_A, {"engine.extraArgs": words}).pool
    assert pool is not None
    assert pool.context == tokens


@pytest.mark.parametrize("value", ["inf", "nan", "-2", "-1e9", "x", "1Q", ""])
@pytest.mark.parametrize(
    ("recipe", "flag"),
    [
        (RECIPE_A, "--tensor-parallel-size"),
        (RECIPE_A, "--max-num-batched-tokens"),
        (RECIPE_A, "--swa-block-size"),
        (RECIPE_A, "--kv-cache-memory-bytes"),
        (RECIPE_B, "--mamba-full-memory-ratio"),
        (RECIPE_B, "--mem-fraction-static"),
        (RECIPE_B, "--max-total-tokens"),
    ],
)
def test_a_number_that_no_engine_takes_frees_no_memory(recipe: str, flag: str, value: str) -> None:
    """-2 shards once left 121 of 121.7 GiB, and inf broke the command."""
    found = made(recipe, {"engine.extraArgs": [flag, value]})
    assert found.ranks[0].left == made(recipe).ranks[0].left


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        (RECIPE_A, {"engine.kvCache.dtype": "new"}),
        (RECIPE_B, {"engine.kvCacheDtype": "new"}),
    ],
)
def test_a_cache_of_an_unknown_type_takes_its_room(recipe: str, changes: dict[str, Any]) -> None:
    """The engine takes the bytes or the share whatever a token costs."""
    found, usual = made(recipe, changes), made(recipe)
    assert found.pool is None
    assert line(found, Part.CACHE).name == "KV cache, tokens not known"
    assert found.ranks[0].left == pytest.approx(usual.ranks[0].left, abs=10_000_000)


def test_workspace_is_transient() -> None:
    found = made(RECIPE_B)
    rank, workspace = found.ranks[0], line(found, Part.WORKSPACE)
    assert workspace.transient
    assert rank.used - rank.steady == workspace.size == 2 * 4 * 1024 * 900_000
    assert rank.used == sum(each.size for each in rank.lines if each.counts)


def test_speculation_off_frees_the_draft() -> None:
    with_draft, without = made(RECIPE_A), made(RECIPE_A, {"engine.speculative": None})
    draft = line(with_draft, Part.DRAFT).size
    assert without.ranks[0].left - with_draft.ranks[0].left == draft > GB


def test_every_line_says_where_it_comes_from() -> None:
    for recipe in (RECIPE_A, RECIPE_B):
        found = made(recipe)
        assert all(each.source and each.name for rank in found.ranks for each in rank.lines)
        assert found.unknown
        assert any(quote.against for quote in found.quotes)


def test_contradictions_of_recipe_b_are_named() -> None:
    """None of the published figures that do not follow is taken into a line."""
    against = {quote.text: quote.against for quote in made(RECIPE_B).quotes}
    assert "12,288" in against["KV cache 9.0 GB in bf16 for 956,800 tokens"]
    assert "25.6 GB a rank" in against["PLE table 11 GB of pinned host memory"]
    assert any("94.1" in text for text in against.values())


def test_node_that_was_read_counts_as_it_is() -> None:
    """Taken memory of one node makes its rank the smaller one, and the pool of the group with it."""
    memory = {
        "spark-1": NodeMemory(SPARK_TOTAL, SPARK_TOTAL - 5 * GIB, 3 * GIB),
        "spark-2": NodeMemory(SPARK_TOTAL, SPARK_TOTAL - 20 * GIB),
    }
    found = made(RECIPE_B, memory=memory)
    system = [line(found, Part.SYSTEM, rank) for rank in (0, 1)]
    assert [each.size for each in system] == [5 * GIB, 20 * GIB]
    assert {each.basis for each in system} == {Basis.READ}
    assert found.pool is not None
    assert found.pool.tokens < 300_000
    assert line(found, Part.PAGE_CACHE).size == 3 * GIB
    assert not line(found, Part.PAGE_CACHE).counts


def test_a_spark_with_a_little_less_memory_is_still_a_spark() -> None:
    """MemTotal differs by what the firmware keeps; recipe A must not be refused for that."""
    found = made(RECIPE_A, memory={"spark-1": NodeMemory(128_500_000_000)})
    assert found.ranks[0].left == pytest.approx(2.5 * GIB, abs=GIB)
    assert found.safe


def test_unknown_model_has_no_budget() -> None:
    assert budget(spec(RECIPE_A, {"weights.repository": "somebody/else"})) is None
    assert known("somebody/else") is None
    assert known(REPOSITORY_A.upper()) is not None, "the hub's names have no case"


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"num_hidden_layers": 2},
        {"num_hidden_layers": None, "num_attention_heads": 4, "hidden_size": 8},
        {"num_hidden_layers": 4, "num_attention_heads": 0, "hidden_size": 8},
        {"kv_source_layers": [2]},
        {"text_config": {"linear_num_value_heads": 4}},
    ],
)
def test_unreadable_configuration_says_what_is_missing(config: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="configuration"):
        shape_of(config)


@pytest.mark.parametrize("tensor", [{}, {"dtype": "BF16"}, {"dtype": "BF16", "data_offsets": [1]}, None])
def test_damaged_header_is_refused(tensor: Any) -> None:
    with pytest.raises(ValueError, match="no offsets"):
        summarise([{"a": tensor}])


def test_metadata_is_no_tensor() -> None:
    assert summarise([{"__metadata__": {"format": "pt"}}]) == ()


@given(st.integers(1, 1 << 20), st.integers(1, 64), st.integers(1, 16384))
def test_more_is_never_less(context: int, requests: int, chunk: int) -> None:
    """A longer context or a larger chunk never leaves more memory."""
    changes = {"engine.context": context, "engine.maxRequests": requests, "engine.chunkedPrefillSize": chunk}
    small = made(RECIPE_B, changes)
    large = made(
        RECIPE_B, changes | {"engine.context": context + 1000, "engine.chunkedPrefillSize": chunk + 1}
    )
    assert large.ranks[0].left < small.ranks[0].left


@given(st.floats(0.01, 1.0))
def test_slots_and_cache_stay_in_their_share(fraction: float) -> None:
    """Whatever the share: no slot more than fits, and never a negative cache."""
    found = made(RECIPE_B, {"memory.gpuFraction": fraction})
    assert found.pool is not None
    assert found.slots is not None
    assert found.pool.size >= 0
    assert found.slots.count >= 0
    loaded = sum(
        each.size
        for each in found.ranks[0].lines
        if each.part in (Part.EXPERTS, Part.DENSE, Part.DRAFT, Part.TABLE, Part.OTHER)
    )
    share = fraction * (SPARK_TOTAL - line(found, Part.SYSTEM).size)
    assert found.pool.size + found.slots.size <= max(0, share - loaded) + 1


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.floats(allow_nan=True),
    st.text(max_size=3),
    st.lists(st.integers(-1, 3), max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)
CONFIGURATIONS = ("deepseek-v4.1-flash", "qwen3.8-flash-next", "grouped-query", "latent", "sliding")


@given(st.sampled_from(CONFIGURATIONS), st.data())
def test_any_configuration_gives_a_budget_or_a_reason(name: str, data: st.DataObject) -> None:
    """status reads whatever lies on a node: a strange one must not break it."""
    config = dict(document(name)["config"])
    inner = dict(config.get("text_config") or config)
    for key in data.draw(st.lists(st.sampled_from(sorted(inner)), min_size=1, max_size=3, unique=True)):
        inner[key] = data.draw(JUNK)
    changed = config | {"text_config": inner} if "text_config" in config else inner
    recipe = data.draw(st.sampled_from([RECIPE_A, RECIPE_B, "lab"]))
    try:
        read = read_checkpoint("owner/model", changed, (), "a test")
    except ValueError:
        return
    made_of = budget(spec(recipe), read)
    assert made_of is not None
    check(spec(recipe), budget=made_of)


def test_configuration_fixture_is_the_shipped_one() -> None:
    shipped = known(REPOSITORY_B)
    assert shipped is not None
    assert shape_of(document("qwen3.8-flash-next")["config"], "nvfp4") == shipped.shape


@pytest.mark.parametrize(
    ("quantisation", "size"),
    [
        ({}, 2.0),
        ({"quant_method": "fp8"}, 1.0),
        ({"quant_algo": "NVFP4"}, 0.5625),
        ({"quant_method": "x"}, None),
    ],
)
def test_experts_by_their_quantisation(quantisation: dict[str, str], size: float | None) -> None:
    """58 x 256 experts of 3 x 7168 x 2048 weights; nothing is guessed for a type that is not known."""
    config = document("latent")["config"] | {"quantization_config": quantisation}
    experts = read_checkpoint("owner/model", config, (), "a test").shape.experts
    assert (experts.size if experts else None) == (size and 58 * 256 * 3 * 7168 * 2048 * size)
