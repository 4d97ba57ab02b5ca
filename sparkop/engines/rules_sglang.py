"""Rules for SGLang, most of them learnt on Qwen3.8-Flash-Next (QSA, GDN state, PLE table) on GB10."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sparkop.engines import common, derived
from sparkop.engines.rules import Breach, Facts, Path, Rule, Severity
from sparkop.engines.sglang import ALIASES
from sparkop.engines.words import flags_in, values_of
from sparkop.records import dataclass
from sparkop.spec.engines import SglangEngine
from sparkop.spec.models import ClusterSpec

ROW_LIMIT = 128
"""Query rows that the SM121 kernel of SGLang 0.5.20 and later takes."""
QSA_DRAFT_LIMIT = 4
"""The indexer's compression ratio."""
ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""PyTorch reads both; the second is the newer name."""
EXTRA: Path = ("engine", "extraArgs")


@dataclass(frozen=True)
class Asked:
    """What the engine will be asked for: the spec's fields, or what extra arguments make of them."""

    spec: ClusterSpec
    engine: SglangEngine
    words: tuple[str, ...]

    def number(self, flag: str, field: int | None, *path: str) -> tuple[int | None, Path]:
        """A number and where it stands. An extra argument wins, as it does in the engine."""
        given = values_of(flag, self.words, ALIASES)
        if given and given[-1].isdigit():
            return int(given[-1]), EXTRA
        return field, ("engine", *path)

    @property
    def context(self) -> tuple[int | None, Path]:
        return self.number("--context-length", self.engine.context, "context")

    @property
    def requests(self) -> tuple[int | None, Path]:
        return self.number("--max-running-requests", self.engine.max_requests, "maxRequests")

    @property
    def draft(self) -> tuple[int | None, Path]:
        settings = self.engine.speculative
        field = settings.verified_tokens if settings else None
        return self.number("--speculative-num-draft-tokens", field, "speculative", "draftTokens")

    @property
    def steps(self) -> tuple[int | None, Path]:
        settings = self.engine.speculative
        return self.number(
            "--speculative-num-steps", settings.steps if settings else None, "speculative", "steps"
        )


def _sglang(find: Callable[[Asked], Iterator[Breach]]) -> Callable[[ClusterSpec, Facts], Iterator[Breach]]:
    def only_sglang(spec: ClusterSpec, _facts: Facts) -> Iterator[Breach]:
        if isinstance(spec.engine, SglangEngine):
            yield from find(Asked(spec, spec.engine, tuple(common.extra_arguments(spec, rank=0))))

    return only_sglang


def _dummy_weights(asked: Asked) -> Iterator[Breach]:
    if values_of("--load-format", asked.words, ALIASES)[-1:] == ["dummy"]:
        yield Breach(EXTRA, "--load-format dummy")


def _table_on_gpu(asked: Asked) -> Iterator[Breach]:
    if asked.engine.ple_offload is False:
        yield Breach(("engine", "pleOffload"), "pleOffload is false")
    given = (word.partition("=")[0].replace("_", "-") for word in asked.words)
    if any(len(word) > len("--no-") and "--no-ple-offload-embedding".startswith(word) for word in given):
        yield Breach(EXTRA, "--no-ple-offload-embedding")


def _expandable(asked: Asked) -> Iterator[Breach]:
    for name in ALLOCATOR:
        value = asked.engine.environment.get(name, "")
        if "expandable_segments:true" in value.replace(" ", "").lower():
            yield Breach(("engine", "environment", name), "expandable_segments is on")


def _top_k(asked: Asked) -> Iterator[Breach]:
    settings = asked.engine.speculative
    top_k, path = asked.number(
        "--speculative-eagle-topk", settings.top_k if settings else None, "speculative", "topK"
    )
    if top_k is not None and top_k != 1:
        yield Breach(path, f"top-k is {top_k}")


def _draft(asked: Asked) -> Iterator[Breach]:
    (draft, path), (steps, steps_path) = asked.draft, asked.steps
    if draft is not None and steps is not None and draft != steps + 1:
        where = path if path == EXTRA or steps_path != EXTRA else steps_path
        yield Breach(where, f"{draft} draft tokens for {steps} steps")


