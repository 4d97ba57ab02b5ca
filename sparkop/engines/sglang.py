"""SGLang: one `sglang.launch_server` a rank. Order and spelling of the arguments are recipe B's."""

from __future__ import annotations

from collections.abc import Sequence

from sparkop.engines import common, derived
from sparkop.engines.base import Manners, Metrics, NodeFacts
from sparkop.engines.template import EngineTemplate
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
        acceptance="sglang:spec_accept_rate",
    ),
    follower_stops=False,
    follower_listens=True,
    loading_lines=(
        r"Loading safetensors checkpoint shards: +\d+%.*",
        r"Load weight end\..*",
        r"KV Cache is allocated\..*",
        r"Capture cuda graph.*",
        r"max_total_num_tokens=.*",
        r"The server is fired up and ready to roll!",
    ),
    pool_line=r"max_total_num_tokens=(\d+)",
)


class Sglang(EngineTemplate):
    """Renders the ranks of a spec whose engine is SGLang."""

    manners = MANNERS
    aliases = ALIASES

    def own_arguments(self, spec: ClusterSpec, facts: Sequence[NodeFacts], rank: int) -> list[str]:
        """In the recipe's order; the spec's own arguments follow and win."""
        engine = _sglang(spec)
        return [
            *engine.launcher,
            *flag("--model-path", common.model_argument(spec, facts[rank])),
            *flag("--served-model-name", spec.api.served_names[0]),
            *(["--trust-remote-code"] if engine.trust_remote_code else []),
            *flag("--tp-size", derived.tensor_parallel(spec)),
            *_model(engine),
            *flag("--mem-fraction-static", spec.memory.gpu_fraction),
            *flag("--chunked-prefill-size", engine.chunked_prefill_size),
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
            *(common.key_arguments(spec) if rank == 0 else []),
            *_long_context(engine),
            *flag("--mamba-full-memory-ratio", engine.mamba.full_memory_ratio),
            *_decode_graphs(engine),
            *_behaviour(engine),
        ]

    def closing_arguments(self, spec: ClusterSpec, facts: Sequence[NodeFacts], rank: int) -> list[str]:
        """What makes several nodes one group; it comes last of all, as in the recipe."""
        nodes = len(spec.nodes)
        if nodes == 1:
            return []
        meeting = f"{common.fabric_of(facts[0]).address}:{spec.engine.rendezvous_port}"
        return [*flag("--nnodes", nodes), *flag("--node-rank", rank), *flag("--dist-init-addr", meeting)]

    def own_environment(self, spec: ClusterSpec, node: NodeFacts) -> dict[str, str]:
        """Offline, folders, architecture, NCCL and the node's own address."""
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


def _sglang(spec: ClusterSpec) -> SglangEngine:
    if not isinstance(spec.engine, SglangEngine):
        raise TypeError("the spec's engine is not SGLang")
    return spec.engine


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
