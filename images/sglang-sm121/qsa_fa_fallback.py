"""Variable-length attention for the sparse decode step of SGLang's QSA backend, for SM121 (row B4).

The backend selects at most `max_seqlen_k` (2048 to 2051) keys for each query row, gathers them into
packed `k` and `v`, and calls `qsa_varlen_attention` where it would call FlashAttention's varlen function.
One query row is one "sequence"; draft tokens are further rows. The work is bound by memory: all keys and
values are read once, and each serves only the few query heads of its group.

Algorithm (FlashDecoding: split KV, online softmax, merge by log-sum-exp)
-------------------------------------------------------------------------
1. Packed heads. The query heads that share one KV head, times the query tokens of the sequence, form
   packed rows; `BLOCK_M` = 16 of them (the height of a tensor-core tile) make a query tile, and one
   program handles one tile. With one query row and a group of 12 each key is read once, not twelve times.
2. Split KV. The keys of a sequence are cut into `SPLITS` runs of whole blocks of `BLOCK_N` keys, of equal
   length to within a block, one program each: so a few rows keep the whole GPU reading. `SPLITS` comes
   from host integers alone (a captured CUDA graph freezes it). Where the runs begin and end comes from
   `cu_seqlens_k` on the device, so a replay follows lengths that were rewritten in place. A program with
   an empty run leaves.
3. Online softmax. Each program walks its blocks with a running maximum and a running sum, in base 2
   (log2(e) is folded into the scale). Blocks that every row sees entirely take no mask; the last one
   masks its loads, so nothing behind a sequence's keys is ever read (it may be NaN).
4. Merge. Each split leaves a normalised partial result and its log-sum-exp in fp32 scratch. A second,
   small kernel weighs the splits by their log-sum-exp. It derives from `cu_seqlens_k` which splits wrote,
   so the scratch needs no clearing. With one split the first kernel writes the result itself.

Causal masking is aligned bottom-right, as in FlashAttention: the last query token sees all keys. A row
that sees no key gives zeros. Nothing here synchronises with the host, and scratch comes from torch's
allocator, so a call can be captured; one call of the same shape before that compiles the kernels.
"""

# ruff: noqa: N803, N806  (compile-time constants are upper case in Triton)

from __future__ import annotations

import dataclasses
import functools

import torch
import triton
import triton.language as tl

# One configuration for all shapes. With head dimension 256 in 16 bits it takes 75,776 bytes of shared memory;
# SM121 gives a program 101,376. docs/explanation/qsa-kernel.md has the alternatives.
BLOCK_M = 16
"""Packed query rows of a program: the least that `tl.dot` takes, and enough for a group of 12 heads."""
BLOCK_N = 64
"""Keys of a block."""
NUM_STAGES = 2
MAX_HEAD_DIM = 256

# What the split count is derived from, see `choose_splits`.
PROGRAM_SHARED_BYTES = 75_776 + 1_024
"""The most that a program takes of an SM's shared memory; the driver keeps 1 KiB for each."""
PROGRAM_BYTES_PER_SECOND = 36e9
"""What a program that has the memory for itself reads; bound by latency, measured on an H200."""
MAX_SPLITS = 64
"""The merge holds all splits of a head in registers at once."""

_QUERY_TYPES = (torch.float16, torch.bfloat16)
_FP8_TYPES = (torch.float8_e4m3fn, torch.float8_e5m2)
_LOG2_E = 1.4426950408889634

# No score can be this low. It is finite, because -inf - -inf would be NaN.
_LOWEST = tl.constexpr(-1.0e30)


@triton.jit
def _visible_keys(key_count, query_count, token, CAUSAL: tl.constexpr):
    """How many leading keys of its sequence the query token sees; can be negative."""
    if CAUSAL:
        return key_count - query_count + token + 1
    else:
        return key_count


@triton.jit
def _split_bounds(key_count, split, SPLITS: tl.constexpr, BLOCK_N: tl.constexpr):
    """First key of the split and of the next one; both kernels must cut a sequence alike."""
    blocks = tl.cdiv(key_count, BLOCK_N)
    return split * blocks // SPLITS * BLOCK_N, (split + 1) * blocks // SPLITS * BLOCK_N


