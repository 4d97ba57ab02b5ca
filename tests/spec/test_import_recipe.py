"""A recipe's .env file or exported variables become an overlay that renders what the recipe ran."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparkop.cli.root import cli
from sparkop.engines.render import render
from sparkop.errors import UsageError
from sparkop.spec.import_recipe import (
    Imported,
    convert,
    laid_over,
    overlay_text,
    recipe_of,
)
from sparkop.spec.load import load
from sparkop.spec.models import ClusterSpec
from sparkop.spec.problems import InvalidSpecError
from sparkop.spec.recipe_file import names_in, read_file
from sparkop.spec.recipe_variables import Recipe
from sparkop.spec.recipes import directory
from tests.engines.specs import facts_of


def _spec(imported: Imported) -> ClusterSpec:
    base = load([directory() / f"{imported.recipe.value}.yaml"])
    return laid_over(base, overlay_text(imported), "overlay.yaml")


def _import(recipe: Recipe, text: str | None = None, shell: Mapping[str, str] | None = None) -> Imported:
    return convert(recipe, text, shell or {}, home="/home/ada")


def test_recipe_b_reads_its_env_by_its_own_rules() -> None:
    """Its start script drops carriage returns and takes values as they stand."""
    lines = [
        "# A=1",
        "SERVED_MODEL_NAME=my model # no comment",
        "HOST_BIND=",
        "",
        "  #PORT=1",
        "PORT=8889",
        "nonsense",
    ]
    found, odd = read_file("\r\n".join(lines), Recipe.B)
    assert found == {"SERVED_MODEL_NAME": "my model # no comment", "HOST_BIND": "", "PORT": "8889"}
    assert [each.name for each in odd] == ["line 7"]


def test_recipe_a_reads_a_file_as_a_shell_does() -> None:
    text = "export EXTRA=\"--a 'b c'\" # why\nWORKER=me@10.0.0.2\n"
    assert read_file(text, Recipe.A)[0] == {"EXTRA": "--a 'b c'", "WORKER": "me@10.0.0.2"}


@pytest.mark.parametrize(
    ("text", "values", "told"),
    [
        ("export PORT=1 MPORT=2\n", {"PORT": "1", "MPORT": "2"}, []),
        ("PORT=1; MPORT=2\n", {"PORT": "1", "MPORT": "2"}, []),
        ("PORT=1 \\\nMPORT=2 ./launch.sh serve\n", {"PORT": "1", "MPORT": "2"}, ["line 1"]),
        ("CAPS=1 2 4\n", {}, ["CAPS"]),
        ("export PORT=1 CAPS=1, 2\n", {"PORT": "1"}, ["CAPS"]),
        ("HEAD_HCAS=rocep1s0f0, roceP2p1s0f0\n", {}, ["HEAD_HCAS"]),
        ("EXTRA=--max-logprobs 5\nPORT=1\n", {"PORT": "1"}, ["EXTRA"]),
        ("EXTRA=--a --b\nEXTRA=--c\n", {"EXTRA": "--c"}, ["EXTRA"]),
        ('EXTRA=--a {"x":1/2}\n', {}, ["EXTRA"]),
        ("PORT=1; echo on\n", {"PORT": "1"}, ["line 1"]),
        ("PORT=1 bash -c x\n", {"PORT": "1"}, ["line 1"]),
        ("A='x;y' B=\"p q\"'r' C=x#y # z\n", {"A": "x;y", "B": "p qr", "C": "x#y"}, []),
        (
            "A='$x' B=\\$x C=$HOME/m D=\"${HOME}/m\"\n",
            {"A": "$x", "B": "$x", "C": "$HOME/m", "D": "${HOME}/m"},
            [],
        ),
        (
            "IMG=${IMG:-x}\nPORT=$(id -u) MPORT=`id`\nEXTRA=\"--a '$B'\"\n",
            {},
            ["IMG", "PORT", "MPORT", "EXTRA"],
        ),
        ("A=x$HOME/y\n", {}, ["A"]),
        ("PORT=1\nPORT=$X\n", {}, ["PORT"]),
        ("A='x\nPORT=1\n", {"PORT": "1"}, ["line 1"]),
        ("unset PORT\nexport\nset -a\n", {}, ["line 1"]),
    ],
)
def test_nothing_of_a_recipe_a_file_is_dropped_in_silence(
    text: str, values: dict[str, str], told: list[str]
) -> None:
    """A second assignment of a line, a command behind it, a value that only a shell knows: taken or named."""
    found, odd = read_file(text, Recipe.A)
    assert found == values
    assert [each.name for each in odd] == told


def test_a_value_that_only_a_shell_knows_does_not_end_the_import() -> None:
    imported = _import(Recipe.A, "IMG=${IMG:-x}\nMPORT=29999\n")
    assert _spec(imported).engine.rendezvous_port == 29999
    assert "only a shell" in imported.unmapped[0].reason


@pytest.mark.parametrize(("gib", "floor"), [("0.25", 1 << 28), ("0.5", 1 << 29), ("12", 12 << 30)])
def test_any_floor_of_the_recipes_guard_arrives(gib: str, floor: int) -> None:
    """MEMGUARD_GIB alone: what lies above and below it follows."""
    guard = _spec(_import(Recipe.A, f"MEMGUARD_GIB={gib}\n")).memory.guard
    assert guard.action_floor == floor
    assert guard.hard_floor < floor <= guard.soft_floor


def test_a_guard_without_a_floor_is_refused_by_the_variables_name() -> None:
    with pytest.raises(InvalidSpecError) as caught:
        _spec(_import(Recipe.A, "MEMGUARD_GIB=0\n"))
    (problem,) = caught.value.problems
    assert problem.path[-1] == "actionFloor"
    assert "must be more than 0 B" in problem.message


def test_shell_wins_over_the_env_file() -> None:
    imported = _import(Recipe.B, "PORT=1111\nDIST_PORT=2222\n", {"PORT": "3333"})
    spec = _spec(imported)
    assert (spec.api.port, spec.engine.rendezvous_port) == (3333, 2222)
    assert [(each.name, each.origin) for each in imported.mapped] == [
        ("PORT", "shell"),
        ("DIST_PORT", "file"),
    ]


def test_every_setting_of_recipe_a_arrives() -> None:
    shell = {
        "WORKER": "bob@10.10.10.11",
        "MODEL_DIR": "/home/ada/models/x",
        "WORKER_MODEL_DIR": "/data/x",
        "STATE_DIR": "$HOME/state",
        "HEAD_IP": "10.10.10.13",
        "HEAD_IFNAME": "enp1s0f1np1",
        "HEAD_HCAS": "rocep1s0f1,roceP2p1s0f1",
        "PORT": "8001",
        "MPORT": "29999",
        "IMG": "example/image:tag",
        "PLAN_NAME": "other.json",
        "API_KEY_FILE": "~/key",
        "MEMGUARD_GIB": "1.5",
        "KV_BYTES": "2000000000",
        "MAX_LEN": "131072",
        "MAX_SEQS": "3",
        "NSPEC": "4",
        "BATCH": "4096",
        "GPU_UTIL": "0.85",
        "GRAPH_MODE": "FULL",
        "CAPS": "[1,2,15]",
        "EXTRA": "--max-logprobs 5 --note 'two words'",
        "REVISION": "v1",
        "KEEP_PARTS": "1",
        "KEY_ENV": "MY_KEY",
        "SET_DEFAULT": "1",
    }
    imported = _import(Recipe.A, shell=shell)
    assert {each.name for each in imported.mapped} == set(shell)
    assert imported.unmapped == []
    spec = _spec(imported)
    head, worker = render(spec, facts_of(spec)).ranks
    assert head.mounts[0].source == "/home/spark/models/x"
    assert worker.mounts[0].source == "/data/x"
    assert head.mounts[1].source == "/home/spark/state/plans"
    assert head.environment["NCCL_IB_HCA"] == "rocep1s0f1,roceP2p1s0f1"
    assert head.environment["ST_EXL3_PLAN"] == "/plans/other.json"
    assert head.image == "example/image:tag"
    line = " ".join(head.arguments)
    for words in (
        "--kv-cache-memory-bytes 2000000000 --gpu-memory-utilization 0.85 --max-model-len 131072",
        "--max-num-seqs 3 --max-num-batched-tokens 4096 --max-cudagraph-capture-size 15",
        '"cudagraph_mode":"FULL"',
        '"cudagraph_capture_sizes":[1,2,15]',
        '"num_speculative_tokens":4',
        "--port 8001",
        "--master-port 29999",
    ):
        assert words in line
    assert head.arguments[-4:] == ("--max-logprobs", "5", "--note", "two words")
    assert "--note" not in worker.arguments
    assert spec.nodes[0].fabric.address == "10.10.10.13"
    assert spec.nodes[1].remote is not None
    assert (spec.nodes[1].remote.user, spec.nodes[1].remote.host) == ("bob", "10.10.10.11")
    assert spec.memory.guard.action_floor == 3 << 29
    assert (spec.weights.revision, spec.weights.keep_parts) == ("v1", True)
    assert spec.weights.free_space == 680 * 10**9
    assert (spec.api.key_file, spec.clients.key_environment, spec.clients.make_default) == (
        "~/key",
        "MY_KEY",
        True,
    )


WHOLE = '{"temperature":0.2,"a":[1]}'


@pytest.mark.parametrize(
    "written",
    [
        WHOLE,
        f"'{WHOLE}'",
        '"' + WHOLE.replace('"', '\\"') + '"',
        WHOLE.replace('"', '\\"'),
    ],
    ids=["bare", "single quotes", "double quotes", "escaped"],
)
@pytest.mark.parametrize("between", [" ", "="])
def test_json_in_extra_arguments_arrives_whole(between: str, written: str) -> None:
    """vLLM's own error for ``{temperature:0.2}`` would come eleven minutes later."""
    shell = {"EXTRA": f"--x 'two words' --override-generation-config{between}{written} --y [a]"}
    words = list(_spec(_import(Recipe.A, shell=shell)).engine.head_extra_args)
    told = f"--override-generation-config{between}{WHOLE}".split(" ")
    assert words == ["--x", "two words", *told, "--y", "[a]"]


