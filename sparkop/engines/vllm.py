"""vLLM: one `vllm serve` a rank. Order and spelling of the arguments are recipe A's."""

from __future__ import annotations

from collections.abc import Sequence

from sparkop.engines import common, derived, paths
from sparkop.engines.base import Manners, Metrics, NodeFacts
from sparkop.engines.template import EngineTemplate
from sparkop.engines.words import compact, flag, switch, without_none
from sparkop.hosts.base import Mount
from sparkop.spec.engines import VllmEngine
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

ALIASES = {
    "-n": "--nnodes",
    "-r": "--node-rank",
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-q": "--quantization",
    "-cc": "--compilation-config",
    "-ac": "--attention-config",
    "-sc": "--speculative-config",
    "-O": "--optimization-level",
}
"""Short spellings (vLLM 0.33)."""

MANNERS = Manners(
    metrics=Metrics(
        running="vllm:num_requests_running",
        waiting="vllm:num_requests_waiting",
        prompt_tokens="vllm:prompt_tokens_total",
        generation_tokens="vllm:generation_tokens_total",
        kv_usage="vllm:kv_cache_usage_perc",
        accepted_tokens="vllm:spec_decode_num_accepted_tokens_total",
        draft_tokens="vllm:spec_decode_num_draft_tokens_total",
    ),
    follower_stops=True,
    follower_listens=False,
    loading_lines=(
        r"Loading safetensors checkpoint shards: +\d+%.*",
        r"Loading weights took [\d.]+ seconds",
        r"Model loading took [\d.]+ GiB",
        r"Available KV cache memory: .*",
        r"GPU KV cache size: .*",
        r"Capturing CUDA graphs.*\d+%.*",
        r"Graph capturing finished in .*",
        r"Application startup complete.*",
    ),
    pool_line=r"KV cache size: ([\d,]+) tokens",
)


class Vllm(EngineTemplate):
    """Renders the ranks of a spec whose engine is vLLM."""

    manners = MANNERS
    aliases = ALIASES

    def own_arguments(self, spec: ClusterSpec, facts: Sequence[NodeFacts], rank: int) -> list[str]:
        """In the recipe's order; the spec's own arguments follow and win."""
        engine = _vllm(spec)
        nodes = len(spec.nodes)
        arguments = [
            common.model_argument(spec, facts[rank]),
            *flag("--served-model-name", *spec.api.served_names),
            *flag("--dtype", engine.dtype),
            *flag("--tensor-parallel-size", derived.tensor_parallel(spec)),
        ]
        if nodes > 1:
            arguments += [
                *flag("--nnodes", nodes),
                *flag("--master-addr", common.fabric_of(facts[0]).address),
                *flag("--master-port", engine.rendezvous_port),
            ]
        arguments += _memory_and_batches(spec, engine) + _model(spec, engine)
        if nodes > 1:
            arguments += flag("--node-rank", rank)
        return arguments + (_head(spec, engine) if rank == 0 else ["--headless"])

    def own_environment(self, spec: ClusterSpec, node: NodeFacts) -> dict[str, str]:
        """Offline, NCCL and the node's own address, RoCE collectives, EXL3."""
        engine = _vllm(spec)
        environment = common.offline_environment(engine.offline)
        if len(spec.nodes) == 1:
            environment |= common.single_node_environment(spec)
        else:
            environment |= common.nccl_environment(spec, node)
            environment["VLLM_HOST_IP"] = common.fabric_of(node).address
        return environment | _roce(engine) | _exl3(engine)

    def own_mounts(self, spec: ClusterSpec, node: NodeSpec, home: str) -> list[Mount]:
        """The rewritten EXL3 plan."""
        if _vllm(spec).exl3 is None:
            return []
        state = paths.expand(paths.state_directory(spec, node), home)
        return [Mount(f"{state}/{paths.PLANS}", paths.PLANS_TARGET, read_only=True)]


def _vllm(spec: ClusterSpec) -> VllmEngine:
    if not isinstance(spec.engine, VllmEngine):
        raise TypeError("the spec's engine is not vLLM")
    return spec.engine


