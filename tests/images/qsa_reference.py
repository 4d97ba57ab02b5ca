"""The kernel module, loaded from the image's build context, and the fp64 attention to compare it with."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import torch

KERNEL_PATH = Path(__file__).parents[2] / "images" / "sglang-sm121" / "qsa_fa_fallback.py"


def load_kernel() -> ModuleType:
    """The module as the image holds it: one file that imports nothing of this project (row B4)."""
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
