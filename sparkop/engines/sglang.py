"""SGLang: one `sglang.launch_server` a rank. Order and spelling of the arguments are recipe B's."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sparkop.engines import common, derived, paths
from sparkop.engines.base import Manners, Metrics, NodeFacts, RankContainer
from sparkop.engines.words import compact, flag, switch
from sparkop.spec.engines import SglangEngine
from sparkop.spec.models import ClusterSpec

ALIASES = {
    "--model": "--model-path",
    "--tp": "--tp-size",
    "--tensor-parallel-size": "--tp-size",
    "--nccl-init-addr": "--dist-init-addr",
    "--cuda-graph-bs": "--cuda-graph-bs-decode",
}
"""Other spellings (SGLang 0.5.23)."""

TRITON_TARGET = "/root/.triton"

MANNERS = Manners(
    metrics=Metrics(
        running="sglang:num_running_reqs",
        waiting="sglang:num_queue_reqs",
        prompt_tokens="sglang:prompt_tokens_total",
        generation_tokens="sglang:generation_tokens_total",
        kv_usage="sglang:token_usage",
        pool_tokens="sglang:max_total_num_tokens",
    ),
    health_path="/health",
    ready_path="/v1/models",
    follower_stops=False,
    follower_health_lies=True,
    loading_lines=(
        r"Loading safetensors checkpoint shards: +\d+%.*",
        r"Load weight end\..*",
        r"KV Cache is allocated\..*",
        r"Capture cuda graph.*",
        r"max_total_num_tokens=.*",
        r"The server is fired up and ready to roll!",
    ),
)


class Sglang:
    """Renders the ranks of a spec whose engine is SGLang."""

    manners = MANNERS

    def ranks(self, spec: ClusterSpec, facts: Sequence[NodeFacts]) -> tuple[RankContainer, ...]:
        """See Engine.ranks."""
        names = common.container_names(spec)
        preloads = common.preloads(spec.engine.nccl, facts)
        return tuple(self._rank(spec, facts, rank, names[rank], preloads) for rank in range(len(spec.nodes)))

    def optional_files(self, spec: ClusterSpec) -> tuple[str, ...]:
        """See Engine.optional_files."""
        path = common.preload_file(spec.engine.nccl)
        return (path,) if path else ()

    def key_file(self, key: str) -> bytes:
        """YAML that SGLang merges before its command line (--config). JSON's quoting is valid YAML."""
        return f"api-key: {json.dumps(key)}\n".encode()

    def stop_order(self, ranks: Sequence[RankContainer]) -> tuple[RankContainer, ...]:
        """Head first: only its shutdown request ends a follower, which ignores SIGTERM."""
        return tuple(sorted(ranks, key=lambda rank: rank.rank))

    def _rank(
        self, spec: ClusterSpec, facts: Sequence[NodeFacts], rank: int, name: str, preloads: bool
    ) -> RankContainer:
        engine = _sglang(spec)
        node, fact = spec.nodes[rank], facts[rank]
        preload_mounts, preload_environment = common.preload(engine.nccl, fact.home) if preloads else ([], {})
        mounts = [common.weights_mount(spec, node, fact.home)]
        mounts += common.cache_mounts(spec, node, fact.home) + preload_mounts
        mounts += common.extra_mounts(engine.container, fact.home)
        if rank == 0 and spec.api.key != "none":
            mounts.append(common.key_mount(spec, node, fact.home))
        return RankContainer(
            rank=rank,
            node=node.name,
            container=name,
            image=common.image_reference(spec),
            entrypoint=engine.container.entrypoint,
            arguments=(
                *own_arguments(spec, facts, rank),
                *extra_arguments(engine, rank),
                *group_arguments(spec, facts, rank),
            ),
            environment={**_environment(spec, fact), **preload_environment, **engine.environment},
            mounts=tuple(mounts),
            options=common.options(engine.container),
        )


def _sglang(spec: ClusterSpec) -> SglangEngine:
    if not isinstance(spec.engine, SglangEngine):
        raise TypeError("the spec's engine is not SGLang")
    return spec.engine


def extra_arguments(engine: SglangEngine, rank: int) -> list[str]:
    """The spec's own arguments of one rank. After the recipe's own, so they win; before the group's."""
    return [*engine.extra_args, *(engine.head_extra_args if rank == 0 else ())]


