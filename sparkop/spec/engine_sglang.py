"""What SGLang is asked to do. Flags that have no field go to ``extraArgs``."""

from typing import Annotated, Literal

from pydantic import Field

from sparkop.spec.base import SpecModel, about
from sparkop.spec.engine_parts import EngineSettings, setting


class SglangLongContext(SpecModel):
    """YaRN. Used only while ``context`` is above the model's own; factor and overrides follow from it."""

    native: int = Field(ge=1, description="The model's own context, in tokens.")
    maximum: int | None = setting(
        None, "Longest context that the model bears with YaRN.", unit="tokens", ge=1
    )
    factor: float | None = setting(
        None,
        "How far the context is stretched.",
        otherwise="the smallest whole number whose multiple of native holds context",
        flag="--json-model-override-args rope_scaling.factor",
        gt=1,
    )
    max_prefill_tokens: int | None = setting(
        None,
        "Tokens of one prefill batch while the context is extended.",
        flag="--max-prefill-tokens",
        unit="tokens",
        ge=1,
    )


class SglangMamba(SpecModel):
    """State of the linear-attention layers."""

    full_memory_ratio: float | None = setting(
        None,
        "State's memory against the KV cache's. Caps real concurrency.",
        flag="--mamba-full-memory-ratio",
        recipe="B: MAMBA_FULL_MEMORY_RATIO",
        gt=0,
    )
    radix_cache_strategy: str | None = setting(
        None,
        "extra_buffer or extra_buffer_lazy with speculation.",
        flag="--mamba-radix-cache-strategy",
        recipe="B: MAMBA_RADIX_CACHE_STRATEGY",
    )
    track_interval: int | None = setting(
        None,
        "A multiple of the page size, at least the draft.",
        flag="--mamba-track-interval",
        recipe="B: MAMBA_TRACK_INTERVAL",
        unit="tokens",
        ge=1,
    )
    ssm_dtype: str | None = setting(None, "Type of the state.", flag="--mamba-ssm-dtype")


class SglangSpeculative(SpecModel):
    """Speculative decoding."""

    algorithm: str = setting("NEXTN", "Algorithm.", flag="--speculative-algorithm")
    steps: int = Field(
        ge=1,
        description="Draft steps.",
        json_schema_extra=about(flag="--speculative-num-steps", recipe="B: SPEC_STEPS"),
    )
    top_k: int = setting(
        1, "Branches of a step; QSA needs 1.", flag="--speculative-eagle-topk", recipe="B: SPEC_TOPK", ge=1
    )
    draft_tokens: int | None = setting(
        None,
        "Tokens verified a step.",
        otherwise="steps + 1",
        recipe="B: SPEC_DRAFT",
        flag="--speculative-num-draft-tokens",
        unit="tokens",
        ge=1,
    )

    @property
    def verified_tokens(self) -> int:
        """Tokens of one sequence that one step verifies."""
        return self.draft_tokens if self.draft_tokens is not None else self.steps + 1


class SglangGraphs(SpecModel):
    """CUDA graphs."""

    decode: bool = setting(
        True,
        "Graphs for decoding, on all ranks.",
        flag="--cuda-graph-backend-decode disabled",
        recipe="B: ENABLE_DECODE_GRAPHS",
    )
    prefill: bool = setting(False, "Graphs for prefill.", flag="--disable-prefill-cuda-graph (inverted)")
    decode_sizes: tuple[Annotated[int, Field(ge=1)], ...] | None = setting(
        None,
        "Numbers of sequences that have a graph.",
        otherwise="1 to 8, every 2 up to maxRequests, and that",
        flag="--cuda-graph-bs-decode",
        recipe="B: CUDA_GRAPH_BS",
        min_length=1,
    )


class SglangParsers(SpecModel):
    """How answers are taken apart; auto asks the model's configuration."""

    reasoning: str | None = setting(
        None, "Reasoning.", flag="--reasoning-parser", recipe="B: REASONING_PARSER"
    )
    tools: str | None = setting(None, "Tool calls.", flag="--tool-call-parser", recipe="B: TOOL_CALL_PARSER")


class SglangEngine(EngineSettings):
    """SGLang."""

    kind: Literal["sglang"] = Field(description="This engine: SGLang.")
    version: str | None = setting(
        None, "Version of SGLang that the image holds. Flags are spelled as 0.5.20 to 0.5.23 spell them."
    )
    launcher: tuple[str, ...] = setting(
        ("python3", "-m", "sglang.launch_server"), "Command of the container."
    )
    context: int | None = setting(
        None,
        "Longest prompt and answer together.",
        flag="--context-length",
        recipe="B: CONTEXT_LENGTH",
        unit="tokens",
        ge=1,
    )
    long_context: SglangLongContext | None = setting(None, "YaRN.", flag="--json-model-override-args")
    max_requests: int | None = setting(
        None, "Requests at a time.", flag="--max-running-requests", recipe="B: MAX_RUNNING_REQUESTS", ge=1
    )
    chunked_prefill_size: int | None = setting(
        None,
        "Tokens of one piece of a prompt.",
        flag="--chunked-prefill-size",
        recipe="B: CHUNKED_PREFILL_SIZE",
        unit="tokens",
        ge=1,
    )
    quantization: str | None = setting(None, "Quantization.", flag="--quantization")
    attention: str | None = setting(
        None, "Attention kernels.", flag="--attention-backend", recipe="B: ATTENTION_BACKEND"
    )
    page_size: int | None = setting(
        None, "Tokens of a page of the KV cache.", flag="--page-size", unit="tokens", ge=1
    )
    kv_cache_dtype: str | None = setting(None, "Type of the KV cache.", flag="--kv-cache-dtype")
    mamba: SglangMamba = setting(SglangMamba(), "State of the linear-attention layers.")
    speculative: SglangSpeculative | None = setting(None, "Speculative decoding.")
    graphs: SglangGraphs = setting(SglangGraphs(), "CUDA graphs.")
    parsers: SglangParsers = setting(SglangParsers(), "How answers are taken apart.")
    trust_remote_code: bool = setting(False, "Code of the checkpoint may run.", flag="--trust-remote-code")
    metrics: bool = setting(True, "Prometheus metrics; watch reads them.", flag="--enable-metrics")
    cache_report: bool = setting(False, "Usage tells cached tokens.", flag="--enable-cache-report")
    ple_offload: bool | None = setting(
        None,
        "N-gram table in pinned host memory.",
        otherwise="SGLang's own rule",
        flag="--ple-offload-embedding, --no-ple-offload-embedding",
        recipe="B: PLE_OFFLOAD",
    )
    auto_truncate: bool = setting(
        False,
        "Cuts over-long prompts silently instead of refusing them.",
        flag="--allow-auto-truncate",
        recipe="B: ALLOW_AUTO_TRUNCATE",
    )
    deterministic: bool = setting(False, "Slower, repeatable experts.", flag="--moe-runner-backend triton")
    thinking: bool | None = setting(
        None,
        "Whether the model thinks when a request does not say.",
        flag="--default-chat-template-kwargs enable_thinking",
    )
    sanitize_nan: bool = setting(False, "Replaces NaN in logits.", variable="SGLANG_SANITIZE_NAN_LOGITS")
    cuda_arch: str | None = setting(
        None,
        "CUDA architecture of compiled kernels, such as 12.1a.",
        variable="TORCH_CUDA_ARCH_LIST, FLASHINFER_CUDA_ARCH_LIST",
    )
