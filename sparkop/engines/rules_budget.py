"""Rules that rest on the memory budget: what the arithmetic forbids is not launched.

A model whose numbers are neither shipped nor read has no budget, and no rule here objects to it but the
chunk's, which then goes by what froze recipe B.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sparkop.engines.budget.asked import Asked, asked
from sparkop.engines.budget.budget import budget, indexer_workspace, prefill_piece
from sparkop.engines.budget.lines import Budget, Part
from sparkop.engines.budget.machine import GIB, NodeMemory
from sparkop.engines.rules import Breach, Facts, Rule
from sparkop.spec.engines import SglangEngine
from sparkop.spec.memory import MemoryGuardSpec
from sparkop.spec.models import ClusterSpec

CHUNK = 1024
"""A chunk that recipe B runs at 900,000 tokens."""


Find = Callable[[ClusterSpec, Budget | None], Iterator[Breach]]


def of_spec(spec: ClusterSpec, facts: Facts) -> Budget | None:
    """The budget by the shipped numbers and the nodes' memory; None when the model is not known."""
    memory = {
        fact.name: NodeMemory(fact.memory_total) for fact in facts or () if fact.memory_total is not None
    }
    return budget(spec, memory=memory)


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"


def _chunk_of(spec: ClusterSpec, wanted: Asked, found: Budget | None) -> int:
    if not isinstance(spec.engine, SglangEngine):
        return wanted.chunk or 0
    context = wanted.context or (found.context if found is not None else None) or 0
    return prefill_piece(wanted.chunk, context)


def _chunk(spec: ClusterSpec, found: Budget | None) -> Iterator[Breach]:
    if not isinstance(spec.engine, SglangEngine):
        return
    wanted = asked(spec)
    chunk, context = _chunk_of(spec, wanted, found), wanted.context
    path = wanted.paths["chunk"]
    if found is None:
        native = spec.engine.long_context.native if spec.engine.long_context else 262144
        if wanted.chunk is not None and chunk > CHUNK and context is not None and context > native:
            size, _ = indexer_workspace(chunk, context)
            yield Breach(path, f"a prefill chunk of {chunk} at {context:,} tokens of context ({_gib(size)})")
        return
    rank = min(found.ranks, key=lambda rank: rank.left)
    size = sum(line.size for line in rank.lines if line.part is Part.WORKSPACE)
    if size and chunk > CHUNK and not rank.safe:
        own = {None: " (SGLang's own)", 0: " (whole prompts)"}.get(wanted.chunk, "")
        room = rank.left + size - rank.floor
        yield Breach(
            path,
            f"a prefill chunk of {chunk}{own} takes {_gib(size)} of workspace at {context or 0:,} tokens of "
            f"context, and {rank.node} has {_gib(max(0, room))} for it",
        )


def _memory(spec: ClusterSpec, found: Budget | None) -> Iterator[Breach]:
    if found is None:
        return
    wanted = asked(spec)
    chunk = _chunk_of(spec, wanted, found)
    rank = min(found.ranks, key=lambda rank: rank.left)
    workspace = sum(line.size for line in rank.lines if line.part is Part.WORKSPACE)
    spared = round(workspace * (1 - CHUNK / chunk)) if chunk > CHUNK else 0
    if rank.left + spared < rank.floor:
        left = f"{_gib(-rank.left)} too much" if rank.left < 0 else f"{_gib(rank.left)} left"
        cache = sum(line.size for line in rank.lines if line.part in (Part.CACHE, Part.STATE))
        if rank.left + spared + cache < min(rank.floor, _usual_floor(spec)):
            left += " (without a KV cache too: take more nodes, or a smaller checkpoint)"
        yield Breach(
            wanted.paths["kv" if wanted.kv_bytes is not None else "fraction"],
            f"{rank.node} would use {_gib(rank.used)} of {_gib(rank.total.size)}: {left}, "
            f"and {_gib(rank.floor)} must stay{_floor_that_fits(spec, rank.floor, rank.left + spared)}",
        )


def _usual_floor(spec: ClusterSpec) -> int:
    """What must stay where the spec names no floor."""
    usual = MemoryGuardSpec()
    return int(usual.action_floor if spec.memory.guard.enabled else usual.hard_floor)


def _floor_that_fits(spec: ClusterSpec, floor: int, left: int) -> str:
    """A floor that was raised may be all that is wrong: a smaller cache is not the only way out."""
    usual = _usual_floor(spec)
    if not usual <= left < floor:
        return ""
    name = "actionFloor" if spec.memory.guard.enabled else "hardFloor"
    return f" by memory.guard.{name} (with its default of {_gib(usual)} this fits)"


def _pool(spec: ClusterSpec, found: Budget | None) -> Iterator[Breach]:
    if found is None or found.pool is None or not found.pool.context:
        return
    wanted, pool = asked(spec), found.pool
    if pool.tokens < pool.context and not wanted.context_follows:
        by_size = wanted.kv_bytes is not None or wanted.kv_tokens is not None
        yield Breach(
            wanted.paths["kv" if by_size else "fraction"],
            f"the KV cache holds {pool.tokens:,} of the {pool.context:,} tokens of one context",
        )