@pytest.mark.parametrize(
    ("recipe", "shell"),
    [
        (Recipe.A, {"EXTRA": '--x {"temperature": 0.2}'}),
        (Recipe.A, {"EXTRA": '--x={"temperature": 0.2}'}),
        (Recipe.A, {"EXTRA": "--x {temperature:0.2}"}),
        (Recipe.A, {"EXTRA": '--x ["a", "b"]'}),
        (Recipe.A, {"EXTRA": '--x "{"temperature":0.2}"', "NSPEC": "7"}),
        (Recipe.B, {"EXTRA_ARGS": '--x {"temperature": 0.2}'}),
    ],
)
def test_json_that_was_taken_apart_is_named_and_not_mapped(recipe: Recipe, shell: dict[str, str]) -> None:
    imported = _import(recipe, shell=shell)
    (told,) = imported.unmapped
    assert told.name.startswith("EXTRA")
    assert "JSON" in told.reason
    assert not {"extraArgs", "headExtraArgs"} & set(imported.overlay.get("engine", {}))


@pytest.mark.parametrize(("value", "space"), [("1", 680 * 10**9), ("0", 470 * 10**9)])
def test_parts_that_stay_need_their_room(value: str, space: int) -> None:
    assert _spec(_import(Recipe.A, f"KEEP_PARTS={value}\n")).weights.free_space == space


