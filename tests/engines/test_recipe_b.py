"""Recipe B to the letter, rank by rank.

Allowed differences from the recipe, each with its reason:

* ``NCCL_IB_GID_INDEX``: 3 in the recipe; here what detection found, unset when devices disagree;
* ``SGLANG_SANITIZE_NAN_LOGITS=1``: what the recipe's users added after its release;
* folders of the Triton and FlashInfer caches on the node: below the state directory;
* the hub's revision is a commit, so that both nodes read the same snapshot;
* per-node values (home, addresses, interface, RDMA device): from facts, as the recipe's variables say;
* the order of environment variables, which has no meaning.
"""

from __future__ import annotations

import shlex

import pytest

from sparkop.engines.base import FabricFacts, NodeFacts, RankContainer
from sparkop.engines.render import render
from sparkop.errors import BlockedError
from sparkop.hosts.base import ContainerOptions, Mount
from tests.engines.specs import NCCL_LIBRARY, RECIPE_B, facts_of, spec

SNAPSHOT = (
    "/root/.cache/huggingface/hub/models--RadixArk--Qwen3.8-Flash-Next-NVFP4/snapshots/"
    "7b719225242aacd3dbd3f9407468c2ee9a9d2594"
)
HEAD = NodeFacts(
    "spark-1",
    "/home/mia",
    FabricFacts("10.0.22.1", "enp1s0f1np1", ("rocep1s0f1",), gid_index=3),
    present=frozenset({NCCL_LIBRARY}),
)
WORKER = NodeFacts(
    "spark-2",
    "/home/mia",
    FabricFacts("10.0.22.2", "enp1s0f0np0", ("rocep1s0f0",), gid_index=3),
    present=frozenset({NCCL_LIBRARY}),
)

COMMAND = shlex.split(f"""
python3 -m sglang.launch_server
--model-path {SNAPSHOT}
--served-model-name Qwen3.8-Flash-Next-NVFP4
--trust-remote-code
--tp-size 2
--quantization modelopt_fp4
--attention-backend flashinfer
--page-size 64
--mamba-ssm-dtype bfloat16
--mamba-radix-cache-strategy extra_buffer
--mamba-track-interval 64
--mem-fraction-static 0.82
--chunked-prefill-size 1024
--max-running-requests 16
--context-length 900000
--speculative-algorithm NEXTN
--speculative-num-steps 3
--speculative-eagle-topk 1
--speculative-num-draft-tokens 4
--reasoning-parser auto
--tool-call-parser auto
--enable-metrics
--enable-cache-report
--disable-prefill-cuda-graph
--host 0.0.0.0
--port 8888
--json-model-override-args
'{{"text_config":{{"rope_scaling":{{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":262144}},"max_position_embeddings":1048576}}}}'
--max-prefill-tokens 2048
--mamba-full-memory-ratio 0.3
--cuda-graph-bs-decode 1 2 3 4 5 6 7 8 10 12 14 16
""")

ENVIRONMENT = dict(
    line.split("=", 1)
    for line in """
NCCL_IB_DISABLE=0
NCCL_IB_ROCE_VERSION_NUM=2
NCCL_IB_GID_INDEX=3
NCCL_NET=IB
NCCL_NET_PLUGIN=none
NCCL_NVLS_ENABLE=0
NCCL_CUMEM_ENABLE=0
NCCL_CROSS_NIC=0
NCCL_IGNORE_CPU_AFFINITY=1
NCCL_DEBUG=WARN
TORCH_CUDA_ARCH_LIST=12.1a
FLASHINFER_CUDA_ARCH_LIST=12.1a
HF_HOME=/root/.cache/huggingface
HF_HUB_OFFLINE=1
TRANSFORMERS_OFFLINE=1
TRITON_CACHE_DIR=/root/.triton
SGLANG_SANITIZE_NAN_LOGITS=1
LD_PRELOAD=/nccl/libnccl.so.2.30.7
""".strip().splitlines()
)

OPTIONS = ContainerOptions(
    network="host",
    ipc="host",
    gpus=True,
    shm_bytes=32 * 1024**3,
    ulimits={"memlock": -1, "stack": 67108864},
    devices=("/dev/infiniband",),
    capabilities=("IPC_LOCK",),
    cpuset="5-9,15-19",
    restart="no",
)

MOUNTS = (
    Mount("/home/mia/.cache/huggingface", "/root/.cache/huggingface"),
    Mount("/home/mia/.sparkop/qwen38-flash-next/cache/triton", "/root/.triton"),
    Mount("/home/mia/.sparkop/qwen38-flash-next/cache/flashinfer", "/root/.cache/flashinfer"),
    Mount("/home/mia/nccl-2.30.7", "/nccl", read_only=True),
)


def _node_environment(address: str, interface: str, device: str) -> dict[str, str]:
    interfaces = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
    return {"SGLANG_HOST_IP": address, "NCCL_IB_HCA": device} | dict.fromkeys(interfaces, interface)


