"""sparkop budget as a user runs it."""

from __future__ import annotations

import json
import xml.dom.minidom
from pathlib import Path
from typing import Any

import pytest

from sparkop.cli import run
from sparkop.views.console import out, talk
from tests.engines.budget.models import document
from tests.engines.specs import SPECS
from tests.node.test_headers import shard
from tests.spec.samples import MINIMAL, write

A, B = (str(SPECS / f"{name}.yaml") for name in ("deepseek-v4.1-flash", "qwen3.8-flash-next"))


@pytest.fixture(autouse=True)
def _fresh_consoles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    out.cache_clear()
    talk.cache_clear()


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert run(["budget", *arguments, "-o", "json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_both_recipes_without_any_node(capsys: pytest.CaptureFixture[str]) -> None:
    """Recipe B's figures, each with its basis and source, and the published ones that do not follow."""
    assert run(["budget", A]) == 0
    shown = capsys.readouterr().out
    assert "2,023,717 tokens, 7.72 contexts of 262,144" in shown
    assert "2.5 GiB of 121.7 GiB left" in shown
    assert run(["budget", B]) == 0
    shown = capsys.readouterr().out
    assert "12,288 B a token" in shown
    assert "956,800 tokens" in shown
    assert "but the parts sum to 94.1, and 121.7 - 95.6 is 26.1" in shown
    assert "not known" in shown
    for basis in ("computed", "fitted", "quoted"):
        assert basis in shown


def test_json_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, B)
    for rank in found["ranks"]:
        taken = sum(
            line["size"] for line in rank["lines"] if line["where"] != "disk" and line["part"] != "page cache"
        )
        assert rank["total"]["size"] - taken == rank["left"]
    assert found["safe"] is True
    assert found["slots"]["requests"] == 14


def test_unsafe_budget_is_shown_and_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """65, with the rule, its reason and what to do; the figures still come."""
    assert run(["budget", B, "--set", "engine.chunkedPrefillSize=4096"]) == 65
    shown, err = capsys.readouterr()
    assert "14.5 GiB too much for 121.7 GiB" in shown
    assert "[sglang.chunk]" in err
    assert "Instead: engine.chunkedPrefillSize of at most 1024" in err
    found = as_json(capsys, B, "--set", "engine.chunkedPrefillSize=4096", code=65)
    assert [each["rule"] for each in found["findings"] if each["refuses"]] == ["sglang.chunk"]


@pytest.mark.parametrize("command", ["validate", "diff", "apply"])
def test_no_launch_that_the_arithmetic_forbids(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before any node is asked: these specs' nodes can't be reached here."""
    assert run([command, B, "--set", "engine.chunkedPrefillSize=4096"]) == 65
    err = capsys.readouterr().err
    assert "[sglang.chunk]" in err
    assert "rules.override: [{id: sglang.chunk, reason: ...}]" in err


def test_fit_is_what_set_takes(capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, B, "--fit", "context")
    assert found["setting"] == "engine.context=956800"
    assert "[budget.pool]" in found["limit"]
    assert run(["validate", B, "--set", found["setting"]]) == 0
    capsys.readouterr()
    assert run(["budget", A, "--fit", "kv"]) == 0
    assert capsys.readouterr().out.startswith("--set memory.kvCache=4310MB")


def test_comparison_by_value_and_by_overlay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["budget", B, "--compare", "memory.gpuFraction=0.85"]) == 0
    assert "+3.5 GiB" in capsys.readouterr().out
    overlay = write(tmp_path, "memory: {gpuFraction: 0.95}\n", "overlay.yaml")
    found = as_json(capsys, B, "--compare", str(overlay), code=65)
    assert found["first"]["safe"] is True
    assert found["second"]["safe"] is False


def test_picture_has_a_bar_a_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "budget.svg"
    assert run(["budget", B, "--compare", "engine.context=<1>", "--picture", str(picture)]) == 65
    assert not picture.exists()
    assert run(["budget", B, "--compare", "engine.context=500000", "--picture", str(picture)]) == 0
    parsed = xml.dom.minidom.parse(str(picture))
    assert len(parsed.getElementsByTagName("g")) == 4
    assert run(["budget", B, "--picture", str(tmp_path / "none" / "x.svg")]) == 65


def test_two_questions_at_once_are_a_usage_error() -> None:
    assert run(["budget", B, "--fit", "context", "--compare", "engine.context=1"]) == 64


def test_unknown_model_says_where_its_numbers_could_come_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["budget", str(write(tmp_path, MINIMAL)), "--from", "known"]) == 65
    assert "--from nodes, or --from hub" in capsys.readouterr().err


def test_numbers_of_a_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Headers, configuration and memory of this machine, by the program that goes to a node."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(document("grouped-query")["config"]))
    shard(model / "model.safetensors", {"model.embed_tokens.weight": ("BF16", 3 << 30)})
    text = MINIMAL.replace("  - name: spark-2\n    ssh: you@10.0.0.2\n", "").replace(
        "~/models/model", str(model)
    )
    spec = write(tmp_path, text + "memory: {kvCache: 64 MiB}\n")
    found = as_json(capsys, str(spec), "--set", "engine.context=4096", "--set", "engine.container.gpus=false")
    (rank,) = found["ranks"]
    dense = [line for line in rank["lines"] if line["part"] == "dense"]
    assert [(line["size"], line["basis"]) for line in dense] == [(3 << 30, "read")]
    assert rank["total"]["basis"] == "read"
    assert found["pool"]["tokens"] == 64 * (1 << 20) // 512
