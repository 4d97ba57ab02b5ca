"""Both recipes from the recorded facts of a pair of GB10s, as `sparkop render --facts` does it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkop.engines.base import NodeFacts
from sparkop.engines.render import engine_of, render
from sparkop.hosts.document import parse_document
from sparkop.resources.desired import desire
from sparkop.spec.models import ClusterSpec
from tests.engines.specs import RECIPE_A, RECIPE_B, spec

TWO_SPARKS = Path(__file__).parents[1] / "data" / "facts" / "two-sparks.json"


def _facts(cluster: ClusterSpec) -> list[NodeFacts]:
    recorded = json.loads(TWO_SPARKS.read_text(encoding="utf-8"))
    documents = {name: parse_document(raw, node=name) for name, raw in recorded.items()}
    nodes = desire(cluster, engine_of(cluster), documents).nodes
    facts = [nodes[node.name].facts for node in cluster.nodes]
    return [fact for fact in facts if fact is not None]


@pytest.mark.parametrize(
    ("recipe", "devices"), [(RECIPE_A, "rocep1s0f0,roceP2p1s0f0"), (RECIPE_B, "rocep1s0f0")]
)
def test_traffic_takes_the_cable_that_is_plugged(recipe: str, devices: str) -> None:
    """Port 0 is cabled on both machines: never the management network, never the port without a cable."""
    cluster = spec(recipe)
    rendering = render(cluster, _facts(cluster))
    own = "VLLM_HOST_IP" if recipe == RECIPE_A else "SGLANG_HOST_IP"
    assert [rank.environment[own] for rank in rendering.ranks] == ["192.168.100.10", "192.168.100.11"]
    for rank in rendering.ranks:
        assert rank.environment["NCCL_IB_HCA"] == devices
        assert rank.environment["NCCL_SOCKET_IFNAME"] == "enp1s0f0np0"
        assert rank.environment["GLOO_SOCKET_IFNAME"] == "enp1s0f0np0"
        assert rank.environment["NCCL_IB_GID_INDEX"] == "3"
        assert any("192.168.100.10" in word for word in rank.arguments)
    assert rendering.warnings == ()


def test_devices_that_disagree_leave_the_index_unset() -> None:
    """The table of one device moved, as it does after a link flap."""
    cluster = spec(RECIPE_A)
    recorded = json.loads(TWO_SPARKS.read_text(encoding="utf-8"))
    for gid in recorded["spark-2"]["fabric"]["devices"][2]["gids"]:
        gid["index"] += 2
    documents = {name: parse_document(raw, node=name) for name, raw in recorded.items()}
    first, second = desire(cluster, engine_of(cluster), documents).ranks
    assert (first.container.environment or {})["NCCL_IB_GID_INDEX"] == "3"
    assert "NCCL_IB_GID_INDEX" not in (second.container.environment or {})


def test_staged_nccl_was_found() -> None:
    cluster = spec(RECIPE_B)
    for rank in render(cluster, _facts(cluster)).ranks:
        assert rank.environment["LD_PRELOAD"] == "/nccl/libnccl.so.2.30.7"