EXPECTED = tuple(
    RankContainer(
        rank=rank,
        node=node,
        container=name,
        image="qwen38-flashnext-dspark:local",
        entrypoint=None,
        arguments=(
            *COMMAND,
            "--nnodes",
            "2",
            "--node-rank",
            str(rank),
            "--dist-init-addr",
            "10.0.22.1:26400",
        ),
        environment=ENVIRONMENT | _node_environment(address, interface, device),
        mounts=MOUNTS,
        options=OPTIONS,
    )
    for rank, node, name, address, interface, device in (
        (0, "spark-1", "qwen38-flash-next-head", "10.0.22.1", "enp1s0f1np1", "rocep1s0f1"),
        (1, "spark-2", "qwen38-flash-next-worker", "10.0.22.2", "enp1s0f0np0", "rocep1s0f0"),
    )
)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    "field", ["node", "container", "image", "entrypoint", "arguments", "environment", "mounts", "options"]
)
def test_rank_is_the_recipes_container(rank: int, field: str) -> None:
    """A setting lost, added, misspelt or out of order would make another group than the proven one."""
    rendered = render(spec(RECIPE_B), [HEAD, WORKER]).ranks[rank]
    assert getattr(rendered, field) == getattr(EXPECTED[rank], field)


def test_extra_arguments_stand_before_the_group_and_after_all_else() -> None:
    """EXTRA_ARGS of the recipe win over its settings, but can't break the group."""
    cluster = spec(RECIPE_B, {"engine.extraArgs": ["--log-level", "debug"]})
    for rank, container in enumerate(render(cluster, facts_of(cluster)).ranks):
        words = container.arguments
        assert words[: len(COMMAND)] == tuple(COMMAND)
        assert words[len(COMMAND) : len(COMMAND) + 2] == ("--log-level", "debug")
        assert words[-4:] == ("--node-rank", str(rank), "--dist-init-addr", "10.0.22.1:26400")


def test_key_reaches_the_head_by_a_file() -> None:
    """A key is offered, never on the command line; the follower needs none."""
    cluster = spec(RECIPE_B, {"api.key": "generate"})
    rendering = render(cluster, facts_of(cluster))
    head, worker = rendering.ranks
    at = head.arguments.index("--config")
    assert head.arguments[at - 2 : at + 2] == ("--port", "8888", "--config", "/run/sparkop/engine.yaml")
    assert head.mounts[-1] == Mount(
        "/home/spark/.sparkop/qwen38-flash-next/engine.yaml", "/run/sparkop/engine.yaml", read_only=True
    )
    assert "--config" not in worker.arguments
    assert all(mount.target != "/run/sparkop/engine.yaml" for mount in worker.mounts)
    assert [(file.node, file.path, file.mode) for file in rendering.state_files] == [
        ("spark-1", "engine.yaml", 0o600)
    ]


def test_staged_nccl_is_used_by_all_ranks_or_by_none() -> None:
    """One rank with another NCCL build than its peer is a fault that shows only under load."""
    cluster = spec(RECIPE_B)
    rendering = render(cluster, [HEAD, NodeFacts("spark-2", "/home/mia", WORKER.fabric)])
    for rank in rendering.ranks:
        assert "LD_PRELOAD" not in rank.environment
        assert all(mount.target != "/nccl" for mount in rank.mounts)
    assert rendering.warnings == (
        "~/nccl-2.30.7/libnccl.so.2.30.7 is not on spark-2: every rank uses its image's own NCCL",
    )


def test_both_rails() -> None:
    """Two halves of one cable: a comma list, with rings across them."""
    cluster = spec(RECIPE_B, {"engine.nccl.devices": 2, "engine.nccl.crossNic": 1})
    fabric = FabricFacts("10.0.22.1", "enp1s0f1np1", ("rocep1s0f1", "roceP2p1s0f1"), 3)
    facts = [NodeFacts(node.name, "/home/mia", fabric) for node in cluster.nodes]
    environment = render(cluster, facts).ranks[0].environment
    assert environment["NCCL_IB_HCA"] == "rocep1s0f1,roceP2p1s0f1"
    assert environment["NCCL_CROSS_NIC"] == "1"


def test_native_context_has_no_override() -> None:
    """YaRN worsens short texts, so a context that the model bears by itself must not switch it on."""
    cluster = spec(RECIPE_B, {"engine.context": 262144})
    words = render(cluster, facts_of(cluster)).ranks[0].arguments
    assert "--json-model-override-args" not in words
    assert "--max-prefill-tokens" not in words


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("engine.pleOffload", True, ["--ple-offload-embedding"]),
        ("engine.pleOffload", False, ["--no-ple-offload-embedding"]),
        ("engine.autoTruncate", True, ["--allow-auto-truncate"]),
        ("engine.deterministic", True, ["--moe-runner-backend", "triton"]),
        ("engine.thinking", False, ["--default-chat-template-kwargs", '{"enable_thinking":false}']),
        ("engine.graphs.decode", False, ["--cuda-graph-backend-decode", "disabled"]),
    ],
)
def test_options_of_the_recipe(path: str, value: bool, words: list[str]) -> None:
    """Each of the recipe's switches has a field, and the field gives its flag on every rank."""
    plain = spec(RECIPE_B)
    changed = spec(RECIPE_B, {path: value})
    assert words[0] not in render(plain, facts_of(plain)).ranks[0].arguments
    for rank in render(changed, facts_of(changed)).ranks:
        at = rank.arguments.index(words[0])
        assert list(rank.arguments[at : at + len(words)]) == words


def test_branch_needs_the_commit_that_was_downloaded() -> None:
    """A snapshot folder is named by a commit; without one the rank would look for no folder at all."""
    cluster = spec(RECIPE_B, {"weights.revision": "main"})
    facts = facts_of(cluster)
    with pytest.raises(BlockedError, match="commit of RadixArk"):
        render(cluster, facts)
    known = [NodeFacts(f.name, f.home, f.fabric, revision="0" * 40) for f in facts]
    assert render(cluster, known).ranks[1].arguments[4].endswith("/snapshots/" + "0" * 40)
