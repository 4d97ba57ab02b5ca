"""Spec, checkpoint and the nodes' memory to a budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from sparkop.engines.budget.asked import Asked, asked
from sparkop.engines.budget.checkpoint import Checkpoint, known
from sparkop.engines.budget.formats import named
from sparkop.engines.budget.lines import Basis, Budget, CacheCost, Line, Part, Pool, RankBudget, Slots, Where
from sparkop.engines.budget.machine import (
    GIB,
    SPARK_TOTAL,
    NodeMemory,
    page_cache_line,
    system_line,
    total_line,
)
from sparkop.engines.budget.pool import sglang_pool, slot_sizes, slots_of, vllm_pool
from sparkop.engines.budget.weights import weight_lines
from sparkop.records import dataclass
from sparkop.spec.models import ClusterSpec

VLLM_FRACTION = 0.9
"""vLLM's own --gpu-memory-utilization."""
SGLANG_CHUNK = 8192
"""SGLang's own --chunked-prefill-size on a GPU of this size."""
VLLM_OVERHEAD = 5_848_000_000
"""vLLM 0.33 on a Spark, Qwen3.8-Flash-Next at TP2: 0.835 x 121.7 - 64.46 (weights) - 31.70 (KV), in GiB."""
SGLANG_GRAPHS = 8 * GIB


def budget(
    spec: ClusterSpec,
    checkpoint: Checkpoint | None = None,
    memory: Mapping[str, NodeMemory] | None = None,
) -> Budget | None:
    """The memory of every node and rank.

    ``checkpoint``: None takes the shipped numbers of the spec's repository, and there is no budget (None)
    when there are none. ``memory``: what was read of the nodes; a node that is missing is taken for a Spark.
    """
    checkpoint = checkpoint or known(spec.weights.repository)
    if checkpoint is None:
        return None
    wanted = asked(spec)
    parts = [_rank(wanted, checkpoint, (memory or {}).get(node.name)) for node in spec.nodes]
    smallest = min(parts, key=lambda part: part.pool.tokens if part.pool else 0)
    return Budget(
        model=checkpoint.name,
        engine=wanted.engine,
        source=checkpoint.source,
        ranks=tuple(
            RankBudget(node.name, rank, part.total, part.lines, _floor(spec))
            for rank, (node, part) in enumerate(zip(spec.nodes, parts, strict=True))
        ),
        context=checkpoint.shape.context,
        pool=smallest.pool,
        slots=smallest.slots,
        weighed=_weighed(smallest),
        quotes=checkpoint.quotes,
        unknown=(*checkpoint.unknown, *_unknown(checkpoint, wanted, smallest)),
        heads=checkpoint.shape.heads,
    )


def _floor(spec: ClusterSpec) -> int:
    guard = spec.memory.guard
    return int(guard.action_floor if guard.enabled else guard.hard_floor)


@dataclass(frozen=True)
class _Part:
    total: Line
    lines: tuple[Line, ...]
    pool: Pool | None
    slots: Slots | None


def _rank(wanted: Asked, checkpoint: Checkpoint, memory: NodeMemory | None) -> _Part:
    total, system = total_line(memory), system_line(memory)
    weights = weight_lines(checkpoint, wanted, wanted.shards)
    loaded = [*weights, *_fitted(checkpoint, wanted)]
    before = total.size - system.size
    pool: Pool | None = None
    slots: Slots | None = None
    if wanted.engine == "sglang":
        room = _sglang_room(wanted, before, loaded)
        if room is not None:
            beside = _beside(checkpoint)
            pool, slots = sglang_pool(checkpoint.shape, wanted, room.size, room.source, beside)
        loaded += _sglang_beside(checkpoint, wanted)
    else:
        loaded += _vllm_beside(checkpoint, wanted)
        room = _vllm_room(wanted, total.size, loaded)
        if room is not None:
            pool = vllm_pool(checkpoint.shape, wanted, int(room.size), room.basis, room.source)
    lines = [system, *loaded, *_cache_lines(room, pool, slots), page_cache_line(memory)]
    order = list(Part)
    lines.sort(key=lambda line: order.index(line.part))
    return _Part(total, tuple(lines), pool, slots)


