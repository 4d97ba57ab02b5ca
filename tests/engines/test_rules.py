"""Rules: what is refused, with which words, and how it is set aside."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sparkop.engines.rules import Severity, all_rules, check, refusals
from sparkop.spec.load import LoadedSpec, load
from sparkop.spec.problems import InvalidSpecError
from sparkop.views.rules_page import rules_page
from tests.engines.specs import RECIPE_A, RECIPE_B, SPECS, facts_of, spec

REFUSED_B: list[tuple[str, dict[str, Any], str]] = [
    ("sglang.load-format-dummy", {"engine.extraArgs": ["--load-format", "dummy"]}, "150 GB"),
    ("sglang.load-format-dummy", {"engine.extraArgs": ["--load_format=dummy"]}, "150 GB"),
    ("sglang.load-format-dummy", {"engine.extraArgs": ["--load-f", "dummy"]}, "150 GB"),
    ("sglang.ple-on-gpu", {"engine.extraArgs": ["--no-ple"]}, "26 GB"),
    ("sglang.ple-on-gpu", {"engine.pleOffload": False}, "26 GB"),
    ("sglang.ple-on-gpu", {"engine.extraArgs": ["--no-ple-offload-embedding"]}, "26 GB"),
    ("sglang.chunk", {"engine.chunkedPrefillSize": 4096}, "4096"),
    ("sglang.chunk", {"engine.extraArgs": ["--chunked-prefill-size", "2048"]}, "2048"),
    (
        "sglang.expandable-segments",
        {"engine.environment.PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64,expandable_segments:True"},
        "expandable_segments",
    ),
    (
        "sglang.expandable-segments",
        {"engine.environment.PYTORCH_ALLOC_CONF": "expandable_segments:True"},
        "expandable_segments",
    ),
    (
        "sglang.override-by-argument",
        {"engine.extraArgs": ["--json-model-override-args", "{}"]},
        "without rope_scaling",
    ),
    ("engine.two-in-one", {"engine.extraArgs": ["--load-format dummy"]}, "--load-format and its value"),
    ("container.cpuset", {"engine.container.cpuset": "0,9-5"}, "9-5 is no range"),
    ("key.in-arguments", {"engine.extraArgs": ["--api-key sk-SENTINEL"]}, "--api-key"),
    ("sglang.top-k", {"engine.speculative.topK": 2}, "top-k is 2"),
    ("sglang.top-k", {"engine.extraArgs": ["--speculative-eagle-topk", "4"]}, "top-k is 4"),
    ("sglang.draft", {"engine.speculative.draftTokens": 3}, "3 draft tokens for 3 steps"),
    ("sglang.draft", {"engine.extraArgs": ["--speculative-num-steps", "2"]}, "4 draft tokens for 2 steps"),
    ("sglang.draft-limit", {"engine.speculative.steps": 4}, "5 draft tokens"),
    ("sglang.rows", {"engine.maxRequests": 33}, "132 rows"),
    ("sglang.track-interval", {"engine.mamba.trackInterval": 96}, "96"),
    ("sglang.track-interval", {"engine.extraArgs": ["--mamba-track-interval", "32"]}, "32"),
    ("sglang.mamba-strategy", {"engine.mamba.radixCacheStrategy": "no_buffer"}, "no_buffer"),
    ("sglang.graph-list", {"engine.graphs.decodeSizes": [1, 2, 4, 8]}, "8 of 16"),
    (
        "sglang.graph-list",
        {"engine.extraArgs": ["--cuda-graph-bs-decode", "1", "2", "--seed", "9"]},
        "2 of 16",
    ),
    ("sglang.context", {"engine.context": 1048577, "memory.gpuFraction": 0.84}, "1,048,577"),
    ("sglang.context", {"engine.longContext.factor": 2.0}, "524,288 of 900,000"),
    ("sglang.context-by-argument", {"engine.extraArgs": ["--context-length", "500000"]}, "--context-length"),
    ("sglang.one-name", {"api.servedNames": ["one", "two"]}, "2 served names"),
    ("engine.shards", {"engine.tensorParallel": 3}, "3 shards for 2 nodes"),
    ("key.in-arguments", {"engine.extraArgs": ["--api-key", "sk-SENTINEL"]}, "--api-key"),
    ("key.in-environment", {"engine.environment.HF_TOKEN": "hf-SENTINEL"}, "HF_TOKEN"),
]
BOTH: list[tuple[str, dict[str, Any], str]] = [
    (rule, {f"engine.{field}": words.split()}, f"{field} has {told}")
    for field in ("extraArgs", "headExtraArgs")
    for rule, words, told in (
        ("engine.config-file", "--config mine.yaml", "--config"),
        ("engine.config-file", "--config=mine.yaml", "--config"),
        ("engine.api-by-argument", "--port 9000", "--port, which is api.port"),
        ("engine.api-by-argument", "--por=9000", "--port, which is api.port"),
        ("engine.api-by-argument", "--seed 1 --host ::1", "--host, which is api.bind"),
        ("engine.api-by-argument", "--served_model_name x", "--served-model-name, which is api.servedNames"),
        ("engine.api-by-argument", "--ssl-keyfile k.pem", "--ssl-keyfile"),
        ("ports.same", "--grpc-port 22", "--grpc-port 22, which is SSH's on spark-1"),
        ("ports.same", "--grpc_port=22", "--grpc-port 22, which"),
    )
]
"""What would serve where nobody looks, or hides what is set."""
REFUSED_A: list[tuple[str, dict[str, Any], str]] = [
    ("vllm.group-by-argument", {"engine.extraArgs": ["--headless"]}, "--headless"),
    (
        "vllm.group-by-argument",
        {"engine.headExtraArgs": ["-r", "1"]},
        "--node-rank, which follows from nodes",
    ),
    ("vllm.group-by-argument", {"engine.extraArgs": ["--master-port=1"]}, "engine.rendezvousPort"),
    ("vllm.group-by-argument", {"engine.extraArgs": ["-n2"]}, "--nnodes"),
    ("vllm.graph-sizes", {"engine.graphs.sizes": [0, 16]}, "a graph for 0 tokens"),
    ("vllm.graph-sizes", {"engine.graphs.sizes": [-1, 16]}, "a graph for -1 tokens"),
    ("vllm.graph-sizes", {"engine.graphs.sizes": [16, 2049]}, "2049 tokens, of 2048 a step"),
    ("vllm.adaptive-method", {"engine.speculative.method": "mtp"}, "mtp"),
    ("vllm.adaptive-graphs", {"engine.graphs.mode": "PIECEWISE"}, "PIECEWISE"),
    ("vllm.context", {"engine.context": 1048577}, "1,048,577"),
    ("vllm.batch", {"engine.maxBatchedTokens": 1}, "1 tokens a step for 2 sequences"),
    ("vllm.chunks", {"engine.chunkedPrefill": False}, "262144"),
]
PORTS: list[tuple[str, dict[str, Any], str]] = [
    (
        "ports.same",
        {"api.port": 9000, "engine.rendezvousPort": 9000},
        "engine.rendezvousPort is 9000, which is api.port",
    ),
    ("ports.same", {"api.port": 22}, "api.port is 22, which is SSH's on spark-1"),
    ("ports.same", {"engine.rendezvousPort": 22}, "engine.rendezvousPort is 22, which is SSH's on spark-1"),
]
REFUSED = (
    [(recipe, *case) for recipe in (RECIPE_A, RECIPE_B) for case in PORTS]
    + [(RECIPE_B, *case) for case in (*REFUSED_B, *BOTH)]
    + [(RECIPE_A, *case) for case in (*REFUSED_A, *BOTH)]
)


@pytest.mark.parametrize("name", [RECIPE_A, RECIPE_B, "lab", "lab-standin"])
def test_specs_of_this_repository_are_accepted(name: str) -> None:
    """A rule that refuses the proven settings is wrong."""
    cluster = spec(name)
    assert refusals(check(cluster, facts_of(cluster))) == []


@pytest.mark.parametrize(("recipe", "rule", "changes", "words"), REFUSED)
def test_refused_with_id_reason_and_remedy(
    recipe: str, rule: str, changes: dict[str, Any], words: str
) -> None:
    """Each limit that froze a machine or broke its answers is caught, as a field and as an argument."""
    (finding,) = [each for each in check(spec(recipe, changes)) if each.refuses]
    assert finding.rule.id == rule
    assert words in finding.message
    assert finding.rule.reason in finding.message
    assert finding.rule.remedy in finding.message
    assert "SENTINEL" not in finding.message


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("sglang.load-format-dummy", {"engine.extraArgs": ["--load-format", "auto"]}),
        ("sglang.chunk", {"engine.context": 262144, "engine.chunkedPrefillSize": 4096}),
        ("sglang.rows", {"engine.maxRequests": 32}),
        (
            "sglang.expandable-segments",
            {"engine.environment.PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"},
        ),
        ("sglang.graph-list", {"engine.graphs.decodeSizes": [1, 16]}),
        ("sglang.context", {"engine.context": 1048576}),
        ("sglang.draft-limit", {"engine.speculative.steps": 2}),
    ],
)
def test_the_edge_is_accepted(rule: str, changes: dict[str, Any]) -> None:
    assert rule not in [finding.rule.id for finding in check(spec(RECIPE_B, changes))]


def test_recipe_a_may_use_expandable_segments() -> None:
    """Recipe A sets it on purpose; the ban is recipe B's."""
    assert not [each for each in check(spec(RECIPE_A)) if "expandable" in each.observed]


