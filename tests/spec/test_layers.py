"""Overlays and --set: what the merged spec is, where each value stands, and errors in each layer."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkop.errors import SpecError
from sparkop.spec.load import load
from tests.spec.samples import MINIMAL, loaded, only, problems, write


def test_overlay_merges_mappings_and_replaces_lists(tmp_path: Path) -> None:
    spec = loaded(
        tmp_path,
        "memory: {kvCache: 2 GiB, guard: {softFloor: 9 GiB}}\napi: {servedNames: [a, b]}\n",
        "memory: {guard: {actionFloor: 2 GiB}}\n",
    ).spec
    assert spec.memory.kv_cache == 2 << 30
    assert (spec.memory.guard.soft_floor, spec.memory.guard.action_floor) == (9 << 30, 2 << 30)
    assert spec.api.served_names == ("a", "b")
    assert spec.weights.path == "~/models/model"


def test_null_takes_a_value_away(tmp_path: Path) -> None:
    """As in a JSON Merge Patch; how else would an overlay turn path into hubCache?"""
    spec = loaded(tmp_path, "weights: {path: null, hubCache: ~/.cache/huggingface}\n").spec
    assert (spec.weights.path, spec.weights.hub_cache) == (None, "~/.cache/huggingface")


def test_nodes_merge_by_name(tmp_path: Path) -> None:
    """The order of the base is the rank order and stays; a new node comes last."""
    spec = loaded(
        tmp_path,
        "nodes:\n- {name: spark-3, ssh: c}\n- {name: spark-2, ssh: null, fabric: {address: 10.0.0.2}}\n",
    ).spec
    assert [node.name for node in spec.nodes] == ["spark-1", "spark-2", "spark-3"]
    assert spec.nodes[1].fabric.address == "10.0.0.2"
    assert spec.nodes[1].ssh is None
    assert spec.nodes[0].ssh == "local"


def test_nodes_can_be_replaced_by_two_overlays(tmp_path: Path) -> None:
    spec = loaded(tmp_path, "nodes: null\n", "nodes: [{name: alone}]\n").spec
    assert [node.name for node in spec.nodes] == ["alone"]


def test_an_overlay_of_comments_changes_nothing(tmp_path: Path) -> None:
    assert loaded(tmp_path, "# memory: {kvCache: 2 GiB}\n").spec == loaded(tmp_path).spec


def test_errors_name_the_layer_that_wrote_the_value(tmp_path: Path) -> None:
    found = problems(tmp_path, "memory: {kvCache: 1G}\n", "api:\n  port: x\n", sets=("ready.deadline=9",))
    assert [f"{Path(str(problem.place)).name}" for problem in found] == [
        "overlay-1.yaml:1:19",
        "overlay-2.yaml:2:9",
        "--set:1:16",
    ]


def test_errors_of_all_layers_come_at_once(tmp_path: Path) -> None:
    """A broken overlay must not hide the errors of the base."""
    found = problems(tmp_path, "memory: [\n", base=MINIMAL.replace("local", "a b"))
    assert [problem.place.source.order for problem in found] == [0, 1]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("memory.kvCache=9 GB", lambda spec: spec.memory.kv_cache == 9_000_000_000),
        ("memory.gpuFraction=0.8", lambda spec: spec.memory.gpu_fraction == 0.8),
        ("weights.revision=1234567", lambda spec: spec.weights.revision == "1234567"),
        ("weights.revision=1e9", lambda spec: spec.weights.revision == "1e9"),
        ("weights.revision=a=b", lambda spec: spec.weights.revision == "a=b"),
        ("memory.guard.enabled=false", lambda spec: spec.memory.guard.enabled is False),
        ("api.servedNames=[a, b]", lambda spec: spec.api.served_names == ("a", "b")),
        ("api.servedNames[0]=3.8", lambda spec: spec.api.served_names == ("3.8",)),
        ("nodes[spark-2].ssh=u@h:22", lambda spec: spec.nodes[1].ssh.port == 22),
        ("nodes[1].ssh=u@h", lambda spec: spec.nodes[1].ssh.user == "u"),
        ("nodes.1.ssh=local", lambda spec: spec.nodes[1].ssh == "local"),
        ("nodes[2].name=third", lambda spec: spec.nodes[2].name == "third"),
        ("nodes[0].fabric.hcas=[a, b]", lambda spec: spec.nodes[0].fabric.hcas == ("a", "b")),
        ("engine.environment.FOO=1", lambda spec: spec.engine.environment == {"FOO": "1"}),
        ("engine.environment.FOO=yes", lambda spec: spec.engine.environment == {"FOO": "yes"}),
        (
            "engine.container.caches[/root/.triton]=triton",
            lambda spec: spec.engine.container.caches == {"/root/.triton": "triton"},
        ),
        ("fabric={mtu: 9000, trusted: true}", lambda spec: spec.fabric.mtu == 9000),
    ],
)
def test_set_takes_its_type_from_the_model(tmp_path: Path, setting: str, value: object) -> None:
    assert callable(value)
    assert value(loaded(tmp_path, sets=(setting,)).spec)


def test_set_null_brings_the_default_back(tmp_path: Path) -> None:
    spec = loaded(tmp_path, "memory: {kvCache: 1 GiB}\n", sets=("memory.kvCache=null",)).spec
    assert spec.memory.kv_cache is None


@pytest.mark.parametrize(
    ("setting", "place", "said"),
    [
        ("memory.kvCash=1 GiB", "--set:1:8", "did you mean kvCache?"),
        ("memry.kvCache=1 GiB", "--set:1:1", "did you mean memory?"),
        ("memory.kvCache=1G", "--set:1:16", "two readings"),
        ("memory.kvCache", "--set:1:1", "is no path=value"),
        ("=1", "--set:1:1", "is no path=value"),
        ("nodes[spark-9].ssh=a", "--set:1:7", "did you mean spark-"),
        ("nodes[7].ssh=a", "--set:1:7", "which has 2 items"),
        ("memory[0]=1", "--set:1:8", "is no list"),
        ("nodes[].ssh=a", "--set:1:6", "is no path"),
        (".memory=1", "--set:1:1", "is no path"),
        ("api.port=80000", "--set:1:10", "at most 65535"),
        ("api.port=a: b: c", "--set:1:14", "second colon"),
        ("memory.guard.enabled=yes", "--set:1:22", "write true"),
        ("name=a\udcff", "--set:1:7", "is not UTF-8"),
    ],
)
def test_errors_in_set(tmp_path: Path, setting: str, place: str, said: str) -> None:
    problem = only(problems(tmp_path, sets=(setting,)))
    assert str(problem.place) == place
    assert said in str(problem)


def test_each_set_has_its_own_line(tmp_path: Path) -> None:
    found = problems(tmp_path, sets=("memory.gpuFraction=0.5", "api.port=x", "api.bin=y"))
    assert [str(problem.place) for problem in found] == ["--set:2:10", "--set:3:5"]


def test_origins(tmp_path: Path) -> None:
    spec = loaded(tmp_path, "memory: {kvCache: 1 GiB}\n", sets=("api.port=9000",))
    assert spec.origins["memory.kvCache"].source.name.endswith("overlay-1.yaml")
    assert str(spec.origins["api.port"]) == "--set:1:10"
    assert spec.origins["nodes[1].ssh"].line == 7


def test_files_that_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is no file"):
        load([tmp_path / "none.yaml"])
    with pytest.raises(SpecError, match="is a folder"):
        load([tmp_path])
    with pytest.raises(SpecError, match="there is no file"):
        load([write(tmp_path, MINIMAL), tmp_path / "overlay.yaml"])


def test_windows_files_are_read(tmp_path: Path) -> None:
    """A BOM and CRLF come from editors, and mean nothing."""
    plain = load([write(tmp_path, MINIMAL)]).spec
    assert load([write(tmp_path, b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode())]).spec == plain


def test_rules_refuse_with_a_place(tmp_path: Path) -> None:
    spec = loaded(tmp_path, "api: {key: none}\n")
    error = spec.refuse([(("api", "key"), "is open", "api.exposure"), (("api", "bind"), "is open", "x.y")])
    texts = [str(problem) for problem in error.problems]
    assert "overlay-1.yaml:1:12: api.key: is open [api.exposure]" in texts[1]
    assert "rules.override: [{id: api.exposure" in texts[1]
    assert ":15:1: api: is open [x.y]" in texts[0], "a value that is not written is shown at its section"


@pytest.mark.parametrize(
    ("overlay", "key", "line"),
    [
        ("engine: null\n", "engine", 1),
        ("nodes:\n- name: spark-2\nweights:\n  repository: null\n", "repository", 4),
    ],
)
def test_needed_key_that_an_overlay_takes_away(tmp_path: Path, overlay: str, key: str, line: int) -> None:
    """The base has it: an error that points there helps nobody."""
    told = only(problems(tmp_path, overlay))
    assert told.place.source.name.endswith("overlay-1.yaml")
    assert told.place.line == line
    assert f"needs the key {key}, which is taken away here" in told.message


def test_needed_key_that_set_takes_away(tmp_path: Path) -> None:
    told = only(problems(tmp_path, sets=("nodes=null",)))
    assert str(told).startswith("--set:1:1: the spec needs the key nodes, which is taken away here")


def test_choice_that_an_overlay_takes_away(tmp_path: Path) -> None:
    """The model's own rule points to the section; what took the value away is named."""
    told = only(problems(tmp_path, "image: {reference: null}\n"))
    assert told.suggestion is not None
    assert told.suggestion.endswith("overlay-1.yaml:1:9")
    assert told.suggestion.startswith("reference is taken away at")