def _fraction(spec: ClusterSpec, found: Budget | None) -> Iterator[Breach]:
    wanted = asked(spec)
    if found is None or wanted.engine != "vllm" or wanted.fraction is None:
        return
    for rank in found.ranks:
        system = sum(line.size for line in rank.lines if line.part is Part.SYSTEM)
        free = rank.total.size - system
        if wanted.fraction * rank.total.size > free:
            yield Breach(
                wanted.paths["fraction"],
                f"{wanted.fraction:g} of {_gib(rank.total.size)} is more than can be free on "
                f"{rank.node}: {_gib(free)}",
            )
            return


def _state(spec: ClusterSpec, found: Budget | None) -> Iterator[Breach]:
    if found is not None and found.slots is not None and found.slots.requests < 1:
        yield Breach(asked(spec).paths["ratio"], f"{found.slots.count} state slots let no request run")


def _context(spec: ClusterSpec, found: Budget | None) -> Iterator[Breach]:
    """Only where the spec does not say itself what the model bears: rules vllm.context and sglang.context."""
    engine, wanted = spec.engine, asked(spec)
    told = engine.long_context if isinstance(engine, SglangEngine) else engine.model_context
    if found is None or found.context is None or told is not None or wanted.context is None:
        return
    if wanted.context > found.context:
        yield Breach(
            wanted.paths["context"],
            f"the context of {wanted.context:,} is over the model's {found.context:,}",
        )


def _heads(spec: ClusterSpec, found: Budget | None) -> Iterator[Breach]:
    wanted = asked(spec)
    if found is None or wanted.shards % len(spec.nodes):  # rule engine.shards
        return
    for heads in found.heads:
        if not heads.fit(wanted.shards):
            path = wanted.paths["shards"] if spec.engine.tensor_parallel else ("nodes",)
            yield Breach(path, f"{heads.count} {heads.what} of the model for {wanted.shards} shards")
            return


def rules(made: Budget | None = None) -> tuple[Rule, ...]:
    """The rules on a budget: ``made``, or for each spec the one by the shipped numbers."""

    def on(find: Find) -> Callable[[ClusterSpec, Facts], Iterator[Breach]]:
        return lambda spec, facts: find(spec, made or of_spec(spec, facts))

    return (
        Rule(
            id="sglang.chunk",
            applies_to="SGLang, QSA models",
            reason="the indexer's fp32 workspace grows with chunk x history; 4096 at 0.85 froze the machines",
            source="recipe B: measured",
            remedy=f"engine.chunkedPrefillSize of at most {CHUNK}, or a smaller engine.context "
            "(sparkop budget shows what fits)",
            find=on(_chunk),
        ),
        Rule(
            id="engine.heads",
            applies_to="models with a budget",
            reason="each shard holds the same number of heads, and both engines end where that can't be",
            source="vLLM 0.33 config/model.py; SGLang 0.5.23 layers; the checkpoint's configuration",
            remedy="a number of nodes, or engine.tensorParallel, that divides them",
            find=on(_heads),
        ),
        Rule(
            id="budget.memory",
            applies_to="models with a budget",
            reason="a node without free memory stops answering; the guard would kill the rank before that",
            source="recipe B: its memory budget",
            remedy="a lower memory.kvCache or memory.gpuFraction (sparkop budget --fit finds the largest)",
            find=on(_memory),
        ),
        Rule(
            id="budget.pool",
            applies_to="models with a budget",
            reason="vLLM does not start then, and SGLang refuses or cuts long prompts",
            source="vLLM 0.33 kv_cache_utils.py; recipe B's preflight",
            remedy="a smaller engine.context (sparkop budget --fit context), or more memory for the cache",
            find=on(_pool),
        ),
        Rule(
            id="budget.fraction",
            applies_to="vLLM, models with a budget",
            reason="vLLM refuses to start unless this share is free, also where memory.kvCache sizes the "
            "cache",
            source="vLLM 0.33 v1/worker/utils.py request_memory",
            remedy="a lower memory.gpuFraction (sparkop budget --fit fraction)",
            find=on(_fraction),
        ),
        Rule(
            id="budget.state",
            applies_to="SGLang, models with Mamba or GDN state",
            reason="every request needs slots for its state",
            source="recipe B: 73 slots, concurrency 14",
            remedy="a higher engine.mamba.fullMemoryRatio or memory.gpuFraction",
            find=on(_state),
        ),
        Rule(
            id="budget.context",
            applies_to="models with a budget",
            reason="positions beyond what the model bears give nonsense, and engines refuse them",
            source="the checkpoint's configuration",
            remedy="a smaller engine.context; with SGLang, engine.longContext stretches it",
            find=on(_context),
        ),
    )
