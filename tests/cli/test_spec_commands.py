"""validate, explain, schema, init and render --spec, as a user runs them."""

from __future__ import annotations

import json
import os
import platform
import pty
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from sparkop.cli import run
from sparkop.hosts.simulated import SimulatedHost
from sparkop.hosts.simulated_node import World
from sparkop.spec.load import load_text
from sparkop.views.console import out, talk
from tests.spec.corpus import BAD, bad_specs
from tests.spec.samples import MINIMAL, SHIPPED, write

INIT = ["init", "--head", "user@10.0.0.1", "--worker", "user@10.0.0.2"]


@pytest.fixture(autouse=True)
def _fresh_consoles() -> None:
    """They keep the stream of the test before."""
    out.cache_clear()
    talk.cache_clear()


def test_validate_shows_every_error_of_every_bad_spec(capsys: pytest.CaptureFixture[str]) -> None:
    """The command that the issue names; the caret and the accepted values are what a newcomer acts on."""
    assert run(["validate", *map(str, bad_specs())]) == 65
    shown, err = capsys.readouterr()
    assert shown == ""
    assert err.endswith(f"{len(bad_specs())} of {len(bad_specs())} specs are invalid\n")
    assert f"{BAD}/key-typo.yaml:16:3: memory has no key gpuFracton" in err
    for path in bad_specs():
        assert f"{path}:" in err


def test_validate_accepts_the_shipped_specs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", *map(str, SHIPPED)]) == 0
    assert capsys.readouterr().out.count(": valid\n") == len(SHIPPED)


def test_validate_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write(tmp_path, MINIMAL, "good.yaml")
    bad = write(tmp_path, MINIMAL.replace("vllm", "vlm"), "bad.yaml")
    assert run(["validate", str(good), str(bad), str(tmp_path / "none.yaml"), "-o", "json"]) == 65
    document = json.loads(capsys.readouterr().out)
    assert [spec["valid"] for spec in document["specs"]] == [True, False, False]
    [problem] = document["specs"][1]["problems"]
    assert (problem["line"], problem["column"], problem["path"]) == (14, 9, "engine.kind")
    assert problem["suggestion"] == "did you mean vllm?"
    assert "there is no file" in document["specs"][2]["error"]


def test_validate_with_layers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = write(tmp_path, MINIMAL)
    overlay = write(tmp_path, "memory: {kvCache: 1G}\n", "overlay.yaml")
    assert run(["validate", str(spec), "--overlay", str(overlay), "--set", "api.port=0"]) == 65
    err = capsys.readouterr().err
    assert f"{overlay}:1:19: memory.kvCache: 1G has two readings" in err
    assert "--set:1:10: api.port: must be at least 1, not 0" in err


def test_a_rule_refuses_until_it_is_set_aside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Refused with the reason and the way to override; then only told."""
    [path] = [path for path in SHIPPED if path.stem == "qwen3.8-flash-next"]
    arguments = ["validate", str(path), "--set", "engine.chunkedPrefillSize=4096"]
    assert run(arguments) == 65
    err = capsys.readouterr().err
    assert "--set:1:27: engine.chunkedPrefillSize:" in err
    assert "[sglang.chunk]" in err
    assert "rules.override: [{id: sglang.chunk, reason: ...}]" in err
    override = "rules: {override: [{id: sglang.chunk, reason: measured on a spare machine}]}\n"
    overlay = write(tmp_path, override, "overlay.yaml")
    assert run([*arguments, "--overlay", str(overlay)]) == 0
    assert "set aside (measured on a spare machine)" in capsys.readouterr().err


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "memory.guard"]) == 0
    assert "actionFloor" in capsys.readouterr().out
    assert run(["explain", "memory.gard"]) == 64
    assert "did you mean guard?" in capsys.readouterr().err


def test_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["$defs"]["MemoryGuardSpec"]


def test_render_spec_names_origins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = write(tmp_path, MINIMAL)
    assert run(["render", "--spec", str(spec), "--set", "api.port=9000"]) == 0
    text = capsys.readouterr().out
    assert load_text(text).spec.api.port == 9000
    assert [line.split("# ")[1] for line in text.splitlines() if "port: 9000" in line] == ["--set:1"]


def test_init_writes_a_valid_spec_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    """The command that the issue names. No node is asked without --detect."""
    assert run([*INIT, "--recipe", "qwen3.8-flash-next"]) == 0
    text, err = capsys.readouterr()
    spec = load_text(text).spec
    assert [node.remote.host for node in spec.nodes if node.remote] == ["10.0.0.1", "10.0.0.2"]
    assert "No node was asked" in err
    assert "sparkop validate spec.yaml" in err


def test_init_writes_no_file_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "spec.yaml"
    assert run([*INIT, "--recipe", "deepseek-v4.1-flash", "--write", str(target)]) == 0
    first = target.read_bytes()
    assert run([*INIT, "--recipe", "qwen3.8-flash-next", "--write", str(target)]) == 64
    assert target.read_bytes() == first
    assert "exists" in capsys.readouterr().err


def test_init_without_a_terminal_says_what_is_missing() -> None:
    done = _sparkop(["init", "--worker", "a"])
    assert done.returncode == 64
    assert "--recipe and --head missing" in done.stderr
    assert done.stdout == ""


def test_init_asks_on_a_terminal() -> None:
    """Questions and answers stand on stderr; stdout has the spec alone."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "sparkop", "init"],
        stdin=theirs,
        stderr=theirs,
        stdout=subprocess.PIPE,
        text=True,
    )
    os.close(theirs)
    os.write(ours, b"qwen3.8-flash-next\nlocal\nyou@10.0.0.2\n")
    text, _ = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0
    spec = load_text(text).spec
    assert [node.remote is None for node in spec.nodes] == [True, False]