def _taken(lines: list[Line]) -> int:
    return sum(line.size for line in lines if line.counts)


def _fitted(checkpoint: Checkpoint, wanted: Asked) -> list[Line]:
    """What a recorded run leaves for everything that has no line of its own."""
    whole, static = checkpoint.recorded.get("whole"), checkpoint.recorded.get("static")
    if whole and whole["engine"] == wanted.engine and wanted.exl3:
        then = int(whole["shards"])
        size = SPARK_TOTAL - system_line(None).size - whole["kv_bytes"] - whole["left"]
        recorded = replace(wanted, draft=int(whole["draft"]), tables_on_disk=True)
        size -= _taken(weight_lines(checkpoint, recorded, then))
        size = round(size * then / wanted.shards)
        name = "experts of the EXL3 plan, graphs, NCCL, workspaces"
        return [Line(Part.OTHER, name, max(0, size), Basis.FITTED, whole["source"])]
    if static and static["engine"] == wanted.engine:
        drafting = replace(wanted, draft=int(static["draft"]))
        size = static["size"] - _taken(weight_lines(checkpoint, drafting, int(static["shards"])))
        size -= _recorded_rest(checkpoint, wanted)
        return [
            Line(
                Part.OTHER,
                "loading takes besides (no part is known)",
                max(0, math.floor(size)),
                Basis.FITTED,
                f"{static['source']}; less weights, state and KV",
            )
        ]
    return []


def _recorded_rest(checkpoint: Checkpoint, wanted: Asked) -> float:
    """KV and state of the recorded run, by its slots: state is ratio / (1 + ratio) of both."""
    static = checkpoint.recorded["static"]
    then = replace(
        wanted,
        shards=int(static["shards"]),
        draft=int(static["draft"]),
        requests=int(static["requests"]),
        state_dtype="bfloat16",
        buffered=True,
    )
    sizes = slot_sizes(checkpoint.shape, then)
    if sizes is None:
        return 0.0
    ratio = float(static["ratio"])
    return slots_of(sizes, then, int(static["slots"])).size * (1 + ratio) / ratio


@dataclass(frozen=True)
class _Room:
    """Bytes that the engine takes for its cache and state, whatever they hold."""

    size: float
    basis: Basis
    source: str


def _sglang_room(wanted: Asked, before: int, loaded: list[Line]) -> _Room | None:
    """What is left of the static share."""
    if wanted.fraction is None:
        return None
    source = (
        f"{wanted.fraction:g} of the {before:,} B available before the load, less what is loaded "
        f"({_taken(loaded):,} B), less the state"
    )
    return _Room(max(0.0, wanted.fraction * before - _taken(loaded)), Basis.FITTED, source)


def _beside(checkpoint: Checkpoint) -> CacheCost | None:
    """What a recorded pool's token takes over K and V."""
    static = checkpoint.recorded.get("static") or {}
    size = static.get("token_beside")
    if size is None:
        return None
    return CacheCost("index keys and others", float(size), Basis.FITTED, static["source"])


def _sglang_beside(checkpoint: Checkpoint, wanted: Asked) -> list[Line]:
    """Outside SGLang's static share: graphs and libraries, and the indexer's workspace during prefill."""
    if not wanted.gpu:
        return []
    graphs = checkpoint.recorded.get("graphs") or {}
    lines = [
        Line(
            Part.GRAPHS,
            "CUDA graphs, NCCL and cuBLAS workspaces",
            int(graphs.get("size", SGLANG_GRAPHS)),
            Basis.QUOTED,
            graphs.get("source", "recipe B's 8 GB, of another model"),
        )
    ]
    context = wanted.context or checkpoint.shape.context
    if checkpoint.shape.indexer and context:
        size, told = indexer_workspace(wanted.chunk, context)
        lines.append(
            Line(Part.WORKSPACE, "indexer logits of a prefill", size, Basis.COMPUTED, told, transient=True)
        )
    return lines


