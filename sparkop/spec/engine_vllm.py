"""What vLLM is asked to do. Flags of the pinned image that have no field go to ``extraArgs``."""

from typing import Any, Literal

from pydantic import Field

from sparkop.spec.base import SpecModel, about
from sparkop.spec.engine_parts import EngineSettings, setting


class VllmKvCache(SpecModel):
    """The KV cache. Its size is ``memory.kvCache``."""

    dtype: str | None = setting(None, "Type of the entries, such as fp8.", flag="--kv-cache-dtype")
    block_size: int | None = setting(None, "Tokens of a block.", flag="--block-size", unit="tokens", ge=1)
    sliding_window_block_size: int | None = setting(
        None, "Tokens of a block of the sliding-window layers.", flag="--swa-block-size", unit="tokens", ge=1
    )


class VllmGraphs(SpecModel):
    """CUDA graphs. Capture sizes follow from sequences and draft tokens unless they are given."""

    mode: str = Field(
        description="NONE, PIECEWISE, FULL, FULL_DECODE_ONLY or FULL_AND_PIECEWISE.",
        json_schema_extra=about(flag="--compilation-config cudagraph_mode", recipe="A: GRAPH_MODE"),
    )
    custom_ops: tuple[str, ...] = setting((), "Custom operations.", flag="--compilation-config custom_ops")
    sizes: tuple[int, ...] | None = setting(
        None,
        "Batch sizes in tokens.",
        otherwise="1 to one sequence's tokens a step (draft tokens + 1), from there every 4 up to those of "
        "all sequences, and that: with 4 drafts and 3 sequences 1 to 5, 9, 13, 15",
        flag="--compilation-config cudagraph_capture_sizes, --max-cudagraph-capture-size",
        recipe="A: CAPS",
        min_length=1,
    )


class VllmEngram(SpecModel):
    """Where the Engram tables live (the recipe's image only)."""

    cpu_offload: bool = setting(False, "Tables in host memory.", flag="--engram-config cpu_offload")
    table_memory: str = setting(
        "disk", "disk keeps the tables in the checkpoint.", flag="--engram-config table_memory"
    )
    disk_resident_scales: bool = setting(
        False, "Scales stay in memory.", flag="--engram-config disk_resident_scales"
    )
    disk_prefetch_max_tokens: int = setting(
        0,
        "Rows are read ahead for at most so many tokens.",
        unit="tokens",
        flag="--engram-config disk_prefetch_max_tokens",
        ge=0,
    )
    projection_tp: bool = setting(False, "The projection is sharded.", flag="--engram-config projection_tp")


class VllmKernels(SpecModel):
    """Kernel families."""

    attention: str | None = setting(None, "Attention.", flag="--attention-backend")
    linear: str | None = setting(None, "Linear layers.", flag="--linear-backend")
    moe: str | None = setting(None, "Mixture of experts.", flag="--moe-backend")


class VllmSpeculative(SpecModel):
    """Speculative decoding; becomes --speculative-config."""

    method: str = Field(description="Such as dspark, mtp, eagle3, ngram.")
    draft_tokens: int = Field(
        ge=1,
        description="Tokens drafted a step.",
        json_schema_extra=about(flag="num_speculative_tokens", recipe="A: NSPEC"),
    )
    model: str | None = setting(None, "Draft model, where the method needs one.", flag="model")
    draft_tensor_parallel: int | Literal["same"] | None = setting(
        None, "Shards of the draft; `same` follows the model's.", flag="draft_tensor_parallel_size"
    )
    attention: str | None = setting(None, "Attention of the draft.", flag="attention_backend")
    draft_sampling: str | None = setting(None, "How drafts are sampled.", flag="draft_sample_method")
    rejection_sampling: str | None = setting(None, "How drafts are rejected.", flag="rejection_sample_method")
    adaptive_verification: bool | None = setting(
        None, "Verifies fewer drafts when they are seldom taken.", flag="enable_adaptive_verification"
    )


class VllmParsers(SpecModel):
    """How answers are taken apart. Head only."""

    reasoning: str | None = setting(None, "Reasoning.", flag="--reasoning-parser")
    tools: str | None = setting(None, "Tool calls.", flag="--tool-call-parser")
    auto_tool_choice: bool = setting(
        True, "The model may choose a tool by itself; needs `tools`.", flag="--enable-auto-tool-choice"
    )


