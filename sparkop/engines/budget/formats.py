"""Bytes of stored numbers, with their scales."""

from __future__ import annotations

from sparkop.records import dataclass


@dataclass(frozen=True)
class Format:
    """Numbers of ``bits`` bits; with ``group``, a scale of one byte for so many of them."""

    name: str
    bits: int
    group: int = 0

    def size(self, values: int) -> float:
        """Bytes of ``values`` numbers."""
        return values * self.bits / 8 + (values / self.group if self.group else 0)

    @property
    def text(self) -> str:
        return f"{self.name} with a scale per {self.group}" if self.group else self.name


BF16 = Format("bf16", 16)
FP32 = Format("fp32", 32)
FP8 = Format("fp8", 8)
FP8_32 = Format("fp8", 8, 32)
FP4_16 = Format("fp4", 4, 16)
"""NVFP4: e4m3 scales."""
FP4_32 = Format("fp4", 4, 32)
"""MXFP4: e8m0 scales."""

_BY_NAME = {
    "auto": BF16,
    "bf16": BF16,
    "bfloat16": BF16,
    "float16": BF16,
    "fp16": BF16,
    "half": BF16,
    "float32": FP32,
    "fp32": FP32,
    "fp8": FP8,
    "fp8_e4m3": FP8,
    "fp8_e5m2": FP8,
    "mxfp8": FP8_32,
    "nvfp4": FP4_16,
    "fp4_mx_block16": FP4_16,
    "fp4": FP4_32,
    "mxfp4": FP4_32,
    "modelopt_fp4": FP4_16,
}


def named(name: str | None) -> Format | None:
    """The format of an engine's or a checkpoint's name for it; bf16 for None; None when it is not known."""
    return BF16 if name is None else _BY_NAME.get(name.lower())
