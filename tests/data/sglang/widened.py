"""A QSA backend that gives SM121 the sparse decode that emits token 0 there."""

from functools import lru_cache

PAGE = 64


@lru_cache(maxsize=1)
def _resolve_trtllm_sparse_decode():
    from sglang.srt.utils import is_sm100_supported, is_sm121

    if not (is_sm100_supported() or is_sm121()):
        return None
    try:
        from flashinfer.decode import trtllm_batch_decode_with_kv_cache
    except ImportError:
        return None
    return trtllm_batch_decode_with_kv_cache


@lru_cache(maxsize=1)
def _resolve_flash_attn_varlen_func():
    """FA2 where it is installed, else FA4."""
    try:
        from flash_attn import flash_attn_varlen_func

        return flash_attn_varlen_func
    except ImportError:
        pass
    try:
        from flash_attn.cute.interface import flash_attn_varlen_func as cute

        def first_result(*args, **kwargs):
            results = cute(*args, **kwargs)
            return results[0] if isinstance(results, tuple) else results

        return first_result
    except ImportError as missing:
        raise ImportError("install flash_attn") from missing


class Backend:
    def decode(self, **kwargs):
        sparse = _resolve_trtllm_sparse_decode()
        if sparse is not None:
            return sparse(**kwargs)
        return _resolve_flash_attn_varlen_func()(**kwargs)