def test_value_that_comes_back_is_not_missed(tmp_path: Path) -> None:
    spec = loaded(tmp_path, "nodes: null\n", "nodes: [{name: a}]\n").spec
    assert [node.name for node in spec.nodes] == ["a"]


def test_overlay_with_a_node_twice_or_none(tmp_path: Path) -> None:
    """Merging by name would hide both."""
    twice = only(problems(tmp_path, "nodes: [{name: spark-1}, {name: spark-1, ssh: x}]\n"))
    assert twice.message == "two nodes have the name spark-1"
    assert only(problems(tmp_path, "nodes: []\n")).message == "is empty"


@pytest.mark.parametrize("path", ["memory.gpuFraction", "memory", "api.port", "engine.extraArgs"])
def test_set_to_nothing_is_refused(tmp_path: Path, path: str) -> None:
    """--set memory.gpuFraction=$UNSET must not silently mean the default; null does."""
    told = only(problems(tmp_path, sets=(f"{path}=",)))
    assert told.message == "has no value: nothing follows the ="
    assert loaded(tmp_path, sets=("memory.gpuFraction=null",)).spec.memory.gpu_fraction is None


@pytest.mark.parametrize(("value", "column"), [("[a, b", 17), ('[a, "b', 21)])
def test_set_that_does_not_end_points_to_its_beginning(tmp_path: Path, value: str, column: int) -> None:
    told = problems(tmp_path, sets=(f"api.servedNames={value}", "api.port=1"))[0]
    assert "opened here and never closed" in told.message
    assert told.place.column == column


def test_last_line_without_its_end(tmp_path: Path) -> None:
    """A bracket is opened on the last line, and no line break follows."""
    told = only(problems(tmp_path, base=MINIMAL.replace("[model]\n", "[model")))
    assert "opened here and never closed" in told.message
    assert (told.place.line, told.place.column) == (16, 16)


def test_missing_files(tmp_path: Path) -> None:
    """What was meant, when a file there has nearly that name; nothing about new specs for an overlay."""
    path = write(tmp_path, MINIMAL)
    with pytest.raises(SpecError) as caught:
        load([tmp_path / "sepc.yaml"])
    assert caught.value.remedy == f"did you mean {path}?"
    with pytest.raises(SpecError) as caught:
        load([path, tmp_path / "production.yaml"])
    assert caught.value.remedy == "write that overlay, or leave --overlay out"
