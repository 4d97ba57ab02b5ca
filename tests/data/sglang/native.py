"""A QSA backend that has its own kernel for SM121, and leaves TRT-LLM's to those it was checked on."""

from functools import lru_cache

from sglang.srt.utils import is_hip, is_sm100_supported, is_sm120


@lru_cache(maxsize=1)
def _resolve_trtllm_sparse_decode():
    if not (is_sm100_supported() or is_sm120()):
        return None
    from flashinfer.decode import trtllm_batch_decode_with_kv_cache

    return trtllm_batch_decode_with_kv_cache


@lru_cache(maxsize=1)
def _resolve_flash_attn_varlen_func():
    from sglang.srt.utils import is_sm121

    if is_sm121():
        from sglang.kernels.ops.attention import qwen38_qsa_sm121_varlen

        return qwen38_qsa_sm121_varlen
    if is_hip():
        from aiter import flash_attn_varlen_func

        return flash_attn_varlen_func
    try:
        from flash_attn import flash_attn_varlen_func

        return flash_attn_varlen_func
    except ImportError:
        pass
    from flash_attn.cute.interface import flash_attn_varlen_func

    return flash_attn_varlen_func


def decode(**kwargs):
    sparse = _resolve_trtllm_sparse_decode()
    return (sparse or _resolve_flash_attn_varlen_func())(**kwargs)
