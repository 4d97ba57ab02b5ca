"""A QSA backend that chooses by something that the patcher does not know."""

from functools import lru_cache

from sglang.srt.utils import get_device_sm


@lru_cache(maxsize=1)
def _resolve_trtllm_sparse_decode():
    if get_device_sm() < 100:
        return None
    from flashinfer.decode import trtllm_batch_decode_with_kv_cache

    return trtllm_batch_decode_with_kv_cache


@lru_cache(maxsize=1)
def _resolve_flash_attn_varlen_func():
    from flash_attn import flash_attn_varlen_func

    return flash_attn_varlen_func


def decode(**kwargs):
    sparse = _resolve_trtllm_sparse_decode()
    return (sparse or _resolve_flash_attn_varlen_func())(**kwargs)
