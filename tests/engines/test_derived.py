"""Values that follow from others: what must hold whatever the user asks for."""

from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from sparkop.engines import derived
from sparkop.engines.render import render
from sparkop.spec.engines import SglangEngine, VllmEngine
from tests.engines.specs import RECIPE_A, RECIPE_B, facts_of, spec


def _vllm(sequences: int, drafts: int) -> VllmEngine:
    speculative = {"method": "dspark", "draftTokens": drafts} if drafts else None
    return VllmEngine.model_validate(
        {"kind": "vllm", "maxSequences": sequences, "graphs": {"mode": "FULL"}, "speculative": speculative}
    )


def test_capture_sizes_by_example() -> None:
    assert derived.vllm_capture_sizes(_vllm(2, 7)) == (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)
    assert derived.vllm_capture_sizes(_vllm(3, 7)) == (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24)
    assert derived.vllm_capture_sizes(_vllm(2, 4)) == (1, 2, 3, 4, 5, 9, 10)
    assert derived.vllm_capture_sizes(_vllm(4, 0)) == (1, 4)
    assert derived.vllm_capture_sizes(_vllm(1, 3)) == (1, 2, 3, 4)


@given(st.integers(1, 64), st.integers(0, 16))
def test_capture_sizes_reach_a_full_step_and_no_further(sequences: int, drafts: int) -> None:
    """A step without a graph is slow; a graph that is never used costs memory."""
    sizes = derived.vllm_capture_sizes(_vllm(sequences, drafts))
    assert sizes[-1] == sequences * (drafts + 1)
    assert list(sizes) == sorted(set(sizes))
    assert set(range(1, drafts + 2)) <= set(sizes)
    assert all(after - before <= 4 for before, after in itertools.pairwise(sizes))


def test_capture_sizes_follow_in_the_arguments() -> None:
    """Both flags move together when sequences or drafts change."""
    cluster = spec(RECIPE_A, {"engine.maxSequences": 3, "engine.speculative.draftTokens": 4})
    for rank in render(cluster, facts_of(cluster)).ranks:
        words = rank.arguments
        sizes = json.loads(words[words.index("--compilation-config") + 1])["cudagraph_capture_sizes"]
        assert sizes == [1, 2, 3, 4, 5, 9, 13, 15]
        assert words[words.index("--max-cudagraph-capture-size") + 1] == "15"
        assert json.loads(words[words.index("--speculative-config") + 1])["num_speculative_tokens"] == 4


def _sglang(**values: object) -> SglangEngine:
    return SglangEngine.model_validate({"kind": "sglang", **values})


@given(st.integers(1, 256))
def test_decode_graphs_reach_the_request_limit(requests: int) -> None:
    """A batch above the list runs without a graph, many times slower."""
    sizes = derived.sglang_decode_sizes(_sglang(maxRequests=requests))
    assert sizes[-1] == requests
    assert list(sizes) == sorted(set(sizes))
    assert all(after - before <= 2 for before, after in itertools.pairwise((0, *sizes)))


NATIVE = 262144


@given(st.integers(1, 4 * NATIVE))
def test_yarn_holds_the_context_with_the_smallest_whole_factor(context: int) -> None:
    """Too small a factor breaks long prompts, too large a one worsens all."""
    override = derived.yarn(_sglang(context=context, longContext={"native": NATIVE}))
    if context <= NATIVE:
        assert override is None
        return
    assert override is not None
    text = override["text_config"]
    factor = text["rope_scaling"]["factor"]
    assert isinstance(factor, float)
    assert factor.is_integer()
    assert text["rope_scaling"]["original_max_position_embeddings"] == NATIVE
    assert text["max_position_embeddings"] == NATIVE * factor
    assert NATIVE * (factor - 1) < context <= text["max_position_embeddings"]


@given(st.integers(1, 16))
def test_draft_is_one_more_than_the_steps(steps: int) -> None:
    cluster = spec(RECIPE_B, {"engine.speculative": {"steps": steps}})
    words = render(cluster, facts_of(cluster)).ranks[1].arguments
    assert words[words.index("--speculative-num-draft-tokens") + 1] == str(steps + 1)
