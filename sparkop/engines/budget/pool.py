"""The KV cache: bytes of a token, tokens of a pool, slots of linear-attention state."""

from __future__ import annotations

import math
from dataclasses import replace

from sparkop.engines.budget.asked import Asked
from sparkop.engines.budget.formats import BF16, named
from sparkop.engines.budget.lines import Basis, CacheCost, Pool, Slots
from sparkop.engines.budget.shape import Shape, Windows
from sparkop.records import dataclass

VLLM_BLOCK = 16
VLLM_CPU_BLOCK = 128
VLLM_BATCH = 8192
"""vLLM's own --max-num-batched-tokens for an API server on a large GPU."""
RATIO = 0.9
"""SGLang's own --mamba-full-memory-ratio."""
SLOTS_A_REQUEST = 3
SLOTS_A_BUFFERED_REQUEST = 5
"""With extra buffers. Recipe B: 73 slots cap concurrency at 14."""


def costs(shape: Shape, asked: Asked) -> tuple[CacheCost, ...] | None:
    """KV bytes of one token on one rank; None when the asked type is not known."""
    form = named(asked.kv_dtype)
    if form is None:
        return None
    found = []
    for group in shape.caches:
        if group.draft and asked.draft == 1:
            continue
        used = group.format or form
        heads = max(1, -(-group.heads // asked.shards))
        source = (
            f"{group.reading}: {float(group.entries):g} entries x {heads} head{'s' if heads > 1 else ''} x "
            f"{group.values} values in {used.text}"
        )
        if group.heads == 1 and asked.shards > 1:
            source += ", kept by every shard"
        found.append(CacheCost(group.name, group.size(asked.shards, form), Basis.COMPUTED, source))
    return tuple(found)


def vllm_pool(shape: Shape, asked: Asked, size: int, basis: Basis, source: str) -> Pool | None:
    """What ``size`` bytes hold, as vLLM prints it ("GPU KV cache size"): concurrency x context."""
    each = costs(shape, asked)
    if each is None:
        return None
    token = sum(cost.size for cost in each)
    block = asked.block or (VLLM_BLOCK if asked.gpu else VLLM_CPU_BLOCK)
    context = asked.context or shape.context or 0
    if shape.windows is not None and shape.windows.groups is None:
        return _hybrid_pool(shape, asked, Pool(size, 0, context, token, each, basis, source), block)
    blocks = max(0, int(size // (block * token)))
    if shape.windows is None or not context:
        tokens, how = blocks * block, f"{blocks:,} blocks of {block} tokens"
    else:
        request, told = _request_blocks(shape.windows, asked, context, block)
        tokens = blocks * context // request
        how = f"{blocks:,} blocks x {context:,} / ({told}); the window groups are a fit"
        basis = Basis.FITTED
    return Pool(size, tokens, context, token, each, basis, f"{source}; {how}")


def _request_blocks(windows: Windows, asked: Asked, context: int, block: int) -> tuple[int, str]:
    """Blocks of one full request where windows take blocks of the same pool."""
    batch = asked.chunk or VLLM_BATCH
    small = asked.window_block or windows.tokens
    groups = windows.groups or 0
    whole = -(-context // block) + 1
    sliding = math.ceil((windows.tokens - 1 + batch) / small)
    return whole + groups * sliding, f"{whole:,} + {groups} x {sliding}"


def _hybrid_pool(shape: Shape, asked: Asked, pool: Pool, block: int) -> Pool | None:
    """Full and sliding-window layers share blocks in groups of as many layers as the smaller kind has; a full
    request takes its context in the full groups, and window and batch, and a block more, in the others
    (vLLM 0.33 kv_cache_utils.py and kv_cache_interface.py; seen on 0.32)."""
    windows, form = shape.windows, named(asked.kv_dtype)
    if windows is None or form is None or not pool.context:
        return None
    full = int(sum(group.entries for group in shape.caches))
    layers = min(full, windows.layers) or windows.layers
    heads = max(1, -(-windows.heads // asked.shards))
    blocks = max(0, int(pool.size // (layers * block * heads * form.size(windows.values))))
    held = min(windows.tokens - 1 + (asked.chunk or VLLM_BATCH), pool.context)
    sliding = math.ceil(windows.layers / layers) * (-(-held // block) + 1)
    request = math.ceil(full / layers) * -(-pool.context // block) + sliding
    how = f"{blocks:,} blocks of {block} tokens in {layers} layers x {pool.context:,} / {request:,} a request"
    return replace(pool, tokens=blocks * pool.context // request, source=f"{pool.source}; {how}")


@dataclass(frozen=True)
class SlotSizes:
    """Bytes of one state slot on one rank, and of one copy that speculation keeps."""

    slot: int
    copy: int
    source: str


def slot_sizes(shape: Shape, asked: Asked) -> SlotSizes | None:
    """None without linear-attention layers or for an unknown type."""
    state = shape.state
    form = named(asked.state_dtype or (state.dtype if state else None))
    if state is None or form is None:
        return None
    ssm = round(state.layers * form.size(state.ssm) / asked.shards)
    conv = round(state.layers * BF16.size(state.conv) / asked.shards)
    source = (
        f"{state.layers} layers: SSM {state.ssm:,} values in {form.name}, "
        f"convolution {state.conv:,} in bf16, over {asked.shards}"
    )
    return SlotSizes(ssm + conv, ssm, source)


def slots_in(sizes: SlotSizes, asked: Asked, size: float) -> Slots:
    """The most slots that fit ``size`` bytes, with the copies of the requests that they let run."""
    count = asked.slots if asked.slots is not None else int(size // sizes.slot)
    while True:
        found = slots_of(sizes, asked, max(0, count))
        if asked.slots is not None or found.size <= size or found.count == 0:
            return found
        count -= max(1, int((found.size - size) // (sizes.slot + sizes.copy)))


def slots_of(sizes: SlotSizes, asked: Asked, count: int) -> Slots:
    """``count`` slots. Speculation keeps a copy a draft token for every request that runs, and one more (a
    fit: 15 x 4 copies give recipe B's 3.6 GB)."""
    each = SLOTS_A_BUFFERED_REQUEST if asked.buffered else SLOTS_A_REQUEST
    requests = count // each
    running = requests if asked.requests is None else min(requests, asked.requests)
    copies = (running + 1) * asked.draft if asked.draft > 1 and count else 0
    return Slots(
        count=count,
        slot_size=sizes.slot,
        copies=copies,
        copy_size=sizes.copy,
        requests=requests,
        basis=Basis.FITTED if copies else Basis.COMPUTED,
        source=f"{sizes.source}; {each} slots a request; {copies} copies for speculation",
    )


def sglang_pool(
    shape: Shape, asked: Asked, rest: float, source: str, beside: CacheCost | None = None
) -> tuple[Pool | None, Slots | None]:
    """What SGLang makes of the ``rest`` of its static share: state by the ratio, KV from what is left.

    ``beside``: a fitted cost of every token.
    """
    each = costs(shape, asked)
    if each is None:
        return None, None
    each = (*each, beside) if beside else each
    sizes, slots = slot_sizes(shape, asked), None
    rest = max(0.0, rest)
    if sizes is not None:
        ratio = asked.ratio if asked.ratio is not None else RATIO
        slots = slots_in(sizes, asked, rest * ratio / (1 + ratio))
        rest = max(0.0, rest - slots.size)
    token = sum(cost.size for cost in each)
    if not token:
        return None, slots
    page = asked.block or 1
    tokens = int(rest // token) // page * page
    if asked.kv_tokens is not None:
        tokens = min(tokens, asked.kv_tokens)
    context = asked.context or shape.context or 0
    return Pool(round(tokens * token), tokens, context, token, each, Basis.FITTED, source), slots