@triton.jit
def _load_block(pointers, key_exists, dim_exists, MASK_KEYS: tl.constexpr, MASK_DIMS: tl.constexpr):
    if MASK_KEYS:
        return tl.load(pointers, mask=key_exists[:, None] & dim_exists[None, :], other=0.0)
    elif MASK_DIMS:
        return tl.load(pointers, mask=dim_exists[None, :], other=0.0)
    else:
        return tl.load(pointers)


@triton.jit
def _attend_block(
    accumulator,  # fp32 [BLOCK_M, BLOCK_D], not yet divided by row_sum
    row_max,
    row_sum,
    query,
    k_pointers,  # of the first block of the sequence, [BLOCK_N, BLOCK_D]
    v_pointers,
    k_row_stride,
    v_row_stride,
    score_scale,
    first_key,
    end_key,
    visible_keys,  # per packed row
    dim_exists,
    MASK_KEYS: tl.constexpr,
    MASK_DIMS: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One step of the online softmax: fold keys [first_key, first_key + BLOCK_N) into the running result."""
    key_index = first_key + tl.arange(0, BLOCK_N)
    key_exists = key_index < end_key
    block = tl.cast(first_key, tl.int64)
    keys = _load_block(k_pointers + block * k_row_stride, key_exists, dim_exists, MASK_KEYS, MASK_DIMS)
    scores = tl.dot(query, tl.trans(keys.to(query.dtype))) * score_scale
    if MASK_KEYS:
        sees_key = key_exists[None, :] & (key_index[None, :] < visible_keys[:, None])
        scores = tl.where(sees_key, scores, _LOWEST)
    new_max = tl.maximum(row_max, tl.max(scores, axis=1))
    weights = tl.exp2(scores - new_max[:, None])
    if MASK_KEYS:
        # A row that has seen no key yet has the maximum _LOWEST, and exp2(0) is not 0.
        weights = tl.where(sees_key, weights, 0.0)
    rescale = tl.exp2(row_max - new_max)
    values = _load_block(v_pointers + block * v_row_stride, key_exists, dim_exists, MASK_KEYS, MASK_DIMS)
    accumulator = tl.dot(weights.to(query.dtype), values.to(query.dtype), accumulator * rescale[:, None])
    return accumulator, new_max, row_sum * rescale + tl.sum(weights, axis=1)


@triton.jit
def _attend_split(
    q_ptr,
    k_ptr,
    v_ptr,
    cu_seqlens_q_ptr,
    cu_seqlens_k_ptr,
    out_ptr,  # [query rows, query heads, SPLITS, HEAD_DIM]: fp32 partial results; if SPLITS is 1, the result
    lse_ptr,  # fp32 [query rows, query heads, SPLITS], base 2; unused if SPLITS is 1
    score_scale,  # softmax scale * log2(e)
    q_row_stride,
    q_head_stride,
    q_dim_stride,
    k_row_stride,
    k_head_stride,
    v_row_stride,
    v_head_stride,
    query_tiles,  # per sequence and KV head
    CAUSAL: tl.constexpr,
    GROUP: tl.constexpr,  # query heads per KV head
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,  # HEAD_DIM rounded up to a power of two
    SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One query tile against one split of its keys. Grid: (sequences * query_tiles, KV heads, SPLITS)."""
    sequence = tl.program_id(0) // query_tiles
    tile = tl.program_id(0) % query_tiles
    kv_head = tl.program_id(1)
    split = tl.program_id(2)

    query_start = tl.load(cu_seqlens_q_ptr + sequence)
    query_count = tl.load(cu_seqlens_q_ptr + sequence + 1) - query_start
    key_start = tl.load(cu_seqlens_k_ptr + sequence)
    key_count = tl.load(cu_seqlens_k_ptr + sequence + 1) - key_start

    first_token = tile * BLOCK_M // GROUP
    last_token = tl.minimum(((tile + 1) * BLOCK_M - 1) // GROUP, query_count - 1)
    if first_token > last_token:
        return
    begin, end = _split_bounds(key_count, split, SPLITS, BLOCK_N)
    end = tl.minimum(end, _visible_keys(key_count, query_count, last_token, CAUSAL))
    if (SPLITS > 1) and (begin >= end):
        return
    seen_by_all = tl.minimum(end, _visible_keys(key_count, query_count, first_token, CAUSAL))
    mask_from = begin + tl.maximum(seen_by_all - begin, 0) // BLOCK_N * BLOCK_N

    packed_row = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    token = packed_row // GROUP
    head = kv_head * GROUP + packed_row % GROUP
    row_exists = token < query_count
    visible_keys = _visible_keys(key_count, query_count, token, CAUSAL) + tl.zeros_like(token)
    query_row = (query_start + token).to(tl.int64)
    dim = tl.arange(0, BLOCK_D)
    dim_exists = dim < HEAD_DIM

    query_offset = query_row * q_row_stride + head.to(tl.int64) * q_head_stride
    query = tl.load(
        q_ptr + query_offset[:, None] + (dim.to(tl.int64) * q_dim_stride)[None, :],
        mask=row_exists[:, None] & dim_exists[None, :],
        other=0.0,
    )
    key_in_block = tl.arange(0, BLOCK_N).to(tl.int64)
    k_base = k_ptr + key_start.to(tl.int64) * k_row_stride + kv_head.to(tl.int64) * k_head_stride
    v_base = v_ptr + key_start.to(tl.int64) * v_row_stride + kv_head.to(tl.int64) * v_head_stride
    k_pointers = k_base + (key_in_block * k_row_stride)[:, None] + dim[None, :]
    v_pointers = v_base + (key_in_block * v_row_stride)[:, None] + dim[None, :]

    accumulator = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    row_max = tl.full([BLOCK_M], _LOWEST, tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    MASK_DIMS: tl.constexpr = HEAD_DIM < BLOCK_D
    for first_key in range(begin, mask_from, BLOCK_N):
        accumulator, row_max, row_sum = _attend_block(
            accumulator, row_max, row_sum, query, k_pointers, v_pointers, k_row_stride, v_row_stride,
            score_scale, first_key, end, visible_keys, dim_exists, False, MASK_DIMS, BLOCK_N,
        )  # fmt: skip
    # One block, more only for the diagonal of several causal query tokens: not worth a pipeline.
    for first_key in tl.range(mask_from, end, BLOCK_N, num_stages=1):
        accumulator, row_max, row_sum = _attend_block(
            accumulator, row_max, row_sum, query, k_pointers, v_pointers, k_row_stride, v_row_stride,
            score_scale, first_key, end, visible_keys, dim_exists, True, MASK_DIMS, BLOCK_N,
        )  # fmt: skip

    divisor = tl.where(row_sum > 0.0, row_sum, 1.0)
    result = accumulator / divisor[:, None]
    slot = (query_row * (tl.num_programs(1) * GROUP) + head) * SPLITS + split
    tl.store(
        out_ptr + (slot * HEAD_DIM)[:, None] + dim[None, :],
        result.to(out_ptr.dtype.element_ty),
        mask=row_exists[:, None] & dim_exists[None, :],
    )
    if SPLITS > 1:
        tl.store(lse_ptr + slot, row_max + tl.log2(divisor), mask=row_exists)


@triton.jit
def _merge_splits(
    partial_ptr,  # fp32 [query rows, query heads, SPLITS, HEAD_DIM]
    lse_ptr,  # fp32 [query rows, query heads, SPLITS], base 2
    cu_seqlens_q_ptr,
    cu_seqlens_k_ptr,
    out_ptr,  # [query rows, query heads, HEAD_DIM]
    max_seqlen_q,
    CAUSAL: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_S: tl.constexpr,  # SPLITS rounded up to a power of two
    BLOCK_N: tl.constexpr,
):
    """Mean of a query head's splits, weighted by 2 ** lse. Grid: (sequences * max_seqlen_q, query heads)."""
    sequence = tl.program_id(0) // max_seqlen_q
    token = tl.program_id(0) % max_seqlen_q
    query_start = tl.load(cu_seqlens_q_ptr + sequence)
    query_count = tl.load(cu_seqlens_q_ptr + sequence + 1) - query_start
    key_count = tl.load(cu_seqlens_k_ptr + sequence + 1) - tl.load(cu_seqlens_k_ptr + sequence)
    if token >= query_count:
        return

    split = tl.arange(0, BLOCK_S)
    begin, end = _split_bounds(key_count, split, SPLITS, BLOCK_N)
    end = tl.minimum(end, _visible_keys(key_count, query_count, token, CAUSAL))
    written = (split < SPLITS) & (begin < end)
    row = (query_start + token).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    slot = row * SPLITS + split
    dim = tl.arange(0, BLOCK_D)
    dim_exists = dim < HEAD_DIM

    lse = tl.load(lse_ptr + slot, mask=written, other=_LOWEST)
    weight = tl.where(written, tl.exp2(lse - tl.max(lse, axis=0)), 0.0)
    partial = tl.load(
        partial_ptr + (slot * HEAD_DIM)[:, None] + dim[None, :],
        mask=written[:, None] & dim_exists[None, :],
        other=0.0,
    )
    weight_sum = tl.sum(weight, axis=0)
    result = tl.sum(weight[:, None] * partial, axis=0) / tl.where(weight_sum > 0.0, weight_sum, 1.0)
    tl.store(out_ptr + row * HEAD_DIM + dim, result.to(out_ptr.dtype.element_ty), mask=dim_exists)


@dataclasses.dataclass(frozen=True)
class Device:
    """What the split count depends on."""

    sm_count: int
    memory_bytes_per_second: float
    shared_memory_bytes: int
    """The most that one program may ask for; nearly all that an SM has."""


GB10 = Device(sm_count=48, memory_bytes_per_second=273e9, shared_memory_bytes=101_376)


@functools.cache
def device_properties(device: torch.device) -> Device:
    """Of a GPU, from the driver; on the CPU (Triton's interpreter) those of the machine this is made for."""
    if device.type == "cpu":
        return GB10
    properties = triton.runtime.driver.active.utils.get_device_properties(device.index)
    # Double data rate; the clock is in kHz, the width in bits. An integrated GPU may report no memory clock.
    bandwidth = 2.0 * properties["mem_clock_rate"] * 1e3 * properties["mem_bus_width"] / 8
    return Device(
        sm_count=properties["multiprocessor_count"],
        memory_bytes_per_second=bandwidth or GB10.memory_bytes_per_second,
        shared_memory_bytes=properties["max_shared_mem"],
    )


def choose_splits(device: Device, tiles: int, max_seqlen_k: int) -> int:
    """Into how many splits to cut the keys, for `tiles` query tiles of all sequences and KV heads together.

    Programs wanted per SM: twice its share of the memory's bandwidth over what a program reads (twice,
    because programs slow each other down), but at least one, and no more than are resident at once. The tiles
    share them; rounding down keeps every SM at the same number. No more than a split for each block.
    """
    sm_share = device.memory_bytes_per_second / device.sm_count
    resident = max(1, device.shared_memory_bytes // PROGRAM_SHARED_BYTES)
    per_sm = min(max(1, round(2.0 * sm_share / PROGRAM_BYTES_PER_SECOND)), resident)
    wanted = per_sm * device.sm_count // max(1, tiles)
    return int(max(1, min(wanted, triton.cdiv(max_seqlen_k, BLOCK_N), MAX_SPLITS)))


def qsa_varlen_attention(
    *,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float,
    causal: bool,
) -> torch.Tensor:
    """Attention of packed query rows to packed keys and values, sequence by sequence.

    q [query rows, query heads, head dim]: float16 or bfloat16, any strides.
    k, v [packed rows, KV heads, head dim]: q's type, float8_e4m3fn or float8_e5m2; the last dimension
        contiguous. Rows at and behind cu_seqlens_k[-1] are never read.
    cu_seqlens_q, cu_seqlens_k [sequences + 1]: int32 prefix sums on q's device.
    max_seqlen_q: upper bound of the query rows of a sequence.
    max_seqlen_k: upper bound of the keys of a sequence; only the split count depends on it.
    causal: aligned bottom-right; changes nothing for one query row per sequence.

    Returns [query rows, query heads, head dim], contiguous, in q's type. A row without keys is zero; a row of
    no sequence, behind cu_seqlens_q[-1], is left unwritten.
    Raises ValueError or TypeError for what the kernel can't do, judged by shapes and types, not device data.
    """
    _check(q, k, v, cu_seqlens_q, cu_seqlens_k)
    tiles = (cu_seqlens_q.shape[0] - 1) * k.shape[1] * _query_tiles(q, k, max_seqlen_q)
    splits = choose_splits(device_properties(q.device), tiles, max_seqlen_k)
    with torch.cuda.device_of(q):
        return attend(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, softmax_scale, causal, splits)


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    softmax_scale: float,
    causal: bool,
    splits: int,
) -> torch.Tensor:
    """`qsa_varlen_attention` with a given split count, without its checks."""
    query_rows, query_heads, head_dim = q.shape
    kv_heads = k.shape[1]
    sequences = cu_seqlens_q.shape[0] - 1
    query_tiles = _query_tiles(q, k, max_seqlen_q)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if sequences * query_tiles * query_heads == 0:
        return out
    partial, lse = out, out
    if splits > 1:
        partial = out.new_empty((query_rows, query_heads, splits, head_dim), dtype=torch.float32)
        lse = out.new_empty((query_rows, query_heads, splits), dtype=torch.float32)
    _attend_split[(sequences * query_tiles, kv_heads, splits)](
        q, k, v, cu_seqlens_q, cu_seqlens_k, partial, lse,
        softmax_scale * _LOG2_E,
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        query_tiles,
        CAUSAL=causal, GROUP=query_heads // kv_heads, HEAD_DIM=head_dim, BLOCK_D=block_d(head_dim),
        SPLITS=splits, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,
        num_warps=num_warps(upcast=k.dtype != q.dtype, aligned=_aligned(k) and _aligned(v)),
        num_stages=NUM_STAGES,
    )  # fmt: skip
    if splits > 1:
        _merge_splits[(sequences * max_seqlen_q, query_heads)](
            partial, lse, cu_seqlens_q, cu_seqlens_k, out, max_seqlen_q,
            CAUSAL=causal, HEAD_DIM=head_dim, BLOCK_D=block_d(head_dim),
            SPLITS=splits, BLOCK_S=triton.next_power_of_2(splits), BLOCK_N=BLOCK_N,
        )  # fmt: skip
    return out


def block_d(head_dim: int) -> int:
    """The head dimension as the kernels hold it: a power of two, and no less than `tl.dot` takes."""
    return int(max(16, triton.next_power_of_2(head_dim)))


def num_warps(*, upcast: bool, aligned: bool) -> int:
    """Four are the fastest while keys go straight to shared memory. Where they pass through registers,
    because they are upcast or because rows are not aligned, four would spill.
    """
    return 8 if upcast or not aligned else 4


def _aligned(rows: torch.Tensor) -> bool:
    """Whether the compiler may copy 16 bytes at a time: it asks of each number whether 16 divides it."""
    return all(number % 16 == 0 for number in (rows.data_ptr(), *rows.stride()[:2], rows.shape[2]))


def _query_tiles(q: torch.Tensor, k: torch.Tensor, max_seqlen_q: int) -> int:
    """Tiles of packed rows for each sequence and KV head."""
    return int(triton.cdiv(max_seqlen_q * (q.shape[1] // k.shape[1]), BLOCK_M))


def _check(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor
) -> None:
    if q.dtype not in _QUERY_TYPES:
        raise TypeError(f"q is {q.dtype}; float16 and bfloat16 are supported")
    if k.dtype != v.dtype or k.dtype not in (q.dtype, *_FP8_TYPES):
        raise TypeError(f"k is {k.dtype} and v is {v.dtype}; both must be {q.dtype} like q, or one fp8 type")
    if cu_seqlens_q.dtype != torch.int32 or cu_seqlens_k.dtype != torch.int32:
        raise TypeError(f"cu_seqlens are {cu_seqlens_q.dtype} and {cu_seqlens_k.dtype}; both must be int32")
    if q.dim() != 3 or k.dim() != 3 or k.shape != v.shape or q.shape[2] != k.shape[2]:
        raise ValueError(f"shapes do not fit: q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}")
    if not 1 <= q.shape[2] <= MAX_HEAD_DIM:
        raise ValueError(f"head dimension {q.shape[2]} is not in 1 to {MAX_HEAD_DIM}")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1] != 0:
        raise ValueError(f"{q.shape[1]} query heads are no multiple of {k.shape[1]} KV heads")
    if k.stride(2) != 1 or v.stride(2) != 1:
        raise ValueError("the last dimension of k and v must be contiguous")
    if cu_seqlens_q.dim() != 1 or cu_seqlens_q.shape != cu_seqlens_k.shape or cu_seqlens_q.shape[0] == 0:
        raise ValueError(f"cu_seqlens do not fit: {tuple(cu_seqlens_q.shape)}, {tuple(cu_seqlens_k.shape)}")
    if not (cu_seqlens_q.is_contiguous() and cu_seqlens_k.is_contiguous()):
        raise ValueError("cu_seqlens must be contiguous")
    if len({tensor.device for tensor in (q, k, v, cu_seqlens_q, cu_seqlens_k)}) != 1:
        raise ValueError("all tensors must be on one device")