def test_a_port_that_another_program_of_the_head_has_is_pointed_to_where_it_is_written() -> None:
    """The other one may be a default, which stands nowhere."""
    for engine in (RECIPE_A, RECIPE_B):
        (written,) = refusals(check(spec(engine, {"api.port": 29501, "engine.rendezvousPort": None})))
        assert written[0] == ("api", "port")
        (written,) = refusals(check(spec(engine, {"api.port": None, "engine.rendezvousPort": 8000})))
        assert written[0] == ("engine", "rendezvousPort")


def test_ports_that_may_be_equal() -> None:
    """One node meets nobody; a follower of vLLM listens nowhere, one of SGLang does."""
    alone = spec(RECIPE_A, {"api.port": 29501, "engine.rendezvousPort": 29501}, nodes=1)
    assert "ports.same" not in [finding.rule.id for finding in check(alone)]
    nodes = [{"name": "spark1"}, {"name": "spark2", "ssh": "you@10.0.0.2:2222"}]
    assert refusals(check(spec(RECIPE_A, {"nodes": nodes, "api.port": 2222}))) == []
    ((path, message, _),) = refusals(check(spec(RECIPE_B, {"nodes": nodes, "api.port": 2222})))
    assert path == ("api", "port")
    assert "SSH's on spark2" in message


