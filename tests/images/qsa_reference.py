"""The kernel module, loaded from the image's build context, the fp64 attention to compare it with, and cases.

Imports torch and triton only: the tests run the cases on the CPU, the benchmark runs them on a GPU.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

KERNEL_PATH = Path(__file__).parents[2] / "images" / "sglang-sm121" / "qsa_fa_fallback.py"


def load_kernel() -> ModuleType:
    """The module as the image holds it: one file that imports nothing of this project."""
    name = "qsa_fa_fallback"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, KERNEL_PATH)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def attention_fp64(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    query_counts: list[int],
    key_counts: list[int],
    softmax_scale: float,
    causal: bool,
) -> torch.Tensor:
    """Each sequence by itself, in float64, by the definition; [query rows, query heads, head dim].

    The counts are those of each sequence. Keys behind the last sequence are not touched. A query that sees no
    key gives zeros.
    """
    group = q.shape[1] // k.shape[1]
    out = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    query_start = key_start = 0
    for query_count, key_count in zip(query_counts, key_counts, strict=True):
        rows = slice(query_start, query_start + query_count)
        keys = k[key_start : key_start + key_count].double().repeat_interleave(group, dim=1)
        values = v[key_start : key_start + key_count].double().repeat_interleave(group, dim=1)
        scores = torch.einsum("qhd,khd->hqk", q[rows].double(), keys) * softmax_scale
        if causal:
            token = torch.arange(query_count, device=q.device)[:, None]
            key = torch.arange(key_count, device=q.device)[None, :]
            scores = scores.masked_fill(key > token + key_count - query_count, -torch.inf)
        weights = torch.nan_to_num(torch.softmax(scores, dim=-1), nan=0.0)
        out[rows] = torch.einsum("hqk,khd->qhd", weights, values)
        query_start += query_count
        key_start += key_count
    return out


def relative_error(result: torch.Tensor, reference: torch.Tensor) -> float:
    """Frobenius norm of the difference over that of the reference; NaN anywhere gives NaN, never a pass."""
    difference = torch.linalg.vector_norm(result.double() - reference)
    return float(difference / torch.linalg.vector_norm(reference).clamp(min=1e-30))


BF16, FP16 = torch.bfloat16, torch.float16
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
TOLERANCE = {BF16: 4e-3, FP16: 5e-4}
"""Of the relative error, by the type of the result."""


@dataclass(frozen=True)
class Case:
    """A call of the kernel, described; sequences are given by their counts of queries and keys."""

    name: str
    query_counts: tuple[int, ...]
    key_counts: tuple[int, ...]
    heads: tuple[int, int] = (12, 1)
    head_dim: int = 256
    dtype: torch.dtype = BF16
    kv_dtype: torch.dtype | None = None
    """None: as `dtype`."""
    causal: bool = True
    softmax_scale: float | None = None
    """None: 1 / sqrt(head_dim)."""
    splits: int = 2
    seed: int = 0

    def arguments(self, device: str = "cpu") -> dict[str, Any]:
        """The call's arguments. Rows behind the packed keys and values are NaN, as scratch can be."""
        generator = torch.Generator().manual_seed(self.seed)

        def rows(count: int, heads: int) -> torch.Tensor:
            return torch.randn(count, heads, self.head_dim, generator=generator)

        def packed() -> torch.Tensor:
            behind = torch.full((7, self.heads[1], self.head_dim), torch.nan)
            both = torch.cat([rows(sum(self.key_counts), self.heads[1]), behind])
            return both.to(self.kv_dtype or self.dtype).to(device)

        return {
            "q": rows(sum(self.query_counts), self.heads[0]).to(self.dtype).to(device),
            "k": packed(),
            "v": packed(),
            "cu_seqlens_q": prefix_sums(self.query_counts).to(device),
            "cu_seqlens_k": prefix_sums(self.key_counts).to(device),
            "max_seqlen_q": max(self.query_counts, default=1),
            "max_seqlen_k": max(self.key_counts, default=1),
            "softmax_scale": self.softmax_scale or self.head_dim**-0.5,
            "causal": self.causal,
        }


def prefix_sums(counts: Sequence[int]) -> torch.Tensor:
    return torch.tensor([0, *accumulate(counts)], dtype=torch.int32)


def cases() -> Iterator[Case]:
    """Shapes, types and lengths: what the backend asks for, and what the contract allows besides."""
    block = load_kernel().BLOCK_N
    edges = (0, 1, block - 1, block, block + 1, 0, 3 * block, 5 * block - 1, 0)
    for dtype in (BF16, FP16):
        for splits in (1, 3):
            yield Case(f"block edges, {splits} splits, {dtype}", (1,) * 9, edges, dtype=dtype, splits=splits)
        for kv_dtype in (E4M3, E5M2):
            yield Case(f"{kv_dtype} to {dtype}", (1,) * 3, (70, 0, 33), dtype=dtype, kv_dtype=kv_dtype)
    for heads in ((12, 1), (24, 2)):
        # Beside no row of few keys: its norm would be so large that three keys of 2051 could be left out.
        yield Case(f"2048 and a tail of 3, {heads}", (1, 1), (2051, 0), heads=heads, splits=12)
    yield Case("scores far apart", (1,) * 3, (100, 64, 2), softmax_scale=1.0)
    yield Case("more splits than blocks", (1,) * 3, (100, 2, 0), splits=9)
    for heads, head_dim in (
        ((1, 1), 1), ((3, 3), 8), ((8, 2), 64), ((5, 1), 80), ((16, 1), 96), ((40, 2), 33), ((4, 4), 192),
    ):  # fmt: skip
        yield Case(f"heads {heads}, dimension {head_dim}", (1, 1), (75, 2), heads=heads, head_dim=head_dim)
    # Bottom-right: where queries outnumber keys the first of them see nothing; one sequence has no query.
    for causal in (True, False):
        for splits in (1, 4):
            yield Case(
                f"several tokens, {causal=}, {splits} splits",
                (5, 0, 20, 1, 9), (130, 20, 13, 64, 0),
                heads=(6, 2), head_dim=32, dtype=FP16, causal=causal, splits=splits,
            )  # fmt: skip


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """torch.empty gives NaN, in a captured graph at each replay: what a call leaves unwritten shows."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def attend(arguments: dict[str, Any], splits: int) -> torch.Tensor:
    """The call with a given split count."""
    rest = {name: value for name, value in arguments.items() if name != "max_seqlen_k"}
    result: torch.Tensor = load_kernel().attend(**rest, splits=splits)
    return result


def error_against_fp64(result: torch.Tensor, arguments: dict[str, Any]) -> float:
    """Relative error of a call's result; infinite where a result that should be exactly zero is not."""
    reference = attention_fp64(
        arguments["q"],
        arguments["k"],
        arguments["v"],
        arguments["cu_seqlens_q"].diff().tolist(),
        arguments["cu_seqlens_k"].diff().tolist(),
        arguments["softmax_scale"],
        arguments["causal"],
    )
    if result[reference == 0].count_nonzero() > 0:
        return float("inf")
    return relative_error(result, reference)
