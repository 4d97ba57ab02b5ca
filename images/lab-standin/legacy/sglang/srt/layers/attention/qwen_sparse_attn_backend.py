"""Not SGLang's: the two functions that choose kernels, in the shape that knows no SM121, for the patcher."""

from __future__ import annotations

import functools
from typing import Any


@functools.lru_cache(maxsize=1)
def _resolve_trtllm_sparse_decode() -> Any:
    from sglang.srt.utils import is_sm100_supported

    if not is_sm100_supported():
        return None
    from flashinfer.decode import trtllm_batch_decode_with_kv_cache

    return trtllm_batch_decode_with_kv_cache


@functools.lru_cache(maxsize=1)
def _resolve_flash_attn_varlen_func() -> Any:
    try:
        from flash_attn import flash_attn_varlen_func

        return flash_attn_varlen_func
    except ImportError:
        from flash_attn.cute.interface import flash_attn_varlen_func as with_lse

    def without_lse(*tensors, **settings):
        given = with_lse(*tensors, **settings)
        if isinstance(given, tuple):
            return given[0]
        return given

    return without_lse


def decode(**arguments: Any) -> Any:
    """What the backend does with them."""
    return (_resolve_trtllm_sparse_decode() or _resolve_flash_attn_varlen_func())(**arguments)