def test_every_setting_of_recipe_b_arrives() -> None:
    env = """
HEAD_CX7_IP=10.0.22.1
WORKER_CX7_IP=10.0.22.2
HEAD_CX7_IF=enp1s0f1np1
WORKER_CX7_IF=enp1s0f0np0
HEAD_CX7_IB=rocep1s0f1,roceP2p1s0f1
WORKER_CX7_IB=rocep1s0f0,roceP2p1s0f0
WORKER_HOST=spark2
WORKER_USER=mia
PORT=8889
HOST_BIND=127.0.0.1
DIST_PORT=26401
MEM_FRACTION_STATIC=0.8
CONTEXT_LENGTH=500000
CHUNKED_PREFILL_SIZE=512
MAX_RUNNING_REQUESTS=8
SPEC_STEPS=2
SPEC_TOPK=1
SPEC_DRAFT=3
MAMBA_FULL_MEMORY_RATIO=0.4
MAMBA_RADIX_CACHE_STRATEGY=extra_buffer_lazy
MAMBA_TRACK_INTERVAL=128
PLE_OFFLOAD=1
ENABLE_DECODE_GRAPHS=1
CUDA_GRAPH_BS=1 2 4 8
ATTENTION_BACKEND=triton
BASE_IMAGE=base:tag
PATCHED_IMAGE=mine:local
KERNEL_PATCH=1
DOWNLOAD_MODE=direct
HF_HOME=/home/ada/hf
WORKER_HF_HOME=/data/hf
HF_REVISION=1111111111111111111111111111111111111111
USE_HOST_NCCL=1
NCCL_HOST_DIR=/opt/nccl
NCCL_DEBUG=INFO
NCCL_CROSS_NIC=1
CPUSET=
REASONING_PARSER=qwen3
TOOL_CALL_PARSER=qwen3_coder
SERVED_MODEL_NAME=qwen
WAIT_TIMEOUT_MIN=30
EXTRA_ARGS=--log-level debug
ALLOW_AUTO_TRUNCATE=1
"""
    imported = _import(Recipe.B, env)
    assert {each.name for each in imported.mapped} == names_in(env)
    assert imported.unmapped == []
    spec = _spec(imported)
    head, worker = render(spec, facts_of(spec)).ranks
    line = " ".join(head.arguments)
    for words in (
        "/snapshots/1111111111111111111111111111111111111111 --served-model-name qwen",
        "--attention-backend triton",
        "--mamba-radix-cache-strategy extra_buffer_lazy --mamba-track-interval 128 --mem-fraction-static 0.8",
        "--chunked-prefill-size 512 --max-running-requests 8 --context-length 500000",
        "--speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 3",
        "--reasoning-parser qwen3 --tool-call-parser qwen3_coder",
        "--host 127.0.0.1 --port 8889",
        "--mamba-full-memory-ratio 0.4 --cuda-graph-bs-decode 1 2 4 8 --ple-offload-embedding",
        "--allow-auto-truncate --log-level debug",
        ":26401",
    ):
        assert words in line
    assert head.options.cpuset is None
    assert (head.image, spec.image.build and spec.image.build.base) == ("mine:local", "base:tag")
    assert worker.mounts[0].source == "/data/hf"
    assert head.mounts[0].source == "/home/spark/hf"
    assert head.environment["NCCL_IB_HCA"] == "rocep1s0f1,roceP2p1s0f1"
    assert (head.environment["NCCL_CROSS_NIC"], head.environment["NCCL_DEBUG"]) == ("1", "INFO")
    assert (spec.weights.distribution, float(spec.ready.deadline)) == ("direct", 1800.0)
    assert spec.nodes[1].remote is not None
    assert (spec.nodes[1].remote.user, spec.nodes[1].remote.host) == ("mia", "spark2")


