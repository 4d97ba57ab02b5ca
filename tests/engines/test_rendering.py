"""What holds for every engine and every number of nodes (principle 10)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from sparkop.engines.render import as_json, docker_command, engine_of, render
from sparkop.errors import BlockedError, SpecError
from tests.engines.specs import RECIPE_A, RECIPE_B, facts_of, spec

BOTH = pytest.mark.parametrize("recipe", [RECIPE_A, RECIPE_B])
SENTINEL = "sk-SENTINEL-31337"


@BOTH
def test_one_node_is_no_group(recipe: str) -> None:
    """A single node needs no fabric, and multi-node flags would make it wait for peers."""
    names = {"engine.container.names": None} if recipe == RECIPE_B else {}
    cluster = spec(recipe, names, nodes=1)
    facts = [fact.__class__(fact.name, fact.home) for fact in facts_of(cluster)]
    (rank,) = render(cluster, facts).ranks
    for word in ("--nnodes", "--node-rank", "--master-addr", "--dist-init-addr", "--headless"):
        assert word not in rank.arguments
    for variable in ("VLLM_HOST_IP", "SGLANG_HOST_IP", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME"):
        assert variable not in rank.environment
    assert "1" in rank.arguments[rank.arguments.index("--served-model-name") :]


@BOTH
@pytest.mark.parametrize("nodes", [2, 3, 4, 8])
def test_every_rank_meets_at_the_head(recipe: str, nodes: int) -> None:
    """A rank with another number, size or meeting point never joins, and the others wait for ever."""
    names = {"engine.container.names": None} if recipe == RECIPE_B else {}
    cluster = spec(recipe, names, nodes=nodes)
    ranks = render(cluster, facts_of(cluster)).ranks
    assert [rank.rank for rank in ranks] == list(range(nodes))
    assert len({rank.container for rank in ranks}) == nodes
    for rank in ranks:
        words = rank.arguments
        assert words[words.index("--nnodes") + 1] == str(nodes)
        assert words[words.index("--node-rank") + 1] == str(rank.rank)
        size = "--tensor-parallel-size" if recipe == RECIPE_A else "--tp-size"
        assert words[words.index(size) + 1] == str(nodes)
        meeting = "--master-addr" if recipe == RECIPE_A else "--dist-init-addr"
        assert words[words.index(meeting) + 1].startswith("10.0.22.1")
        own = "VLLM_HOST_IP" if recipe == RECIPE_A else "SGLANG_HOST_IP"
        assert rank.environment[own] == f"10.0.22.{rank.rank + 1}"


@BOTH
def test_node_without_fabric_blocks(recipe: str) -> None:
    """Rendering on with an empty address would send the traffic over the management network."""
    cluster = spec(recipe)
    facts = facts_of(cluster)
    facts[1] = facts[1].__class__(facts[1].name, facts[1].home)
    with pytest.raises(BlockedError) as caught:
        render(cluster, facts)
    assert caught.value.node == "spark-2"


def test_facts_of_other_nodes_are_refused() -> None:
    cluster = spec(RECIPE_A)
    with pytest.raises(ValueError, match="order"):
        render(cluster, facts_of(cluster)[::-1])


@BOTH
@pytest.mark.parametrize("field", ["extraArgs", "headExtraArgs"])
@pytest.mark.parametrize(
    "words", [["--api-key", SENTINEL], [f"--api_key={SENTINEL}"], ["--admin-api-key", SENTINEL]]
)
def test_key_among_arguments_is_refused_and_not_repeated(recipe: str, field: str, words: list[str]) -> None:
    cluster = spec(recipe, {f"engine.{field}": words})
    with pytest.raises(SpecError) as caught:
        render(cluster, facts_of(cluster))
    assert f"engine.{field}" in caught.value.message
    assert caught.value.remedy is not None
    assert "api_key" in caught.value.remedy
    assert SENTINEL not in f"{caught.value.message} {caught.value.remedy} {caught.value.cause}"


@pytest.mark.parametrize("variable", ["VLLM_API_KEY", "HF_TOKEN"])
def test_secret_in_the_environment_is_refused_and_not_repeated(variable: str) -> None:
    cluster = spec(RECIPE_A, {f"engine.environment.{variable}": SENTINEL})
    with pytest.raises(SpecError, match=variable) as caught:
        render(cluster, facts_of(cluster))
    assert SENTINEL not in f"{caught.value.message} {caught.value.remedy}"


@BOTH
@settings(deadline=None)
@given(key=st.from_regex(r"[!-,.-~][!-~]{0,60}", fullmatch=True))
def test_key_file_is_yaml_that_gives_the_key_back(recipe: str, key: str) -> None:
    """A key that begins with a digit, or holds a colon or a hash, must not turn into something else."""
    content = engine_of(spec(recipe)).key_file(key)
    assert YAML(typ="safe").load(content.decode()) == {"api-key": key}


@pytest.mark.parametrize("key", ["-begins-like-a-flag", "two words", "", "naïve", "line\nbreak"])
def test_key_that_an_engine_would_misread_is_refused_and_not_repeated(key: str) -> None:
    """Both engines turn the file into arguments: a leading dash would be a flag, a blank a second value."""
    with pytest.raises(BlockedError) as caught:
        engine_of(spec(RECIPE_A)).key_file(key)
    assert not key or key not in str(caught.value.message)


@BOTH
def test_environment_of_the_spec_wins(recipe: str) -> None:
    cluster = spec(recipe, {"engine.environment.NCCL_DEBUG": "INFO", "engine.environment.HF_HUB_OFFLINE": 0})
    for rank in render(cluster, facts_of(cluster)).ranks:
        assert rank.environment["NCCL_DEBUG"] == "INFO"
        assert rank.environment["HF_HUB_OFFLINE"] == "0"


@pytest.mark.parametrize("name", ["VLLM_HOST_IP", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA"])
def test_a_nodes_own_value_given_to_all_ranks_is_told(name: str) -> None:
    """One address or interface for every rank makes ranks call themselves, and look like a dead fabric."""
    cluster = spec(RECIPE_A)
    facts = facts_of(cluster)
    other = render(cluster, facts).ranks[0].environment[name] + "x"
    warnings = render(spec(RECIPE_A, {f"engine.environment.{name}": other}), facts).warnings
    assert [f"engine.environment gives {name}={other} to every rank, but {n.name} has" for n in facts] == [
        w.split(" has ")[0] + " has" for w in warnings
    ]
    assert not render(spec(RECIPE_A, {"engine.environment.NCCL_DEBUG": "INFO"}), facts).warnings


def test_flag_given_twice_is_reported_and_kept_last() -> None:
    cluster = spec(RECIPE_A, {"engine.extraArgs": ["--max-num-seqs", "4", "--unknown-flag"]})
    rendering = render(cluster, facts_of(cluster))
    assert [warning.split(" is given twice")[0] for warning in rendering.warnings] == ["--max-num-seqs"]
    for rank in rendering.ranks:
        assert rank.arguments[-3:] == ("--max-num-seqs", "4", "--unknown-flag")


def test_json_flag_given_twice_is_said_to_replace_the_whole() -> None:
    """vLLM takes --speculative-config.x as a new object, which silently drops method and the rest."""
    cluster = spec(RECIPE_A, {"engine.extraArgs": ["--speculative-config.num_speculative_tokens", "3"]})
    (warning,) = render(cluster, facts_of(cluster)).warnings
    assert warning.startswith("--speculative-config is given twice")
    assert "replaces the whole" in warning


def test_flag_that_sparkop_sets_afterwards_is_said_to_have_no_effect() -> None:
    cluster = spec(RECIPE_B, {"engine.extraArgs": ["--nnodes", "4"]})
    (warning,) = render(cluster, facts_of(cluster)).warnings
    assert warning.startswith("--nnodes")
    assert "no effect" in warning


@pytest.mark.parametrize("names", [["only-one"], ["same", "same"]])
def test_every_rank_needs_its_own_name(names: list[str]) -> None:
    """Two ranks on one node under one name would replace each other."""
    cluster = spec(RECIPE_B, {"engine.container.names": names})
    with pytest.raises(SpecError, match=r"container\.names"):
        render(cluster, facts_of(cluster))


def test_truth_value_in_the_environment_is_refused() -> None:
    """YAML's `yes` or `true` would reach the program as True, which most programs read as neither."""
    with pytest.raises(ValueError, match="in quotes"):
        spec(RECIPE_A, {"engine.environment.VLLM_USE_V2_MODEL_RUNNER": True})


