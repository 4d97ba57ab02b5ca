"""Settings that follow from other settings. Pure arithmetic, so that no spec has to repeat it."""

from __future__ import annotations

import math
from typing import Any

from sparkop.spec.engines import SglangEngine, VllmEngine
from sparkop.spec.models import ClusterSpec


def tensor_parallel(spec: ClusterSpec) -> int:
    """Shards of each tensor: as asked, or one a node."""
    return spec.engine.tensor_parallel or len(spec.nodes)


def step_tokens(engine: VllmEngine) -> int:
    """Tokens of one sequence in one decoding step: its drafts and one more."""
    return (engine.speculative.draft_tokens if engine.speculative else 0) + 1


def vllm_capture_sizes(engine: VllmEngine) -> tuple[int, ...]:
    """Batch sizes, in tokens, that get a CUDA graph (recipe A's rule): 1 to one sequence's tokens a step,
    then every 4 up to all sequences' tokens a step, and that largest. The fours are counted from one
    sequence's tokens on: with 4 drafts and 3 sequences 1 to 5, 9, 13, 15, not 8 and 12."""
    if engine.graphs is not None and engine.graphs.sizes is not None:
        return engine.graphs.sizes
    step = step_tokens(engine)
    largest = step * (engine.max_sequences or 1)
    return tuple(sorted({*range(1, step + 1), *range(step + 4, largest, 4), largest}))


def sglang_decode_sizes(engine: SglangEngine) -> tuple[int, ...]:
    """Numbers of sequences that get a decode graph: 1 to 8, every 2 up to the request limit, and that; empty
    when there is neither a list nor a limit."""
    if engine.graphs.decode_sizes is not None:
        return engine.graphs.decode_sizes
    most = engine.max_requests or 0
    return tuple(sorted({*range(1, min(8, most) + 1), *range(10, most, 2), *([most] if most else [])}))


def yarn(engine: SglangEngine) -> dict[str, Any] | None:
    """SGLang's override of the model's rotary embedding, or None while the context is the model's own."""
    extension = engine.long_context
    if extension is None or engine.context is None or engine.context <= extension.native:
        return None
    factor = extension.factor or float(math.ceil(engine.context / extension.native))
    return {
        "text_config": {
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": factor,
                "original_max_position_embeddings": extension.native,
            },
            "max_position_embeddings": int(extension.native * factor),
        }
    }
