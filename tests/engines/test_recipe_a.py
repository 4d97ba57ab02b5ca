"""Recipe A to the letter, rank by rank.

Allowed differences from the recipe, each with its reason:

* the key: the recipe passes ``--api-key KEY``, which ``ps`` and ``docker inspect`` show; here the same place
  on the command line holds ``--config FILE``, and the file is one more read-only mount of the head;
* ``NCCL_IB_GID_INDEX``: 3 in the recipe; here what detection found, unset when devices disagree;
* per-node values (home, addresses, interface, RDMA devices): from facts, as the recipe detects them;
* the order of environment variables, which has no meaning.
"""

from __future__ import annotations

import shlex

import pytest

from sparkop.engines.base import FabricFacts, NodeFacts, RankContainer
from sparkop.engines.render import docker_command, render
from sparkop.hosts.base import ContainerOptions, Mount
from tests.engines.specs import RECIPE_A, facts_of, spec

HEAD = NodeFacts(
    "spark-1",
    "/home/ada",
    FabricFacts("10.10.10.13", "enp1s0f0np0", ("rocep1s0f0", "roceP2p1s0f0"), gid_index=3),
)
WORKER = NodeFacts(
    "spark-2",
    "/home/bob",
    FabricFacts("10.10.10.11", "enp1s0f1np1", ("rocep1s0f1", "roceP2p1s0f1"), gid_index=3),
)

BOTH_RANKS = shlex.split("""
/model
--served-model-name deepseek-v4.1-flash
--dtype bfloat16
--tensor-parallel-size 2
--nnodes 2
--master-addr 10.10.10.13
--master-port 29655
--kv-cache-dtype fp8
--block-size 256
--swa-block-size 128
--kv-cache-memory-bytes 2700000000
--gpu-memory-utilization 0.88
--max-model-len 262144
--max-num-seqs 2
--max-num-batched-tokens 2048
--max-cudagraph-capture-size 16
--compilation-config '{"cudagraph_mode":"FULL_DECODE_ONLY","custom_ops":["all"],"cudagraph_capture_sizes":[1,2,3,4,5,6,7,8,12,16]}'
--enable-chunked-prefill
--async-scheduling
--enable-prefix-caching
--safetensors-load-strategy lazy
--engram-config '{"cpu_offload":false,"table_memory":"disk","disk_resident_scales":false,"disk_prefetch_max_tokens":0,"projection_tp":false}'
--attention-backend B12X
--linear-backend b12x
--moe-backend b12x
--speculative-config '{"method":"dspark","num_speculative_tokens":7,"draft_tensor_parallel_size":2,"attention_backend":"B12X","draft_sample_method":"greedy","rejection_sample_method":"standard","enable_adaptive_verification":true}'
--generation-config vllm
--tokenizer-mode deepseek_v41
--limit-mm-per-prompt '{"image":1}'
""")  # noqa: E501

HEAD_ARGUMENTS = shlex.split("""
--node-rank 0 --host 0.0.0.0 --port 8000 --config /run/sparkop/engine.yaml
--reasoning-parser deepseek_v41 --tool-call-parser deepseek_v41 --enable-auto-tool-choice
--enable-prompt-tokens-details --enable-force-include-usage
""")
WORKER_ARGUMENTS = ["--node-rank", "1", "--headless"]