def test_json_has_the_agreed_fields() -> None:
    """Programs read `render -o json`: a renamed field breaks them."""
    cluster = spec(RECIPE_A)
    document = json.loads(json.dumps(as_json(render(cluster, facts_of(cluster)))))
    rank = document["ranks"][0]
    assert sorted(rank) == sorted(
        ["rank", "node", "container", "image", "entrypoint", "arguments", "environment", "mounts", "options"]
    )
    assert rank["entrypoint"] is None
    assert rank["mounts"][0] == {
        "source": "/home/spark/models/DeepSeek-V4.1-Flash-Spark",
        "target": "/model",
        "readOnly": True,
    }
    assert rank["options"]["privileged"] is True
    assert rank["options"]["shmBytes"] == 32 * 1024**3
    assert document["stateFiles"] == [{"node": "spark-1", "path": "engine.yaml", "mode": "0600"}]


def test_entrypoint_is_the_images_own_unless_it_is_set() -> None:
    cluster = spec(RECIPE_A, {"engine.container.entrypoint": ["/opt/vllm", "serve"]})
    rank = render(cluster, facts_of(cluster)).ranks[0]
    assert rank.entrypoint == ("/opt/vllm", "serve")
    command = docker_command(rank)
    assert "--entrypoint /opt/vllm" in command
    assert f"{rank.image} serve /model" in command


@pytest.mark.parametrize("name", ["lab", "lab-standin"])
def test_lab_specs_ask_for_nothing_that_a_lab_has_not(name: str) -> None:
    """No GPU, no privileges, no device: a lab host has none to give."""
    cluster = spec(name)
    for rank in render(cluster, facts_of(cluster)).ranks:
        assert not rank.options.gpus
        assert not rank.options.privileged
        assert rank.options.devices == ()
        assert rank.options.cpuset is None