def test_open_api_is_a_warning() -> None:
    """Said, but not refused; silent for a key or for the loopback address."""
    (finding,) = check(spec(RECIPE_B))
    assert (finding.rule.id, finding.rule.severity) == ("api.exposure", Severity.WARNING)
    assert check(spec(RECIPE_B, {"api.key": "generate"})) == []
    assert check(spec(RECIPE_B, {"api.bind": "127.0.0.1"})) == []


@pytest.mark.parametrize(
    ("rule", "changes", "words"),
    [
        ("container.memlock", {"engine.container.ulimits": {}}, "Docker's default"),
        ("container.memlock", {"engine.container.ulimits": {"memlock": 65536}}, "65536"),
        ("container.shm", {"engine.container.ipc": "private", "engine.container.shm": None}, "64 MiB"),
    ],
)
def test_container_that_the_ranks_can_not_work_in(rule: str, changes: dict[str, Any], words: str) -> None:
    """Said before the start that would end with it, minutes later."""
    (finding,) = check(spec(RECIPE_A, changes))
    assert (finding.rule.id, finding.rule.severity) == (rule, Severity.WARNING)
    assert words in finding.observed
    assert not [each for each in check(spec(RECIPE_A, changes, nodes=1)) if each.rule.id == rule]


@pytest.mark.parametrize(
    ("rule", "changes", "words"),
    [
        ("vllm.graph-list", {"engine.graphs.sizes": [1, 8]}, "8 of 16 tokens"),
        ("vllm.graph-unused", {"engine.graphs.sizes": [16, 24, 2048]}, "24, 2048 tokens"),
        ("vllm.optimization-level", {"engine.extraArgs": ["-O3"]}, "extraArgs has --optimization-level (-O)"),
        ("vllm.optimization-level", {"engine.headExtraArgs": ["-O", "0"]}, "beside engine.graphs"),
        ("vllm.optimization-level", {"engine.extraArgs": ["--optimization-level=2"]}, "beside engine.graphs"),
    ],
)
def test_graphs_that_are_slow_or_set_twice_are_told(rule: str, changes: dict[str, Any], words: str) -> None:
    (finding,) = check(spec(RECIPE_A, changes))
    assert (finding.rule.id, finding.rule.severity) == (rule, Severity.WARNING)
    assert words in finding.observed


