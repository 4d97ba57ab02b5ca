"""The rewritten EXL3 plan on simulated nodes: made, compared by content, repaired alone."""

from __future__ import annotations

import json

import pytest

from sparkop.errors import BlockedError
from tests.reconcile.simulation import PLAN, Cluster

ENGINE = {"exl3": {"plan": "P.json"}}
COPY = "~/.sparkop/test/plans/P.json"
SOURCE = "/home/spark/models/model/exl3/plan/P.json"
NODES = ("spark-1", "spark-2")


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster.make(engine=ENGINE)
    cluster.apply()
    return cluster


def copy_of(cluster: Cluster, name: str) -> bytes:
    node = cluster.node(name)
    return node.files[node.path(COPY)][0]


def test_every_node_gets_the_plan_with_the_banks_where_the_ranks_mount_them(cluster: Cluster) -> None:
    for name in NODES:
        made = json.loads(copy_of(cluster, name))
        assert made == {**json.loads(PLAN), "qdir": "/model/exl3/qn:/model/exl3/q31"}
        assert cluster.node(name).files[SOURCE][0] == PLAN, "the checkpoint's own stays as published"
    for name in NODES:
        writes = [(w.action, w.target.rpartition("/")[2]) for w in cluster.world.writes if w.node == name]
        fetched = next(i for i, (action, _) in enumerate(writes) if action == "weights.fetch")
        assert fetched < writes.index(("file.write", "P.json")), "made of verified weights"
    assert cluster.apply().operations == 0


@pytest.mark.parametrize("damage", [b"{}", b"", None])
def test_a_changed_or_lost_copy_is_written_again_and_nothing_else_is_touched(
    cluster: Cluster, damage: bytes | None
) -> None:
    good, node, started = copy_of(cluster, "spark-2"), cluster.node("spark-2"), list(cluster.started)
    if damage is None:
        del node.files[node.path(COPY)]
    else:
        node.files[node.path(COPY)] = (damage, 0o644)
    assert [(o.resource, o.node) for o in cluster.plan().operations] == [("exl3-plan", "spark-2")]
    assert cluster.apply().operations == 1
    assert copy_of(cluster, "spark-2") == good
    assert cluster.started == started, "ranks have read the plan and stay"


def test_the_copy_follows_the_checkpoint(cluster: Cluster) -> None:
    """Another revision brings another plan under the same name."""
    for name in NODES:
        cluster.node(name).files[SOURCE] = (b'{"qdir": "q31", "bits": 4}', 0o644)
    assert cluster.apply().operations == 2
    assert [json.loads(copy_of(cluster, name))["bits"] for name in NODES] == [4, 4]


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"[]", "no JSON object"), (b'{"qdir": "qn:q99"}', "names q99"), (b'{"qdir": ":"}', "empty folder")],
)
def test_a_plan_that_is_none_is_an_error_that_says_what_and_where(content: bytes, told: str) -> None:
    cluster = Cluster.make(engine=ENGINE)
    cluster.apply()
    cluster.stop()
    before = copy_of(cluster, "spark-2")
    cluster.node("spark-2").files[SOURCE] = (content, 0o644)
    with pytest.raises(BlockedError) as caught:
        cluster.apply()
    assert caught.value.node == "spark-2"
    assert "exl3/plan/P.json" in caught.value.message
    assert told in caught.value.message
    assert copy_of(cluster, "spark-2") == before
