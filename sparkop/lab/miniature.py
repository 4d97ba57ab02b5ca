"""A checkpoint of the shape of recipe A's, a few hundred kilobytes large, for the lab's hub.

Six native shards of which the last two come in parts, their hashes in sha256sum format, an EXL3 plan with
three bank folders, an index. Every tensor file is valid. The same bytes each time, so that a spec can name
the commit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

REPOSITORY = "sparkop/miniature-recipe-a"
PLAN = "J268-ho-v31-K5n.json"
"""The name of the recipe's own plan."""
SHARDS = 6
IN_PARTS = (5, 6)
PARTS = 3
LAYERS = range(3, 8)
"""Layers that have EXL3 banks."""
BANKS = ("qn", "q31", "q31s")
SHARD_NUMBERS = 12_000
BANK_NUMBERS = 3_000
"""Numbers in a file's tensor; two bytes each."""


def miniature() -> dict[str, bytes]:
    """Every file of the repository by its path."""
    shards = {shard_name(n): _safetensors(f"model.shard{n}.weight", SHARD_NUMBERS) for n in _numbers()}
    manifest = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in shards.items())
    files = {
        "config.json": _json(_CONFIG),
        "generation_config.json": _json({"do_sample": True, "temperature": 1.0}),
        "model.safetensors.index.json": _json(_index(shards)),
        "sha256-manifest.txt": manifest.encode(),
        f"exl3/plan/{PLAN}": _json(_plan()),
    }
    for number, (name, data) in zip(_numbers(), shards.items(), strict=True):
        files |= _parts(name, data) if number in IN_PARTS else {name: data}
    for bank in BANKS:
        for layer in LAYERS:
            tensor = f"{bank}.layers.{layer}.experts.trellis"
            files[f"exl3/{bank}/L{layer:02d}.part.safetensors"] = _safetensors(tensor, BANK_NUMBERS)
    return files


def shard_name(number: int) -> str:
    """``model-00005-of-00006.safetensors``."""
    return f"model-{number:05d}-of-{SHARDS:05d}.safetensors"


_CONFIG: Mapping[str, object] = {
    "architectures": ["DeepseekV41ForCausalLM"],
    "model_type": "deepseek_v41",
    "max_position_embeddings": 1_048_576,
    "torch_dtype": "bfloat16",
}


def _numbers() -> range:
    return range(1, SHARDS + 1)


def _parts(name: str, data: bytes) -> dict[str, bytes]:
    size = -(-len(data) // PARTS)
    return {f"{name}.part{n:02d}": data[n * size : (n + 1) * size] for n in range(PARTS)}


def _index(shards: Mapping[str, bytes]) -> dict[str, object]:
    weights = {f"model.shard{number}.weight": shard_name(number) for number in _numbers()}
    return {"metadata": {"total_size": 2 * SHARD_NUMBERS * len(shards)}, "weight_map": weights}


def _plan() -> dict[str, object]:
    chosen = {str(layer): BANKS[number % len(BANKS)] for number, layer in enumerate(LAYERS)}
    return {"qdir": ":".join(BANKS), "layers": chosen}


def _safetensors(tensor: str, numbers: int) -> bytes:
    """One BF16 tensor, its bytes made from its name."""
    entry = {"dtype": "BF16", "shape": [numbers], "data_offsets": [0, 2 * numbers]}
    header = json.dumps({tensor: entry}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # the format's alignment
    data = hashlib.shake_256(tensor.encode()).digest(2 * numbers)
    return len(header).to_bytes(8, "little") + header + data


def _json(document: Mapping[str, object]) -> bytes:
    return (json.dumps(document, indent=1) + "\n").encode()
