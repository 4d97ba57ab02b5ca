"""Compiles every variant of the kernels for SM121, without a GPU, and prints a JSON line for each.

`python -m tests.images.qsa_compile_sm121`, without TRITON_INTERPRET in the environment. It needs no CUDA:
Triton's wheel brings ptxas and cuobjdump. A line holds the variant, shared (bytes), registers, stack and
local (bytes a thread; not 0 means spills), async_copies (16-byte copies that run beside the arithmetic).
"""

from __future__ import annotations

import json
import multiprocessing
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tests.images.qsa_reference import load_kernel

qsa = load_kernel()
SM121 = GPUTarget("cuda", 121, 32)
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


@dataclass(frozen=True)
class Variant:
    """What of a call the compiler sees; types in Triton's words."""

    query: str = "bf16"
    keys: str = "bf16"
    head_dim: int = 256
    splits: int = 12
    causal: bool = True
    aligned: bool = True
    """Pointers and strides are multiples of 16, as in the backend's calls."""


def variants() -> Iterator[Variant]:
    """The backend's own shape in all types, and the outliers that could need more memory or registers."""
    for query in ("bf16", "fp16"):
        for keys in (query, "fp8e4nv", "fp8e5"):
            yield Variant(query=query, keys=keys)
            yield Variant(query=query, keys=keys, splits=1)
    for head_dim in (192, 128, 80, 16):
        yield Variant(head_dim=head_dim)
    yield Variant(splits=qsa.MAX_SPLITS)
    yield Variant(causal=False)
    for head_dim in (256, 250):
        yield Variant(head_dim=head_dim, aligned=False)
        yield Variant(head_dim=head_dim, aligned=False, keys="fp8e4nv")


def compile_attend(variant: Variant) -> dict[str, Any]:
    result = variant.query if variant.splits == 1 else "fp32"
    pointers = {
        "q_ptr": variant.query,
        "k_ptr": variant.keys,
        "v_ptr": variant.keys,
        "cu_seqlens_q_ptr": "i32",
        "cu_seqlens_k_ptr": "i32",
        "out_ptr": result,
        "lse_ptr": "fp32",
    }
    constants = {
        "q_dim_stride": 1,
        "query_tiles": 1,
        "CAUSAL": variant.causal,
        "GROUP": 12,
        "HEAD_DIM": variant.head_dim,
        "BLOCK_D": qsa.block_d(variant.head_dim),
        "SPLITS": variant.splits,
        "BLOCK_M": qsa.BLOCK_M,
        "BLOCK_N": qsa.BLOCK_N,
    }
    warps = qsa.num_warps(upcast=variant.keys != variant.query, aligned=variant.aligned)
    options = {"num_warps": warps, "num_stages": qsa.NUM_STAGES}
    return _compile(qsa._attend_split, pointers, constants, {"score_scale": "fp32"}, options, variant)


def compile_merge(variant: Variant) -> dict[str, Any]:
    pointers = {
        "partial_ptr": "fp32",
        "lse_ptr": "fp32",
        "cu_seqlens_q_ptr": "i32",
        "cu_seqlens_k_ptr": "i32",
        "out_ptr": variant.query,
    }
    constants = {
        "max_seqlen_q": 1,
        "CAUSAL": variant.causal,
        "HEAD_DIM": variant.head_dim,
        "BLOCK_D": qsa.block_d(variant.head_dim),
        "SPLITS": variant.splits,
        "BLOCK_S": triton.next_power_of_2(variant.splits),
        "BLOCK_N": qsa.BLOCK_N,
    }
    return _compile(qsa._merge_splits, pointers, constants, {}, {}, variant)


def _compile(
    kernel: Any,
    pointers: dict[str, str],
    constants: dict[str, Any],
    floats: dict[str, str],
    options: dict[str, int],
    variant: Variant,
) -> dict[str, Any]:
    """All parameters that are not named here are strides."""
    signature, attributes = {}, {}
    for index, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name] = "constexpr"
        elif name in floats:
            signature[name] = floats[name]
        else:
            signature[name] = f"*{pointers[name]}" if name in pointers else "i32"
            if variant.aligned:
                attributes[(index,)] = [["tt.divisibility", 16]]
    binary = triton.compile(
        ASTSource(kernel, signature, constants, attributes), target=SM121, options=dict(options)
    )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary.asm["cubin"])
        file.flush()
        usage = subprocess.run(
            [CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    resources = {name: int(value) for name, value in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", usage)}
    return {
        "variant": f"{kernel.__name__} {variant}",
        "shared": binary.metadata.shared,
        "registers": resources["REG"],
        "stack": resources["STACK"],
        "local": resources["LOCAL"],
        "async_copies": binary.asm["ptx"].count("cp.async.cg."),
    }


def compile_all(variant: Variant) -> list[dict[str, Any]]:
    """Both kernels of the backend's own types; of the others the one that reads them."""
    found = [compile_attend(variant)]
    if variant.splits > 1 and variant.aligned and variant.query == variant.keys == "bf16":
        found.append(compile_merge(variant))
    return found


if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool() as pool:  # torch is loaded once
        for programs in pool.imap(compile_all, variants()):
            for program in programs:
                print(json.dumps(program), flush=True)
