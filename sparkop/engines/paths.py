"""Where a cluster's folders lie on a node, and where the ranks see them."""

from __future__ import annotations

from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

ENGINE_FILE = "engine.yaml"
"""File of the state directory that hands the key to the engine."""
ENGINE_FILE_TARGET = "/run/sparkop/engine.yaml"
"""Where the head's rank sees it."""
PLANS = "plans"
"""Sub-folder of the state directory with the rewritten EXL3 plan."""
PLANS_TARGET = "/plans"
PLAIN_WEIGHTS_TARGET = "/model"
HUB_CACHE_TARGET = "/root/.cache/huggingface"
NCCL_TARGET = "/nccl"


def expand(path: str, home: str) -> str:
    """``path`` with a leading ``~`` replaced by the node's home."""
    if path == "~" or path.startswith("~/"):
        return home.rstrip("/") + path[1:]
    return path


def state_directory(spec: ClusterSpec, node: NodeSpec) -> str:
    """The cluster's state directory on ``node``; may begin with ``~``."""
    return node.paths.state or spec.state


def cache_directory(spec: ClusterSpec, node: NodeSpec) -> str:
    """The folder of kernel caches on ``node``; may begin with ``~``."""
    return node.paths.cache or f"{state_directory(spec, node)}/cache"


def key_path(spec: ClusterSpec) -> str:
    """The API key's file on the head; may begin with ``~``."""
    return spec.api.key_file or f"{state_directory(spec, spec.head)}/api_key"


def weights_directory(spec: ClusterSpec, node: NodeSpec) -> str:
    """The checkpoint's folder on ``node``, or the hub cache that holds it; may begin with ``~``."""
    path = node.paths.weights or spec.weights.hub_cache or spec.weights.path
    if path is None:
        raise ValueError("the spec has no place for the weights")  # models.WeightsSpec refuses that
    return path


def snapshot(spec: ClusterSpec, revision: str) -> str:
    """The checkpoint's folder below a hub cache, as huggingface_hub lays it out."""
    folder = "models--" + spec.weights.repository.replace("/", "--")
    return f"hub/{folder}/snapshots/{revision}"
