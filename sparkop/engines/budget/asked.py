"""What the engine will be asked for: the spec's fields, or what extra arguments make of them."""

from __future__ import annotations

import math
import re

from sparkop.engines import common, derived, sglang, vllm
from sparkop.engines.words import values_of
from sparkop.records import dataclass
from sparkop.spec.engines import SglangEngine, VllmEngine
from sparkop.spec.models import ClusterSpec

Path = tuple[str | int, ...]
EXTRA: Path = ("engine", "extraArgs")
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kmgtKMGT])")
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True)
class Asked:
    """The settings that memory depends on, in one set of words for both engines. None: the engine's own."""

    engine: str
    shards: int
    context: int | None
    requests: int | None
    chunk: int | None
    """Prompt tokens of one step; 0: whole prompts (SGLang's --chunked-prefill-size -1)."""
    fraction: float | None
    kv_bytes: int | None
    kv_tokens: int | None
    kv_dtype: str | None
    block: int | None
    """Tokens of a block or page."""
    window_block: int | None
    draft: int
    """Tokens of one request in one step: drafts and one more; 1 without speculation."""
    ratio: float | None
    """SGLang: state's memory against the KV cache's."""
    slots: int | None
    state_dtype: str | None
    buffered: bool
    """SGLang: the state has extra buffers (radix cache strategy)."""
    tables_on_disk: bool
    exl3: bool
    gpu: bool
    paths: dict[str, Path]
    """Where each of them stands in the spec."""
    context_follows: bool = False
    """vLLM takes as long a context as its cache holds, at most the model's; ``context`` is None."""


def asked(spec: ClusterSpec) -> Asked:
    """The settings of a spec. An extra argument wins, as it does in the engine."""
    if isinstance(spec.engine, VllmEngine):
        return _vllm(spec, spec.engine)
    return _sglang(spec, spec.engine)


class _Reader:
    """Looks for flags among the extra arguments, and remembers where a value came from."""

    def __init__(self, spec: ClusterSpec, aliases: dict[str, str]) -> None:
        self.words = common.extra_arguments(spec, rank=0)
        self.aliases = aliases
        self.paths: dict[str, Path] = {}

    def text(self, name: str, flag: str, field: str | None, *path: str) -> str | None:
        given = values_of(flag, self.words, self.aliases)
        self.paths[name] = EXTRA if given else path
        return given[-1] if given else field

    def number(self, name: str, flag: str, field: float | None, *path: str) -> float | None:
        """A number that no engine takes counts as not given: the engine ends there, and takes no memory."""
        given = values_of(flag, self.words, self.aliases)
        value = _amount(given[-1]) if given else None
        self.paths[name] = path if value is None else EXTRA
        return field if value is None else value

    def whole(self, name: str, flag: str, field: int | None, *path: str) -> int | None:
        value = self.number(name, flag, field, *path)
        return None if value is None else int(value)


def _amount(text: str) -> float | None:
    """A number of the command line, also as vLLM takes it: 25g is 25e9, 25G is 25 x 2**30 (vLLM 0.33
    engine/arg_utils.py human_readable_int). None for what is no amount."""
    match = _AMOUNT.fullmatch(text)
    if match:
        return float(match[1]) * (_DECIMAL | _BINARY)[match[2]]
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _vllm(spec: ClusterSpec, engine: VllmEngine) -> Asked:
    read = _Reader(spec, vllm.ALIASES)
    memory, cache = spec.memory, engine.kv_cache
    context, follows = _vllm_context(read, engine)
    return Asked(
        engine="vllm",
        shards=read.whole(
            "shards", "--tensor-parallel-size", derived.tensor_parallel(spec), "engine", "tensorParallel"
        )
        or 1,
        context=context,
        requests=read.whole("requests", "--max-num-seqs", engine.max_sequences, "engine", "maxSequences"),
        chunk=read.whole(
            "chunk", "--max-num-batched-tokens", engine.max_batched_tokens, "engine", "maxBatchedTokens"
        ),
        fraction=read.number(
            "fraction", "--gpu-memory-utilization", memory.gpu_fraction, "memory", "gpuFraction"
        ),
        kv_bytes=read.whole("kv", "--kv-cache-memory-bytes", memory.kv_cache, "memory", "kvCache"),
        kv_tokens=None,
        kv_dtype=read.text("dtype", "--kv-cache-dtype", cache.dtype, "engine", "kvCache", "dtype"),
        block=read.whole("block", "--block-size", cache.block_size, "engine", "kvCache", "blockSize"),
        window_block=read.whole(
            "window",
            "--swa-block-size",
            cache.sliding_window_block_size,
            "engine",
            "kvCache",
            "slidingWindowBlockSize",
        ),
        draft=derived.step_tokens(engine),
        ratio=None,
        slots=None,
        state_dtype=None,
        buffered=False,
        tables_on_disk=engine.engram is not None and engine.engram.table_memory == "disk",
        exl3=engine.exl3 is not None,
        gpu=engine.container.gpus,
        paths=read.paths,
        context_follows=follows,
    )


