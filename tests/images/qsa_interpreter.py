"""Triton's interpreter, on the CPU, with its bfloat16 arithmetic put right.

Import this before the kernel module: `triton.jit` decides at decoration. Wrong in Triton 3.6 to 3.9:
* `tl.dot` of bfloat16 multiplies the 16-bit patterns as integers, without an error;
* float32 to bfloat16 cuts where the hardware rounds to the nearest even, which doubles the error.
"""

from __future__ import annotations

import os
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"
os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # the matrices are tiny, threads would only wait for each other

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

torch.set_num_threads(1)

_original_cast = interpreter.InterpreterBuilder.cast_impl


def _to_float32(handle: Any) -> np.ndarray[Any, Any]:
    if handle.dtype.scalar == tl.bfloat16:
        bits: np.ndarray[Any, Any] = handle.data.astype(np.uint32) << 16
        return bits.view(np.float32)
    return np.asarray(handle.data, dtype=np.float32)


def _dot(
    self: Any, a: Any, b: Any, accumulator: Any, input_precision: Any, max_num_imprecise_acc: Any
) -> interpreter.TensorHandle:
    return interpreter.TensorHandle(
        np.matmul(_to_float32(a), _to_float32(b)) + accumulator.data, accumulator.dtype.scalar
    )


def _cast(self: Any, source: Any, target: Any) -> interpreter.TensorHandle:
    if source.dtype.scalar == tl.float32 and target.scalar == tl.bfloat16:
        rounded = torch.from_numpy(np.ascontiguousarray(source.data)).to(torch.bfloat16)
        return interpreter.TensorHandle(rounded.view(torch.uint16).numpy(), tl.bfloat16)
    return _original_cast(self, source, target)


interpreter.InterpreterBuilder.create_dot = _dot
interpreter.InterpreterBuilder.cast_impl = _cast
