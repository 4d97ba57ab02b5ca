"""How many tokens a KV cache holds, as vLLM counts them: blocks over its layers, by one request's need."""

from __future__ import annotations

import math
from typing import Any


def pool_of(
    config: dict[str, Any], size: int, *, context: int, shards: int, block: int, batch: int, dtype: str
) -> int | None:
    """``size`` in bytes; None for a model whose configuration does not say what a token takes."""
    text = config.get("text_config") or config
    layers, heads = text.get("num_hidden_layers"), text.get("num_key_value_heads")
    if not layers or not heads:
        return None
    width = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
    sliding = sum(kind == "sliding_attention" for kind in text.get("layer_types") or ())
    full = layers - sliding
    together = min(full, sliding) or max(full, sliding)
    page = 2 * (1 if "fp8" in dtype else 2) * block * width * max(1, -(-heads // shards))
    blocks = size // (together * page)
    request = math.ceil(full / together) * math.ceil(context / block)
    if sliding:
        held = min(text["sliding_window"] - 1 + batch, context)
        request += math.ceil(sliding / together) * (math.ceil(held / block) + 1)
    return blocks * context // request
