"""The stand-in accepts exactly what is rendered, key file included, so that the lab proves the real flags."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sparkop.engines.budget.budget import budget
from sparkop.engines.budget.checkpoint import read_checkpoint
from sparkop.engines.paths import ENGINE_FILE_TARGET
from sparkop.engines.render import engine_of, render
from tests.engines.specs import RECIPE_A, RECIPE_B, facts_of, spec

STANDIN = Path(__file__).parents[2] / "images" / "lab-standin"
KEY = "0123abc:#'key"


@pytest.fixture
def flags(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The stand-in's command lines, imported as in its image."""
    monkeypatch.syspath_prepend(str(STANDIN))
    yield importlib.import_module("standin.flags")
    for name in [name for name in sys.modules if name.split(".")[0] == "standin"]:
        del sys.modules[name]


HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "hidden_size": 128}
WINDOWS, FULL = ["sliding_attention"], ["full_attention"]


@pytest.mark.parametrize("kinds", [3 * WINDOWS, 3 * FULL, 2 * WINDOWS + 4 * FULL])
@pytest.mark.parametrize("changes", [{}, {"engine.maxBatchedTokens": 512}, {"engine.kvCache.blockSize": 16}])
def test_its_kv_cache_holds_what_the_budget_says(
    kinds: list[str], changes: dict[str, Any], flags: ModuleType
) -> None:
    """The first kind is the lab's model: `status` warned of every healthy group of the stand-in."""
    config = {"model_type": "llama", "max_position_embeddings": 32768, "layer_types": kinds, **HEADS}
    config |= {"num_hidden_layers": len(kinds), "sliding_window": 192}
    cluster = spec("lab-standin", changes)
    made = budget(cluster, read_checkpoint("owner/model", config, (), "a test"))
    assert made is not None
    assert made.pool is not None
    words = next(iter(render(cluster, facts_of(cluster)).ranks)).arguments
    given = flags.parse_vllm([word for word in words if word not in ("--config", ENGINE_FILE_TARGET)])
    main = importlib.import_module("standin.main")
    assert main.kv_tokens(given, config, given.max_model_len) == made.pool.tokens


@pytest.mark.parametrize("name", [RECIPE_A, RECIPE_B, "lab", "lab-standin"])
def test_every_rank_is_accepted_and_reads_its_key(name: str, flags: ModuleType, tmp_path: Path) -> None:
    """A flag that only the rendering or only the stand-in knows would make the lab a proof of nothing."""
    cluster = spec(name, {"api.key": "generate"})
    key_file = tmp_path / "engine.yaml"
    key_file.write_bytes(engine_of(cluster).key_file(KEY))
    for rank in render(cluster, facts_of(cluster)).ranks:
        words = [str(key_file) if word == ENGINE_FILE_TARGET else word for word in rank.arguments]
        if name == RECIPE_B:
            assert words[:3] == ["python3", "-m", "sglang.launch_server"]
            options = flags.parse_sglang(words[3:])
        else:
            options = flags.parse_vllm(words)
        assert (options.nnodes, options.node_rank) == (2, rank.rank)
        key = options.api_key
        assert (key[0] if isinstance(key, list) else key) == (KEY if rank.rank == 0 else None)