def _draft_limit(asked: Asked) -> Iterator[Breach]:
    draft, path = asked.draft
    settings = asked.engine.speculative
    if path != EXTRA and settings is not None and settings.draft_tokens is None:
        path = asked.steps[1]
    if draft is not None and draft > QSA_DRAFT_LIMIT:
        yield Breach(path, f"{draft} draft tokens")


def _rows(asked: Asked) -> Iterator[Breach]:
    (requests, path), (draft, _) = asked.requests, asked.draft
    rows = (requests or 0) * (draft or 1)
    if rows > ROW_LIMIT:
        yield Breach(path, f"{requests} requests x {draft or 1} draft tokens are {rows} rows")


def _track_interval(asked: Asked) -> Iterator[Breach]:
    interval, path = asked.number(
        "--mamba-track-interval", asked.engine.mamba.track_interval, "mamba", "trackInterval"
    )
    page, _ = asked.number("--page-size", asked.engine.page_size, "pageSize")
    draft, _ = asked.draft
    if interval is None:
        return
    if interval % (page or 64) or interval < (draft or 1):
        yield Breach(path, f"the track interval is {interval}, the page {page or 64}, the draft {draft or 1}")


def _mamba_strategy(asked: Asked) -> Iterator[Breach]:
    given = values_of("--mamba-radix-cache-strategy", asked.words, ALIASES)
    strategy = given[-1] if given else asked.engine.mamba.radix_cache_strategy
    if asked.engine.speculative and strategy not in (None, "extra_buffer", "extra_buffer_lazy"):
        path: Path = EXTRA if given else ("engine", "mamba", "radixCacheStrategy")
        yield Breach(path, f"the strategy is {strategy}")


def _graph_list(asked: Asked) -> Iterator[Breach]:
    requests, _ = asked.requests
    words = values_of("--cuda-graph-bs-decode", asked.words, ALIASES)
    given = [int(word) for word in words if word.isdigit()]
    sizes = given or derived.sglang_decode_sizes(asked.engine)
    if asked.engine.graphs.decode and sizes and requests is not None and max(sizes) < requests:
        path: Path = EXTRA if given else ("engine", "graphs", "decodeSizes")
        yield Breach(path, f"the largest decode graph is for {max(sizes)} of {requests} requests")


def _context(asked: Asked) -> Iterator[Breach]:
    context, path = asked.context
    extension = asked.engine.long_context
    if context is None or extension is None:
        return
    if extension.maximum is not None and context > extension.maximum:
        yield Breach(path, f"the context of {context:,} is over {extension.maximum:,}")
    elif extension.factor and context > max(extension.native, extension.native * extension.factor):
        reach = int(extension.native * extension.factor)
        path = ("engine", "longContext", "factor")
        yield Breach(path, f"factor {extension.factor:g} holds {reach:,} of {context:,} tokens")


def _context_by_argument(asked: Asked) -> Iterator[Breach]:
    """YaRN follows from the field only."""
    extension, (context, path) = asked.engine.long_context, asked.context
    if extension and path == EXTRA and context is not None and context > extension.native:
        yield Breach(path, "--context-length among extra arguments")


def _override_by_argument(asked: Asked) -> Iterator[Breach]:
    """The engine takes the last override, so one that says nothing of YaRN switches it off."""
    given = values_of("--json-model-override-args", asked.words, ALIASES)
    if given and derived.yarn(asked.engine) is not None and "rope_scaling" not in given[-1]:
        yield Breach(EXTRA, "--json-model-override-args without rope_scaling")


def _one_name(asked: Asked) -> Iterator[Breach]:
    names = asked.spec.api.served_names
    if len(names) > 1:
        yield Breach(("api", "servedNames"), f"{len(names)} served names")


def _fp8_cache(asked: Asked) -> Iterator[Breach]:
    given = values_of("--kv-cache-dtype", asked.words, ALIASES)
    dtype = given[-1] if given else asked.engine.kv_cache_dtype
    if dtype is not None and dtype.startswith("fp8"):
        yield Breach(EXTRA if given else ("engine", "kvCacheDtype"), f"the KV cache is {dtype}")


def _metrics(asked: Asked) -> Iterator[Breach]:
    if not asked.engine.metrics and "--enable-metrics" not in flags_in(asked.words, ALIASES):
        yield Breach(("engine", "metrics"), "metrics are off")