def test_image_replaces_the_build() -> None:
    spec = _spec(_import(Recipe.B, "IMAGE=my/image:1\n"))
    assert (spec.image.reference, spec.image.build) == ("my/image:1", None)
    spec = _spec(_import(Recipe.B, "KERNEL_PATCH=0\nBASE_IMAGE=base:1\n"))
    assert (spec.image.reference, spec.image.build) == ("base:1", None)


def test_host_nccl_can_be_switched_off() -> None:
    spec = _spec(_import(Recipe.B, "USE_HOST_NCCL=0\nNCCL_HOST_DIR=/opt/nccl\nNCCL_DEBUG=INFO\n"))
    assert spec.engine.nccl.preload is None
    assert spec.engine.nccl.debug == "INFO"


@pytest.mark.parametrize(
    "words",
    [
        "--api-key sk-SENTINEL",
        "--api-key=sk-SENTINEL",
        "--api_key sk-SENTINEL",
        "--api-key 'sk-SENTINEL'",
        '--api-key "sk SENTINEL SENTINEL"',
        "--api-key='sk SENTINEL'",
    ],
)
def test_key_inside_extra_arguments_is_taken_out(words: str) -> None:
    """It decides which key clients need, so it turns the key on, and the rest of the words stays."""
    imported = _import(Recipe.B, f"EXTRA_ARGS=--log-level debug {words} --seed 7\n")
    assert "SENTINEL" not in overlay_text(imported)
    spec = _spec(imported)
    assert spec.engine.extra_args == ("--log-level", "debug", "--seed", "7")
    assert spec.api.key == "generate"
    assert "--api-key is left out" in imported.unmapped[0].reason


