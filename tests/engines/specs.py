"""Specs of this repository as models, with changes, for the tests of engines."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from sparkop.engines.base import FabricFacts, NodeFacts
from sparkop.spec.models import ClusterSpec

SPECS = Path(__file__).parents[2] / "specs"
RECIPE_A = "deepseek-v4.1-flash"
RECIPE_B = "qwen3.8-flash-next"
NCCL_LIBRARY = "~/nccl-2.30.7/libnccl.so.2.30.7"


@functools.cache
def document(name: str) -> dict[str, Any]:
    """The YAML document of ``specs/<name>.yaml``."""
    with (SPECS / f"{name}.yaml").open() as stream:
        loaded: dict[str, Any] = YAML(typ="safe").load(stream)
    return loaded


def spec(name: str, changes: dict[str, Any] | None = None, *, nodes: int | None = None) -> ClusterSpec:
    """The spec with ``changes`` (dotted path to value; None takes the key out) and a number of nodes."""
    content = copy.deepcopy(document(name))
    for path, value in (changes or {}).items():
        *parents, last = path.split(".")
        place = content
        for part in parents:
            place = place.setdefault(part, {})
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    if nodes is not None:
        content["nodes"] = [{"name": f"spark-{number + 1}"} for number in range(nodes)]
    return ClusterSpec.model_validate(content)


def facts_of(
    cluster: ClusterSpec, *, home: str = "/home/spark", gid_index: int | None = 3
) -> list[NodeFacts]:
    """One-rail facts for any number of nodes, all with the staged NCCL."""
    return [
        NodeFacts(
            name=node.name,
            home=home,
            fabric=FabricFacts(f"10.0.22.{number + 1}", "enp1s0f0np0", ("rocep1s0f0",), gid_index),
            present=frozenset({NCCL_LIBRARY}),
        )
        for number, node in enumerate(cluster.nodes)
    ]