def test_the_graphs_of_the_recipe_and_a_level_without_graphs_are_no_matter() -> None:
    assert check(spec(RECIPE_A, {"engine.graphs.sizes": [1, 2, 4, 16]})) == []
    assert check(spec(RECIPE_A, {"engine.graphs": None, "engine.extraArgs": ["-O3"]})) == []


def test_cpus_that_a_node_has_not_are_refused_once_it_was_read() -> None:
    cluster = spec(RECIPE_B)
    facts = [
        dataclasses.replace(fact, cpu_count=count)
        for fact, count in zip(facts_of(cluster), (20, 4), strict=True)
    ]
    assert refusals(check(cluster)) == []
    ((path, message, rule),) = refusals(check(cluster, facts))
    assert (path, rule) == (("engine", "container", "cpuset"), "container.cpuset")
    assert "spark-2 has 0 to 3" in message


def test_override_sets_a_rule_aside_and_keeps_it_in_sight() -> None:
    reason = "measured on our machines with 20 GB to spare"
    changes = {
        "engine.chunkedPrefillSize": 2048,
        "rules.override": [{"id": "sglang.chunk", "reason": reason}],
    }
    findings = check(spec(RECIPE_B, changes))
    assert refusals(findings) == []
    (kept,) = [each for each in findings if each.rule.id == "sglang.chunk"]
    assert kept.override == reason


def test_override_of_no_rule_is_refused() -> None:
    """A misspelt override would look as if it protected somebody."""
    override = [{"id": "sglang.chunks", "reason": "measured on our machines"}]
    ((path, message, rule),) = refusals(check(spec(RECIPE_B, {"rules.override": override})))
    assert path == ("rules", "override", 0, "id")
    assert rule == "rules.unknown"
    assert "did you mean sglang.chunk?" in message


def test_secrets_can_not_be_overridden() -> None:
    changes = {
        "engine.extraArgs": ["--api-key", "sk-SENTINEL"],
        "rules.override": [{"id": "key.in-arguments", "reason": "only a test machine"}],
    }
    assert {rule for _, _, rule in refusals(check(spec(RECIPE_B, changes)))} == {
        "key.in-arguments",
        "rules.fixed",
    }


def test_ids_are_unique_and_every_rule_says_what_to_do() -> None:
    rules = all_rules()
    assert len({rule.id for rule in rules}) == len(rules)
    for rule in rules:
        assert all([rule.applies_to, rule.reason, rule.source, rule.remedy]), rule.id
        assert not rule.reason.endswith("."), rule.id


def _refusal(loaded: LoadedSpec) -> InvalidSpecError:
    return loaded.refuse(refusals(check(loaded.spec)))


def test_refusal_names_the_place_the_rule_and_the_way_out() -> None:
    """What `sparkop validate` prints for what recipe B forbids."""
    loaded = load([SPECS / f"{RECIPE_B}.yaml"], ['engine.extraArgs=["--load-format","dummy"]'])
    (problem,) = _refusal(loaded).problems
    text = str(problem)
    assert problem.rule == "sglang.load-format-dummy"
    for words in (
        "engine.extraArgs",
        "--load-format dummy",
        "150 GB",
        "load the real weights",
        "rules.override",
    ):
        assert words in text


def test_refusal_of_a_key_does_not_quote_it() -> None:
    """Messages quote the line they are about; the line with the key must not be among them."""
    loaded = load([SPECS / f"{RECIPE_B}.yaml"], ['engine.extraArgs=["--api-key","sk-SENTINEL"]'])
    error = _refusal(loaded)
    assert "SENTINEL" not in f"{error} {error.detail}"


def test_every_rule_is_on_the_page() -> None:
    """``python -m sparkop.views.rules_page > docs/reference/rules.md`` when this fails."""
    page = (SPECS.parent / "docs/reference/rules.md").read_text(encoding="utf-8")
    assert page == rules_page()
    assert [rule.id for rule in all_rules() if f"| `{rule.id}` |" not in page] == []
