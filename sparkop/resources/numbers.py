"""What of a spec decides how much memory its ranks take: a trip of the guard is about these. Pure."""

from __future__ import annotations

from sparkop.spec.hashing import desired_hash
from sparkop.spec.models import ClusterSpec

NO_MATTER = {
    "rendezvous_port",
    "offline",
    "container",
    "parsers",
    "generation_config",
    "prompt_tokens_details",
    "force_include_usage",
    "chat_template_defaults",
    "metrics",
    "cache_report",
    "thinking",
}
"""Fields of the engine that change what is said, not what is held."""


def memory_numbers(spec: ClusterSpec) -> str:
    """A hash of them: engine, weights, image, budgets, number of ranks. The guard's floors are none of them.

    Another name, port or parser takes no less memory, and so is no answer to a trip.
    """
    engine = {
        name: getattr(spec.engine, name)
        for name in sorted(type(spec.engine).model_fields)
        if name not in NO_MATTER
    }
    return desired_hash(
        {
            "engine": engine,
            "shm": spec.engine.container.shm,
            "weights": f"{spec.weights.repository}@{spec.weights.revision}",
            "image": spec.image,
            "kv_cache": spec.memory.kv_cache,
            "gpu_fraction": spec.memory.gpu_fraction,
            "nodes": len(spec.nodes),
        }
    )