ENVIRONMENT = dict(
    line.split("=", 1)
    for line in """
CUDA_VISIBLE_DEVICES=0
CUTE_DSL_ARCH=sm_121a
HF_HUB_OFFLINE=1
TRANSFORMERS_OFFLINE=1
VLLM_WORKER_MULTIPROC_METHOD=spawn
VLLM_USE_V2_MODEL_RUNNER=1
VLLM_USE_BREAKABLE_CUDAGRAPH=0
VLLM_USE_FLASHINFER_SAMPLER=1
VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1
VLLM_ALLOW_LONG_MAX_MODEL_LEN=1
OMP_NUM_THREADS=16
MALLOC_ARENA_MAX=2
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
SAFETENSORS_FAST_GPU=1
VLLM_ENABLE_PCIE_ALLREDUCE=0
NCCL_IB_DISABLE=0
NCCL_NET_PLUGIN=none
NCCL_IB_GID_INDEX=3
NCCL_IB_MERGE_NICS=1
NCCL_DEBUG=WARN
VLLM_ENABLE_ROCE_ALLREDUCE=1
VLLM_ROCE_ALLREDUCE_MAX_SIZE=2MB
VLLM_ROCE_ALLGATHER_MAX_SIZE=16MB
B12X_ROCE_CACHE_DIR=/cache/b12x-roce
B12X_ROCE_TRAFFIC_CLASS=106
NCCL_IB_TC=106
B12X_COMPILE_CACHE_DIR=/cache/b12x
XDG_CACHE_HOME=/cache
ST_EXL3_PLAN=/plans/J268-ho-v31-K5n.json
ST_EXL3_PREFILL=st
ST_EXL3_PREFILL_MIN_ROWS=1
""".strip().splitlines()
)

OPTIONS = ContainerOptions(
    network="host",
    ipc="host",
    privileged=True,
    gpus=True,
    shm_bytes=32 * 1024**3,
    ulimits={"memlock": -1},
    restart="no",
)

EXPECTED = (
    RankContainer(
        rank=0,
        node="spark-1",
        container="dsv41-r0",
        image="ghcr.io/0xsero/deepseek-v4.1-flash-spark"
        "@sha256:5668e35e5ee021da4b9ce88a1964caf0e082e8ca01d81d1d64b6213a55c6add5",
        entrypoint=None,
        arguments=(*BOTH_RANKS, *HEAD_ARGUMENTS),
        environment={
            **ENVIRONMENT,
            "NCCL_IB_HCA": "rocep1s0f0,roceP2p1s0f0",
            "NCCL_SOCKET_IFNAME": "enp1s0f0np0",
            "GLOO_SOCKET_IFNAME": "enp1s0f0np0",
            "VLLM_HOST_IP": "10.10.10.13",
        },
        mounts=(
            Mount("/home/ada/models/DeepSeek-V4.1-Flash-Spark", "/model", read_only=True),
            Mount("/home/ada/.dsv41-two-sparks/plans", "/plans", read_only=True),
            Mount("/home/ada/.dsv41-two-sparks/cache", "/cache"),
            Mount("/home/ada/.dsv41-two-sparks/engine.yaml", "/run/sparkop/engine.yaml", read_only=True),
        ),
        options=OPTIONS,
    ),
    RankContainer(
        rank=1,
        node="spark-2",
        container="dsv41-r1",
        image="ghcr.io/0xsero/deepseek-v4.1-flash-spark"
        "@sha256:5668e35e5ee021da4b9ce88a1964caf0e082e8ca01d81d1d64b6213a55c6add5",
        entrypoint=None,
        arguments=(*BOTH_RANKS, *WORKER_ARGUMENTS),
        environment={
            **ENVIRONMENT,
            "NCCL_IB_HCA": "rocep1s0f1,roceP2p1s0f1",
            "NCCL_SOCKET_IFNAME": "enp1s0f1np1",
            "GLOO_SOCKET_IFNAME": "enp1s0f1np1",
            "VLLM_HOST_IP": "10.10.10.11",
        },
        mounts=(
            Mount("/home/bob/models/DeepSeek-V4.1-Flash-Spark", "/model", read_only=True),
            Mount("/home/bob/.dsv41-two-sparks/plans", "/plans", read_only=True),
            Mount("/home/bob/.dsv41-two-sparks/cache", "/cache"),
        ),
        options=OPTIONS,
    ),
)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    "field", ["node", "container", "image", "entrypoint", "arguments", "environment", "mounts", "options"]
)
def test_rank_is_the_recipes_container(rank: int, field: str) -> None:
    """A setting lost, added, misspelt or out of order would make another group than the proven one."""
    rendered = render(spec(RECIPE_A), [HEAD, WORKER]).ranks[rank]
    assert getattr(rendered, field) == getattr(EXPECTED[rank], field)


def test_nothing_of_the_recipe_needs_a_warning() -> None:
    assert render(spec(RECIPE_A), [HEAD, WORKER]).warnings == ()