class VllmExl3(SpecModel):
    """EXL3 routed experts (the recipe's image only)."""

    plan: str = Field(
        description="Allocation plan, a file of exl3/plan/ of the checkpoint. Its copy with rewritten bank "
        "paths is mounted at /plans.",
        pattern=r"^[^/]+$",
        json_schema_extra=about(variable="ST_EXL3_PLAN", recipe="A: PLAN_NAME"),
    )
    prefill: str | None = setting(None, "Prefill path.", variable="ST_EXL3_PREFILL")
    prefill_min_rows: int | None = setting(
        None, "Fewest rows for it.", variable="ST_EXL3_PREFILL_MIN_ROWS", unit="rows", ge=0
    )


class VllmRoce(SpecModel):
    """One-shot collectives over RoCE beside NCCL (the recipe's image only)."""

    enabled: bool = setting(True, "Used at all.", variable="VLLM_ENABLE_ROCE_ALLREDUCE")
    all_reduce_max: str | None = setting(
        None, "Largest all-reduce, as the image reads it (2MB).", variable="VLLM_ROCE_ALLREDUCE_MAX_SIZE"
    )
    all_gather_max: str | None = setting(
        None, "Largest all-gather, as the image reads it (16MB).", variable="VLLM_ROCE_ALLGATHER_MAX_SIZE"
    )
    traffic_class: int | None = setting(
        None, "RoCE traffic class.", variable="B12X_ROCE_TRAFFIC_CLASS", ge=0, le=255
    )


class VllmEngine(EngineSettings):
    """vLLM. The image's own entrypoint is expected to be `vllm serve`, unless container.entrypoint is set."""

    kind: Literal["vllm"] = Field(description="This engine: vLLM.")
    context: int | None = setting(
        None,
        "Longest prompt and answer together.",
        flag="--max-model-len",
        recipe="A: MAX_LEN",
        unit="tokens",
        ge=1,
    )
    model_context: int | None = setting(
        None,
        "Longest context that the model bears. More is refused (rule vllm.context), also where the image "
        "is told not to check it.",
        unit="tokens",
        otherwise="not checked by sparkop",
        ge=1,
    )
    max_sequences: int | None = setting(
        None, "Sequences at a time.", flag="--max-num-seqs", recipe="A: MAX_SEQS", ge=1
    )
    max_batched_tokens: int | None = setting(
        None, "Tokens of one step.", flag="--max-num-batched-tokens", recipe="A: BATCH", unit="tokens", ge=1
    )
    dtype: str | None = setting(None, "Type of activations.", flag="--dtype")
    kv_cache: VllmKvCache = setting(VllmKvCache(), "The KV cache.")
    graphs: VllmGraphs | None = setting(None, "CUDA graphs; left out: vLLM's own choice.")
    eager: bool = setting(False, "No graphs and no compilation.", flag="--enforce-eager")
    chunked_prefill: bool | None = setting(None, "Long prompts in pieces.", flag="--enable-chunked-prefill")
    async_scheduling: bool | None = setting(None, "Schedules a step ahead.", flag="--async-scheduling")
    prefix_caching: bool | None = setting(None, "Keeps prompts' beginnings.", flag="--enable-prefix-caching")
    load_strategy: str | None = setting(
        None, "How safetensors are read; lazy maps them.", flag="--safetensors-load-strategy"
    )
    engram: VllmEngram | None = setting(None, "Engram tables.", flag="--engram-config")
    kernels: VllmKernels = setting(VllmKernels(), "Kernel families.")
    speculative: VllmSpeculative | None = setting(None, "Speculative decoding.", flag="--speculative-config")
    generation_config: str | None = setting(
        None, "Where sampling defaults come from; vllm ignores the checkpoint's.", flag="--generation-config"
    )
    tokenizer_mode: str | None = setting(None, "Tokenizer.", flag="--tokenizer-mode")
    prompt_limits: dict[str, int] = setting(
        {}, "Items of a kind in one prompt, such as image: 1.", flag="--limit-mm-per-prompt"
    )
    exl3: VllmExl3 | None = setting(None, "EXL3 routed experts.")
    roce: VllmRoce | None = setting(None, "One-shot collectives over RoCE.")
    parsers: VllmParsers = setting(VllmParsers(), "How answers are taken apart.")
    prompt_tokens_details: bool = setting(
        False, "Usage tells cached tokens.", flag="--enable-prompt-tokens-details"
    )
    force_include_usage: bool = setting(
        False, "Every stream ends with its usage.", flag="--enable-force-include-usage"
    )
    chat_template_defaults: dict[str, Any] = setting(
        {},
        "Defaults of the chat template, such as enable_thinking: false.",
        flag="--default-chat-template-kwargs",
    )