def _sparkop(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sparkop", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_init_takes_names_and_fabric_from_nodes_that_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    hosts = {name: SimulatedHost(world.add(name)) for name in ("spark-1", "spark-2")}
    monkeypatch.setattr("sparkop.reconcile.nodes.readable_nodes", lambda spec: nullcontext(hosts))
    assert run([*INIT, "--recipe", "deepseek-v4.1-flash", "--detect"]) == 0
    text = capsys.readouterr().out
    assert len(load_text(text).spec.nodes) == 2
    assert (
        len([line for line in text.splitlines() if re.match(r"# \S+: fabric [\d.]+ on \S+, devices ", line)])
        == 2
    )


def test_init_leaves_out_nodes_that_do_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """A real probe of this machine, and a port where nothing listens."""
    nodes = ["--head", "local", "--worker", "nobody@127.0.0.1:1"]
    assert run(["init", *nodes, "--recipe", "qwen3.8-flash-next", "--detect"]) == 0
    text, err = capsys.readouterr()
    assert load_text(text).spec.head.name == platform.node().split(".")[0]
    assert "spark-2: not read" in err
    assert "refused the connection" in err


def test_import_names_the_variable_of_a_bad_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The user knows the variable, not the overlay that was made from it."""
    env = write(tmp_path, "API_KEY_FILE=some/file\n", "recipe.env")
    monkeypatch.setenv("PORT", "0")
    assert run(["import", str(env), "--recipe", "deepseek-v4.1-flash"]) == 65
    err = " ".join(capsys.readouterr().err.split())
    assert "api.keyFile: a path on a node begins with / or ~/" in err
    assert "made from the variable API_KEY_FILE (file)" in err
    assert "made from the variable PORT (shell)" in err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"PORT=9000\nX=\xff\n", ".env:2: byte 0xff is no UTF-8"),
        (b"PORT=9000\n" * 40_000, "too long, or binary"),
        (b"PORT=9000\n\0", "too long, or binary"),
    ],
)
def test_import_of_odd_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, said: str
) -> None:
    """A device or a binary file ends in an error, with little of it in memory."""
    path = tmp_path / "recipe.env"
    path.write_bytes(content)
    assert run(["import", str(path), "--recipe", "deepseek-v4.1-flash"]) == 64
    assert said in capsys.readouterr().err
    assert run(["import", "/dev/zero", "--recipe", "deepseek-v4.1-flash"]) == 64
    assert run(["import", str(tmp_path / "none.env"), "--recipe", "deepseek-v4.1-flash"]) == 64
    assert "Errno" not in capsys.readouterr().err


def test_init_tells_what_will_be_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """One node for weights that need two: better told now than after the user filled the file in."""
    assert run(["init", "--head", "local", "--recipe", "qwen3.8-flash-next"]) == 0
    assert "will be refused: " in capsys.readouterr().err
    assert run([*INIT, "--recipe", "qwen3.8-flash-next"]) == 0
    assert "will be refused" not in capsys.readouterr().err


def test_init_shows_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", "--head", "you:AbCdEf-9@a", "--recipe", "qwen3.8-flash-next"]) == 64
    assert "AbCdEf-9" not in capsys.readouterr().err