def own_arguments(spec: ClusterSpec, facts: Sequence[NodeFacts], rank: int) -> list[str]:
    """What sparkop itself puts on a rank's command line before the extra arguments, in the recipe's order."""
    engine = _sglang(spec)
    key_file = rank == 0 and spec.api.key != "none"
    return [
        *engine.launcher,
        *flag("--model-path", common.model_argument(spec, facts[rank])),
        *flag("--served-model-name", spec.api.served_names[0]),
        *(["--trust-remote-code"] if engine.trust_remote_code else []),
        *flag("--tp-size", derived.tensor_parallel(spec)),
        *_model(engine),
        *flag("--mem-fraction-static", spec.memory.gpu_fraction),
        *flag("--chunked-prefill-size", engine.chunked_prefill),
        *flag("--max-running-requests", engine.max_requests),
        *flag("--context-length", engine.context),
        *_speculative(engine),
        *flag("--reasoning-parser", engine.parsers.reasoning),
        *flag("--tool-call-parser", engine.parsers.tools),
        *(["--enable-metrics"] if engine.metrics else []),
        *(["--enable-cache-report"] if engine.cache_report else []),
        *([] if engine.graphs.prefill else ["--disable-prefill-cuda-graph"]),
        *flag("--host", spec.api.bind),
        *flag("--port", spec.api.port),
        *flag("--config", paths.ENGINE_FILE_TARGET if key_file else None),
        *_long_context(engine),
        *flag("--mamba-full-memory-ratio", engine.mamba.full_memory_ratio),
        *_decode_graphs(engine),
        *_behaviour(engine),
    ]


def group_arguments(spec: ClusterSpec, facts: Sequence[NodeFacts], rank: int) -> list[str]:
    """What makes several nodes one group; it comes last of all, as in the recipe."""
    nodes = len(spec.nodes)
    if nodes == 1:
        return []
    meeting = f"{common.fabric_of(facts[0]).address}:{spec.engine.rendezvous_port}"
    return [*flag("--nnodes", nodes), *flag("--node-rank", rank), *flag("--dist-init-addr", meeting)]


def _model(engine: SglangEngine) -> list[str]:
    mamba = engine.mamba
    return [
        *flag("--quantization", engine.quantization),
        *flag("--kv-cache-dtype", engine.kv_cache_dtype),
        *flag("--attention-backend", engine.attention),
        *flag("--page-size", engine.page_size),
        *flag("--mamba-ssm-dtype", mamba.ssm_dtype),
        *flag("--mamba-radix-cache-strategy", mamba.radix_cache_strategy),
        *flag("--mamba-track-interval", mamba.track_interval),
    ]


def _speculative(engine: SglangEngine) -> list[str]:
    settings = engine.speculative
    if settings is None:
        return []
    return [
        *flag("--speculative-algorithm", settings.algorithm),
        *flag("--speculative-num-steps", settings.steps),
        *flag("--speculative-eagle-topk", settings.top_k),
        *flag("--speculative-num-draft-tokens", settings.verified_tokens),
    ]


def _long_context(engine: SglangEngine) -> list[str]:
    override = derived.yarn(engine)
    if override is None or engine.long_context is None:
        return []
    return [
        *flag("--json-model-override-args", compact(override)),
        *flag("--max-prefill-tokens", engine.long_context.max_prefill_tokens),
    ]


def _decode_graphs(engine: SglangEngine) -> list[str]:
    if not engine.graphs.decode:
        return ["--cuda-graph-backend-decode", "disabled"]
    sizes = derived.sglang_decode_sizes(engine)
    return flag("--cuda-graph-bs-decode", *sizes) if sizes else []


def _behaviour(engine: SglangEngine) -> list[str]:
    thinking = None if engine.thinking is None else compact({"enable_thinking": engine.thinking})
    return [
        *switch("--ple-offload-embedding", engine.ple_offload),
        *(["--allow-auto-truncate"] if engine.auto_truncate else []),
        *flag("--moe-runner-backend", "triton" if engine.deterministic else None),
        *flag("--default-chat-template-kwargs", thinking),
    ]


def _environment(spec: ClusterSpec, node: NodeFacts) -> dict[str, str]:
    engine = _sglang(spec)
    environment = common.offline_environment(engine.offline)
    if spec.weights.hub_cache:
        environment["HF_HOME"] = common.weights_target(spec)
    if TRITON_TARGET in engine.container.caches:
        environment["TRITON_CACHE_DIR"] = TRITON_TARGET
    if engine.cuda_arch:
        environment |= {
            "TORCH_CUDA_ARCH_LIST": engine.cuda_arch,
            "FLASHINFER_CUDA_ARCH_LIST": engine.cuda_arch,
        }
    if engine.sanitize_nan:
        environment["SGLANG_SANITIZE_NAN_LOGITS"] = "1"
    if len(spec.nodes) == 1:
        return environment | common.single_node_environment(spec)
    fabric = common.fabric_of(node)
    return (
        environment
        | common.nccl_environment(spec, node)
        | {
            "SGLANG_HOST_IP": fabric.address,
            "TP_SOCKET_IFNAME": fabric.interface,
        }
    )