def _memory_and_batches(spec: ClusterSpec, engine: VllmEngine) -> list[str]:
    cache = engine.kv_cache
    arguments = [
        *flag("--kv-cache-dtype", cache.dtype),
        *flag("--block-size", cache.block_size),
        *flag("--swa-block-size", cache.sliding_window_block_size),
        *flag("--kv-cache-memory-bytes", None if spec.memory.kv_cache is None else int(spec.memory.kv_cache)),
        *flag("--gpu-memory-utilization", spec.memory.gpu_fraction),
        *flag("--max-model-len", engine.context),
        *flag("--max-num-seqs", engine.max_sequences),
        *flag("--max-num-batched-tokens", engine.max_batched_tokens),
    ]
    if engine.graphs:
        sizes = derived.vllm_capture_sizes(engine)
        compilation: dict[str, object] = {"cudagraph_mode": engine.graphs.mode}
        if engine.graphs.custom_ops:
            compilation["custom_ops"] = engine.graphs.custom_ops
        compilation["cudagraph_capture_sizes"] = sizes
        arguments += flag("--max-cudagraph-capture-size", max(sizes))
        arguments += flag("--compilation-config", compact(compilation))
    return arguments + (["--enforce-eager"] if engine.eager else [])


def _model(spec: ClusterSpec, engine: VllmEngine) -> list[str]:
    kernels = engine.kernels
    return [
        *switch("--enable-chunked-prefill", engine.chunked_prefill),
        *switch("--async-scheduling", engine.async_scheduling),
        *switch("--enable-prefix-caching", engine.prefix_caching),
        *flag("--safetensors-load-strategy", engine.load_strategy),
        *flag("--engram-config", compact(engine.engram.model_dump()) if engine.engram else None),
        *flag("--attention-backend", kernels.attention),
        *flag("--linear-backend", kernels.linear),
        *flag("--moe-backend", kernels.moe),
        *flag("--speculative-config", _speculative(spec, engine)),
        *flag("--generation-config", engine.generation_config),
        *flag("--tokenizer-mode", engine.tokenizer_mode),
        *flag("--limit-mm-per-prompt", compact(engine.prompt_limits) if engine.prompt_limits else None),
    ]


def _speculative(spec: ClusterSpec, engine: VllmEngine) -> str | None:
    settings = engine.speculative
    if settings is None:
        return None
    same = settings.draft_tensor_parallel == "same"
    return compact(
        without_none(
            {
                "method": settings.method,
                "model": settings.model,
                "num_speculative_tokens": settings.draft_tokens,
                "draft_tensor_parallel_size": derived.tensor_parallel(spec)
                if same
                else settings.draft_tensor_parallel,
                "attention_backend": settings.attention,
                "draft_sample_method": settings.draft_sampling,
                "rejection_sample_method": settings.rejection_sampling,
                "enable_adaptive_verification": settings.adaptive_verification,
            }
        )
    )


def _head(spec: ClusterSpec, engine: VllmEngine) -> list[str]:
    parsers = engine.parsers
    defaults = engine.chat_template_defaults
    return [
        *flag("--host", spec.api.bind),
        *flag("--port", spec.api.port),
        *common.key_arguments(spec),
        *flag("--reasoning-parser", parsers.reasoning),
        *flag("--tool-call-parser", parsers.tools),
        *(["--enable-auto-tool-choice"] if parsers.tools and parsers.auto_tool_choice else []),
        *flag("--default-chat-template-kwargs", compact(defaults) if defaults else None),
        *(["--enable-prompt-tokens-details"] if engine.prompt_tokens_details else []),
        *(["--enable-force-include-usage"] if engine.force_include_usage else []),
    ]


def _roce(engine: VllmEngine) -> dict[str, str]:
    roce = engine.roce
    if roce is None:
        return {}
    values = without_none(
        {
            "VLLM_ENABLE_ROCE_ALLREDUCE": int(roce.enabled),
            "VLLM_ROCE_ALLREDUCE_MAX_SIZE": roce.all_reduce_max,
            "VLLM_ROCE_ALLGATHER_MAX_SIZE": roce.all_gather_max,
            "B12X_ROCE_TRAFFIC_CLASS": roce.traffic_class,
        }
    )
    return {name: str(value) for name, value in values.items()}


def _exl3(engine: VllmEngine) -> dict[str, str]:
    exl3 = engine.exl3
    if exl3 is None:
        return {}
    values = without_none(
        {
            "ST_EXL3_PLAN": f"{paths.PLANS_TARGET}/{exl3.plan}",
            "ST_EXL3_PREFILL": exl3.prefill,
            "ST_EXL3_PREFILL_MIN_ROWS": exl3.prefill_min_rows,
        }
    )
    return {name: str(value) for name, value in values.items()}
