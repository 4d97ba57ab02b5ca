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
        id="sglang.load-format-dummy",
        applies_to="SGLang, models with a PLE table, GB10",
        reason="the cast of the PLE table from fp8 to fp16 needs over 150 GB and freezes a machine of 121.7 "
        "GB",
        source="recipe B",
        remedy="load the real weights",
        find=_sglang(_dummy_weights),
    ),
    Rule(
        id="sglang.ple-on-gpu",
        applies_to="SGLang, models with a PLE table, GB10",
        reason="26 GB a rank move from pinned host memory to the GPU",
        source="recipe B",
        remedy="leave engine.pleOffload out",
        find=_sglang(_table_on_gpu),
    ),
    Rule(
        id="sglang.expandable-segments",
        applies_to="SGLang, GB10",
        reason="recipe B forbids expandable_segments in PYTORCH_CUDA_ALLOC_CONF",
        source="recipe B",
        remedy="take it out of engine.environment",
        find=_sglang(_expandable),
    ),
    Rule(
        id="sglang.top-k",
        applies_to="SGLang, QSA models",
        reason="sparse attention verifies one branch only",
        source="recipe B; SGLang 0.5.23 qwen_sparse_attn_backend.py",
        remedy="engine.speculative.topK of 1",
        find=_sglang(_top_k),
    ),
    Rule(
        id="sglang.draft",
        applies_to="SGLang, NEXTN with top-k 1",
        reason="a chain of drafts verifies its steps and one more token",
        source="recipe B",
        remedy="leave engine.speculative.draftTokens out: it follows from steps",
        find=_sglang(_draft),
    ),
    Rule(
        id="sglang.draft-limit",
        applies_to="SGLang, QSA models",
        reason="sparse attention takes at most 4 draft tokens, the indexer's compression ratio",
        source="SGLang 0.5.23 qwen_sparse_attn_backend.py",
        remedy="engine.speculative.steps of at most 3",
        find=_sglang(_draft_limit),
    ),
    Rule(
        id="sglang.rows",
        applies_to="SGLang 0.5.20 and later on SM121, QSA models",
        reason="the native attention kernel takes at most 128 query rows",
        source="SGLang 0.5.23 qwen38_qsa_sm121_varlen",
        remedy="fewer engine.maxRequests or draft tokens",
        find=_sglang(_rows),
    ),
    Rule(
        id="sglang.track-interval",
        applies_to="SGLang, models with Mamba or GDN state",
        reason="it must be a multiple of the page size and at least the draft",
        source="recipe B",
        remedy="engine.mamba.trackInterval of 64",
        find=_sglang(_track_interval),
    ),
    Rule(
        id="sglang.mamba-strategy",
        applies_to="SGLang, models with Mamba or GDN state, with speculation",
        reason="speculation needs extra buffers for the state",
        source="recipe B",
        remedy="extra_buffer or extra_buffer_lazy",
        find=_sglang(_mamba_strategy),
    ),
    Rule(
        id="sglang.graph-list",
        applies_to="SGLang",
        reason="larger batches would run without graphs, many times slower",
        source="recipe B",
        remedy="leave engine.graphs.decodeSizes out: it follows from maxRequests",
        find=_sglang(_graph_list),
    ),
    Rule(
        id="sglang.context",
        applies_to="SGLang",
        reason="positions beyond what the model and YaRN bear give nonsense",
        source="recipe B",
        remedy="a smaller engine.context, and leave engine.longContext.factor out: it follows",
        find=_sglang(_context),
    ),
    Rule(
        id="sglang.context-by-argument",
        applies_to="SGLang with longContext",
        reason="YaRN follows from engine.context and would stay off or wrong",
        source="sparkop",
        remedy="set engine.context",
        find=_sglang(_context_by_argument),
    ),
    Rule(
        id="sglang.override-by-argument",
        applies_to="SGLang with longContext",
        reason="it replaces the override that YaRN follows from, and the context is longer than the model's "
        "own",
        source="sparkop",
        remedy="add rope_scaling as sparkop render shows it, or leave the argument out",
        find=_sglang(_override_by_argument),
    ),
    Rule(
        id="sglang.one-name",
        applies_to="SGLang",
        reason="SGLang serves one name, the first",
        source="SGLang 0.5.23 server_args.py",
        remedy="keep one name in api.servedNames",
        find=_sglang(_one_name),
    ),
    Rule(
        id="sglang.fp8-cache",
        applies_to="SGLang images without a native SM121 kernel",
        reason="the fallback kernel's caller and the prefill kernels fail on fp8 caches on SM121",
        source="SGLang qwen38flashnext image; kernel facts",
        remedy="leave engine.kvCacheDtype out",
        find=_sglang(_fp8_cache),
        severity=Severity.WARNING,
    ),
    Rule(
        id="sglang.metrics",
        applies_to="SGLang",
        reason="without counters a slow group can't be told from a stuck one",
        source="principle 5",
        remedy="engine.metrics of true",
        find=_sglang(_metrics),
        severity=Severity.WARNING,
    ),
)