RULES = (
    Rule(
        "sglang.load-format-dummy",
        "SGLang, models with a PLE table, GB10",
        "the cast of the PLE table from fp8 to fp16 needs over 150 GB and freezes a machine of 121.7 GB",
        "recipe B",
        "load the real weights",
        _sglang(_dummy_weights),
    ),
    Rule(
        "sglang.ple-on-gpu",
        "SGLang, models with a PLE table, GB10",
        "26 GB a rank move from pinned host memory to the GPU",
        "recipe B",
        "leave engine.pleOffload out",
        _sglang(_table_on_gpu),
    ),
    Rule(
        "sglang.expandable-segments",
        "SGLang, GB10",
        "recipe B forbids expandable_segments in PYTORCH_CUDA_ALLOC_CONF",
        "recipe B",
        "take it out of engine.environment",
        _sglang(_expandable),
    ),
    Rule(
        "sglang.top-k",
        "SGLang, QSA models",
        "sparse attention verifies one branch only",
        "recipe B; SGLang 0.5.23 qwen_sparse_attn_backend.py",
        "engine.speculative.topK of 1",
        _sglang(_top_k),
    ),
    Rule(
        "sglang.draft",
        "SGLang, NEXTN with top-k 1",
        "a chain of drafts verifies its steps and one more token",
        "recipe B",
        "leave engine.speculative.draftTokens out: it follows from steps",
        _sglang(_draft),
    ),
    Rule(
        "sglang.draft-limit",
        "SGLang, QSA models",
        "sparse attention takes at most 4 draft tokens, the indexer's compression ratio",
        "SGLang 0.5.23 qwen_sparse_attn_backend.py",
        "engine.speculative.steps of at most 3",
        _sglang(_draft_limit),
    ),
    Rule(
        "sglang.rows",
        "SGLang 0.5.20 and later on SM121, QSA models",
        "the native attention kernel takes at most 128 query rows",
        "SGLang 0.5.23 qwen38_qsa_sm121_varlen",
        "fewer engine.maxRequests or draft tokens",
        _sglang(_rows),
    ),
    Rule(
        "sglang.track-interval",
        "SGLang, models with Mamba or GDN state",
        "it must be a multiple of the page size and at least the draft",
        "recipe B",
        "engine.mamba.trackInterval of 64",
        _sglang(_track_interval),
    ),
    Rule(
        "sglang.mamba-strategy",
        "SGLang, models with Mamba or GDN state, with speculation",
        "speculation needs extra buffers for the state",
        "recipe B",
        "extra_buffer or extra_buffer_lazy",
        _sglang(_mamba_strategy),
    ),
    Rule(
        "sglang.graph-list",
        "SGLang",
        "larger batches would run without graphs, many times slower",
        "recipe B",
        "leave engine.graphs.decodeSizes out: it follows from maxRequests",
        _sglang(_graph_list),
    ),
    Rule(
        "sglang.context",
        "SGLang",
        "positions beyond what the model and YaRN bear give nonsense",
        "recipe B",
        "a smaller engine.context, and leave engine.longContext.factor out: it follows",
        _sglang(_context),
    ),
    Rule(
        "sglang.context-by-argument",
        "SGLang with longContext",
        "YaRN follows from engine.context and would stay off or wrong",
        "sparkop",
        "set engine.context",
        _sglang(_context_by_argument),
    ),
    Rule(
        "sglang.override-by-argument",
        "SGLang with longContext",
        "it replaces the override that YaRN follows from, and the context is longer than the model's own",
        "sparkop",
        "add rope_scaling as sparkop render shows it, or leave the argument out",
        _sglang(_override_by_argument),
    ),
    Rule(
        "sglang.one-name",
        "SGLang",
        "SGLang serves one name, the first",
        "SGLang 0.5.23 server_args.py",
        "keep one name in api.servedNames",
        _sglang(_one_name),
    ),
    Rule(
        "sglang.fp8-cache",
        "SGLang images without a native SM121 kernel",
        "the fallback kernel's caller and the prefill kernels fail on fp8 caches on SM121",
        "SGLang qwen38flashnext image; kernel facts",
        "leave engine.kvCacheDtype out",
        _sglang(_fp8_cache),
        Severity.WARNING,
    ),
    Rule(
        "sglang.metrics",
        "SGLang",
        "without counters a slow group can't be told from a stuck one",
        "principle 5",
        "engine.metrics of true",
        _sglang(_metrics),
        Severity.WARNING,
    ),
)
