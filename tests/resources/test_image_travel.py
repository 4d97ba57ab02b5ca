"""An image goes from node to node; the registry is asked once."""

from __future__ import annotations

import pytest

from sparkop.errors import BlockedError
from sparkop.hosts.simulated_node import SimulatedImage
from sparkop.node.wire import standin
from tests.reconcile.simulation import Cluster, spec_of

HEX = "a" * 64


def ways(cluster: Cluster) -> list[tuple[str, str, str]]:
    """Action, node and source of the plan's image operations."""
    found = [o for o in cluster.plan().operations if o.resource == "image"]
    return [(str(o.action), o.node, str(o.parameters.get("from", ""))) for o in found]


def forget(cluster: Cluster, *names: str) -> None:
    for name in names:
        cluster.node(name).images.clear()


def test_one_node_pulls_and_each_that_has_it_sends_on() -> None:
    """Four nodes take two rounds after the pull, not three."""
    cluster = Cluster.make(spec_of(4))
    assert ways(cluster) == [
        ("pull", "spark-1", ""),
        ("copy", "spark-2", "spark-1"),
        ("copy", "spark-3", "spark-1"),
        ("copy", "spark-4", "spark-2"),
    ]
    needs = {o.node: o.needs for o in cluster.plan().operations if o.resource == "image"}
    assert "copy:image@spark-2" in needs["spark-4"]


def test_the_registry_is_asked_once_and_nothing_is_left_to_do() -> None:
    cluster = Cluster.make(spec_of(2))
    cluster.apply()
    pulls = [write for write in cluster.world.writes if write.action == "image.pull"]
    assert [write.node for write in pulls] == ["spark-1"]
    assert cluster.plan().operations == ()
    (image,) = cluster.node("spark-2").images.values()
    assert image.digests == (), "an engine that loads an image knows no repo digest of it"


def test_a_worker_that_has_it_gives_it_to_the_head() -> None:
    cluster = Cluster.make(spec_of(2))
    cluster.apply()
    forget(cluster, "spark-1")
    assert ways(cluster) == [("copy", "spark-1", "spark-2")]


def test_the_node_of_the_spec_pulls() -> None:
    cluster = Cluster.make(spec_of(2, image={"pullOn": "spark-2"}))
    assert ways(cluster) == [("pull", "spark-2", ""), ("copy", "spark-1", "spark-2")]


def test_direct_lets_every_node_pull() -> None:
    cluster = Cluster.make(spec_of(2, image={"distribution": "direct"}))
    assert ways(cluster) == [("pull", "spark-1", ""), ("pull", "spark-2", "")]


def test_a_copy_that_can_not_be_done_becomes_a_pull(monkeypatch: pytest.MonkeyPatch) -> None:
    """And says so; what the copy lacked is told when the pull fails as well."""
    from sparkop.resources.image import travel as image_travel

    def refuse(*_: object) -> None:
        raise BlockedError("the way leaves the fabric", node="spark-2", remedy="mend the routes")

    monkeypatch.setattr(image_travel, "travel", refuse)
    cluster = Cluster.make(spec_of(2))
    cluster.apply()
    pulls = [write.node for write in cluster.world.writes if write.action == "image.pull"]
    assert pulls == ["spark-1", "spark-2"]


@pytest.mark.parametrize(
    ("reference", "tag"),
    [
        (f"ghcr.io/a/b@sha256:{HEX}", f"ghcr.io/a/b:sparkop-{HEX}"),
        (f"registry.lab:5000/a/b@sha256:{HEX}", f"registry.lab:5000/a/b:sparkop-{HEX}"),
        (f"a/b:v1@sha256:{HEX}", f"a/b:sparkop-{HEX}"),
        ("a/b:v1", None),
    ],
)
def test_the_tag_that_stands_for_a_digest(reference: str, tag: str | None) -> None:
    assert standin(reference) == tag


def test_a_tag_that_means_another_image_than_on_the_head_is_copied_from_there() -> None:
    """Also when the node's own image was loaded, and so has no digest to compare."""
    cluster = Cluster.make(spec_of(2, image={"reference": "lab/engine:v1"}))
    cluster.world.registry["lab/engine:v1"] = SimulatedImage("sha256:" + HEX, ("lab/engine@sha256:1",))
    cluster.apply()
    assert ways(cluster) == []
    cluster.node("spark-2").images["lab/engine:v1"] = SimulatedImage("sha256:" + "b" * 64)
    assert ways(cluster) == [("copy", "spark-2", "spark-1")]
