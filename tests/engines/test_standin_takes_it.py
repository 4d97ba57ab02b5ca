"""The stand-in accepts exactly what is rendered, key file included, so that the lab proves the real flags."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

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