def _vllm_context(read: _Reader, engine: VllmEngine) -> tuple[int | None, bool]:
    """Tokens, and whether vLLM finds them itself: it takes -1 and auto for what its cache holds."""
    flag = "--max-model-len"
    field = read.whole("context", flag, engine.context, "engine", "context")
    given = values_of(flag, read.words, read.aliases)
    if given and given[-1].lower() in ("-1", "auto"):
        read.paths["context"] = EXTRA
        return None, True
    return field, False


def _sglang_chunk(read: _Reader, engine: SglangEngine) -> int | None:
    """The prefill chunk; SGLang takes -1 for whole prompts."""
    flag = "--chunked-prefill-size"
    field = read.whole("chunk", flag, engine.chunked_prefill_size, "engine", "chunkedPrefillSize")
    given = values_of(flag, read.words, read.aliases)
    if given and re.fullmatch("-[0-9]+", given[-1]):
        read.paths["chunk"] = EXTRA
        return 0
    return None if field is None else max(0, field)


def _sglang(spec: ClusterSpec, engine: SglangEngine) -> Asked:
    read = _Reader(spec, sglang.ALIASES)
    mamba, drafts = engine.mamba, engine.speculative
    strategy = read.text(
        "strategy",
        "--mamba-radix-cache-strategy",
        mamba.radix_cache_strategy,
        "engine",
        "mamba",
        "radixCacheStrategy",
    )
    return Asked(
        engine="sglang",
        shards=read.whole("shards", "--tp-size", derived.tensor_parallel(spec), "engine", "tensorParallel")
        or 1,
        context=read.whole("context", "--context-length", engine.context, "engine", "context"),
        requests=read.whole(
            "requests", "--max-running-requests", engine.max_requests, "engine", "maxRequests"
        ),
        chunk=_sglang_chunk(read, engine),
        fraction=read.number(
            "fraction", "--mem-fraction-static", spec.memory.gpu_fraction, "memory", "gpuFraction"
        ),
        kv_bytes=None,
        kv_tokens=read.whole("kv", "--max-total-tokens", None, "memory", "gpuFraction"),
        kv_dtype=read.text("dtype", "--kv-cache-dtype", engine.kv_cache_dtype, "engine", "kvCacheDtype"),
        block=read.whole("block", "--page-size", engine.page_size, "engine", "pageSize"),
        window_block=None,
        draft=read.whole(
            "draft",
            "--speculative-num-draft-tokens",
            drafts.verified_tokens if drafts else None,
            "engine",
            "speculative",
            "steps",
        )
        or 1,
        ratio=read.number(
            "ratio",
            "--mamba-full-memory-ratio",
            mamba.full_memory_ratio,
            "engine",
            "mamba",
            "fullMemoryRatio",
        ),
        slots=read.whole("slots", "--max-mamba-cache-size", None, "engine", "mamba"),
        state_dtype=read.text("state", "--mamba-ssm-dtype", mamba.ssm_dtype, "engine", "mamba", "ssmDtype"),
        buffered=strategy in ("extra_buffer", "extra_buffer_lazy"),
        tables_on_disk=False,
        exl3=False,
        gpu=engine.container.gpus,
        paths=read.paths,
    )