def indexer_workspace(chunk: int | None, context: int) -> tuple[int, str]:
    """Bytes that QSA's prefill takes and gives back, layer by layer, and the formula: fp32 logits of every
    token of the piece against the history, twice (recipe B: 8 to 10 GB at 4096 x 300,000)."""
    piece = prefill_piece(chunk, context)
    default = {None: " (SGLang's own chunk)", 0: " (whole prompts)"}.get(chunk, "")
    return 2 * 4 * piece * context, f"2 copies x 4 B x {piece:,} tokens{default} x {context:,} of history"


def prefill_piece(chunk: int | None, context: int) -> int:
    """Tokens that SGLang prefills at once; without chunks a whole prompt."""
    if chunk is None:
        return SGLANG_CHUNK
    return chunk or context


def _vllm_beside(checkpoint: Checkpoint, wanted: Asked) -> list[Line]:
    """vLLM measures activations, graphs and libraries before it sizes the cache."""
    if not wanted.gpu or (checkpoint.recorded.get("whole") and wanted.exl3):
        return []
    return [
        Line(
            Part.GRAPHS,
            "activations, CUDA graphs, NCCL and cuBLAS workspaces",
            VLLM_OVERHEAD,
            Basis.FITTED,
            "vLLM 0.33, Qwen3.8-Flash-Next at TP2: 0.835 x 121.7 - 64.46 - 31.70 GiB",
        )
    ]


def _vllm_room(wanted: Asked, total: int, loaded: list[Line]) -> _Room | None:
    if wanted.kv_bytes is not None:
        return _Room(wanted.kv_bytes, Basis.COMPUTED, f"{wanted.kv_bytes:,} B asked for")
    if not wanted.gpu:
        return None
    fraction = VLLM_FRACTION if wanted.fraction is None else wanted.fraction
    source = f"{fraction:g} of {total:,} B less {_taken(loaded):,} B of weights and workspaces"
    return _Room(max(0, round(fraction * total) - _taken(loaded)), Basis.FITTED, source)


def _cache_lines(room: _Room | None, pool: Pool | None, slots: Slots | None) -> list[Line]:
    """A cache whose tokens can't be told takes its room all the same."""
    lines = []
    if pool is None and room is not None:
        size = max(0, round(room.size) - (slots.size if slots else 0))
        lines.append(Line(Part.CACHE, "KV cache, tokens not known", size, room.basis, room.source))
    if pool is not None:
        name = f"KV cache, {pool.tokens:,} tokens"
        lines.append(Line(Part.CACHE, name, pool.size, pool.basis, pool.source))
    if slots is not None:
        name = f"state, {slots.count} slots"
        lines.append(Line(Part.STATE, name, slots.size, slots.basis, slots.source))
    return lines


def _weighed(part: _Part) -> bool:
    return any(line.part in (Part.EXPERTS, Part.DENSE, Part.OTHER) and line.counts for line in part.lines)


def _unknown(checkpoint: Checkpoint, wanted: Asked, part: _Part) -> list[str]:
    found = []
    if not _weighed(part):
        found.append("The size of the weights: no safetensors header was read (--from nodes or --from hub).")
    if part.pool is None:
        unknown = named(wanted.kv_dtype) is None
        why = f"the type {wanted.kv_dtype} is not known" if unknown else "the spec sets no size or share"
        if checkpoint.shape.windows is not None and not checkpoint.shape.caches:
            why = "the model keeps windows only, and SGLang's count of them is not known"
        found.append(f"The KV cache: {why}.")
    if wanted.engine == "vllm" and checkpoint.shape.indexer:
        found.append("vLLM's own workspace for sparse attention: it measures it when it starts.")
    if wanted.engine == "vllm" and checkpoint.shape.state is not None:
        found.append("vLLM keeps linear-attention state in KV pages: the pool is smaller than K and V alone.")
    if not wanted.gpu:
        found.append("Workspaces of an engine without a GPU.")
    if not any(line.where is Where.HOST and line.basis is Basis.READ for line in part.lines):
        found.append("What runs on the nodes besides: no node was read.")
    return found