@pytest.mark.parametrize(
    ("recipe", "shell"),
    [
        (Recipe.A, {"HF_TOKEN": "hf-SENTINEL", "DSV41_API_KEY": "sk-SENTINEL", "NSPEC": "7"}),
        (Recipe.B, {"HF_TOKEN": "hf-SENTINEL", "API_KEY": "sk-SENTINEL", "CPUSET": ""}),
    ],
)
def test_secrets_are_named_and_not_written(recipe: Recipe, shell: dict[str, str]) -> None:
    imported = _import(recipe, shell=shell)
    assert "SENTINEL" not in overlay_text(imported)
    assert {"HF_TOKEN"} <= {each.name for each in imported.unmapped}
    if recipe is Recipe.B:
        assert _spec(imported).api.key == "generate"
        assert "API_KEY" in {each.name for each in imported.unmapped}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("CONTEXT_LENGTH=900000 # all\n", "trailing comment"),
        ('MAX_RUNNING_REQUESTS="16"\n', "quotes"),
        ("PLE_OFFLOAD=yes\n", "neither 0 nor 1"),
        ("DOWNLOAD_MODE=scp\n", "neither rsync nor direct"),
        ("MY_OWN=1\n", "no such variable"),
    ],
)
def test_what_can_not_be_mapped_is_said(text: str, reason: str) -> None:
    """A value that is dropped in silence leaves the user with other settings than before."""
    imported = _import(Recipe.B, text)
    (unmapped,) = imported.unmapped
    assert reason in unmapped.reason
    assert imported.mapped == []
    assert f"{unmapped.name}: " in overlay_text(imported)


def test_value_that_the_models_refuse_has_a_place_in_the_overlay() -> None:
    with pytest.raises(InvalidSpecError, match=r"1 error in overlay\.yaml"):
        _spec(_import(Recipe.B, "PORT=99999\n"))


def test_recipe_is_told_by_its_variables() -> None:
    assert recipe_of({"WORKER", "PORT"}) is Recipe.A
    assert recipe_of({"HEAD_CX7_IP", "PORT"}) is Recipe.B
    with pytest.raises(UsageError, match="which recipe"):
        recipe_of({"PORT", "HF_TOKEN"})


def test_command_writes_an_overlay_that_validates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PORT", "HF_HOME", "HF_TOKEN", "IMAGE", "API_KEY"):
        monkeypatch.delenv(name, raising=False)
    env, overlay = tmp_path / ".env", tmp_path / "mine.yaml"
    env.write_text("HEAD_CX7_IP=10.0.22.1\nPORT=8889\nHF_TOKEN=hf-SENTINEL\n")
    result = CliRunner().invoke(cli, ["import", str(env), "--write", str(overlay)])
    assert result.exit_code == 0, result.output
    assert "not mapped: HF_TOKEN" in result.stderr
    assert "SENTINEL" not in result.output + overlay.read_text()
    spec = load([directory() / f"{Recipe.B.value}.yaml", overlay]).spec
    assert (spec.api.port, spec.nodes[0].fabric.address) == (8889, "10.0.22.1")
    again = CliRunner().invoke(cli, ["import", str(env), "--write", str(overlay)])
    assert again.exit_code != 0