def test_gid_index_is_left_unset_when_devices_disagree() -> None:
    """An empty text would count as 0 for NCCL, so the variable itself must be absent."""
    cluster = spec(RECIPE_A)
    rendering = render(cluster, facts_of(cluster, gid_index=None))
    for rank in rendering.ranks:
        assert "NCCL_IB_GID_INDEX" not in rank.environment
    assert [warning.split(":")[0] for warning in rendering.warnings] == ["spark-1", "spark-2"]


def test_head_extra_arguments_come_last_on_the_head_only() -> None:
    """EXTRA of the recipe: the last word wins, and the worker has no API flags."""
    cluster = spec(
        RECIPE_A, {"engine.headExtraArgs": ["--max-logprobs", "5"], "engine.extraArgs": ["--seed", "7"]}
    )
    head, worker = render(cluster, facts_of(cluster)).ranks
    assert head.arguments[-4:] == ("--seed", "7", "--max-logprobs", "5")
    assert worker.arguments[-3:] == ("--headless", "--seed", "7")


@pytest.mark.parametrize(
    ("field", "words", "told"),
    [
        ("headExtraArgs", ["--max_num_seqs=4"], "engine.headExtraArgs wins over the spec's own fields"),
        ("extraArgs", ["--max-num-seqs", "4"], "engine.extraArgs wins over the spec's own fields"),
        ("extraArgs", ["--seed", "1", "--seed", "2"], "the last one wins"),
    ],
)
def test_a_flag_given_twice_names_the_field_that_wins(field: str, words: list[str], told: str) -> None:
    """Who looks for the flag in the wrong field does not find it."""
    cluster = spec(RECIPE_A, {f"engine.{field}": words})
    (warning,) = render(cluster, facts_of(cluster)).warnings
    assert warning.endswith(f"is given twice: {told}")


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["-cc.cudagraph_mode=NONE"], "--compilation-config"),
        (["-cc", "{}"], "--compilation-config"),
        (["--compilation-config.mode", "3"], "--compilation-config"),
        (["-sc.num_speculative_tokens", "5"], "--speculative-config"),
        (["-sc.x=5"], "--speculative-config"),
        (["-tp=4"], "--tensor-parallel-size"),
    ],
)
def test_a_short_or_dotted_flag_that_a_field_gives_too_is_reported(words: list[str], flag: str) -> None:
    cluster = spec(RECIPE_A, {"engine.extraArgs": words})
    (warning,) = render(cluster, facts_of(cluster)).warnings
    assert warning.startswith(f"{flag} is given twice")


def test_worker_paths_may_differ() -> None:
    """WORKER_MODEL_DIR of the recipe, and the same for state and cache."""
    cluster = spec(RECIPE_A)
    worker = cluster.nodes[1].model_copy(
        update={
            "paths": cluster.nodes[1].paths.model_copy(
                update={"weights": "/data/dsv41", "cache": "~/kernels"}
            )
        }
    )
    cluster = cluster.model_copy(update={"nodes": (cluster.nodes[0], worker)})
    head, other = render(cluster, [HEAD, WORKER]).ranks
    assert head.mounts[0].source == "/home/ada/models/DeepSeek-V4.1-Flash-Spark"
    assert [mount.source for mount in other.mounts] == [
        "/data/dsv41",
        "/home/bob/.dsv41-two-sparks/plans",
        "/home/bob/kernels",
    ]


def test_command_line_is_one_that_a_shell_reads_back() -> None:
    """Quoting: JSON arguments and paths with spaces must survive a copy into a shell."""
    cluster = spec(RECIPE_A, {"weights.path": "~/my models/dsv41"})
    rank = render(cluster, facts_of(cluster)).ranks[0]
    words = shlex.split(docker_command(rank).replace("\\\n", " "))
    assert tuple(words[words.index(rank.image) + 1 :]) == rank.arguments
    assert "/home/spark/my models/dsv41:/model:ro" in words
    assert words[:5] == ["docker", "run", "--detach", "--name", "dsv41-r0"]
    for word in ("--privileged", "--gpus", "--ipc", "--shm-size", "32g", "memlock=-1"):
        assert word in words
