"""What can't be read is neither there nor absent (principle 2): nothing is changed for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparkop.errors import UnreachableError
from sparkop.hosts.simulated_node import SimulatedNode
from sparkop.reconcile.rendering import rendering_of
from sparkop.resources.guard import program_file
from tests.reconcile.simulation import SIMULATED, Cluster

LIBRARY = "~/nccl/libnccl.so"
ENGINE = {
    "kind": "vllm",
    "context": 32768,
    "container": {"caches": {"/cache": "."}},
    "nccl": {"preload": {"directory": "~/nccl", "library": "libnccl.so"}},
}


def with_library() -> Cluster:
    """It serves with the nodes' own NCCL."""
    cluster = Cluster.make(engine=ENGINE)
    for node in cluster.world.nodes.values():
        node.files[node.path(LIBRARY)] = (b"elf", 0o644)
    cluster.apply()
    assert "LD_PRELOAD" in (cluster.rank(1)[1].spec.environment or {})
    return cluster


def test_an_optional_file_that_cannot_be_read_restarts_nothing() -> None:
    """Taken for absent, both ranks would be restarted without it."""
    cluster = with_library()
    cluster.node("spark-2").errors[f"files:{LIBRARY}"] = "PermissionError: Permission denied"
    plan = cluster.plan()
    assert not plan.operations
    assert [(u.node, u.resource) for u in plan.unknown] == [("spark-2", "rank")]
    assert "Permission denied" in plan.unknown[0].reason
    with pytest.raises(UnreachableError, match="can't be read"):
        rendering_of(cluster.spec, cluster.observe(canary=False).observed.documents, SIMULATED)


def test_an_optional_file_that_is_gone_does() -> None:
    """Known to be absent on one node: every rank uses its image's own."""
    cluster = with_library()
    node = cluster.node("spark-2")
    del node.files[node.path(LIBRARY)]
    assert cluster.plan().stops_serving


def errors(*items: str) -> Callable[[SimulatedNode], None]:
    return lambda node: node.errors.update(dict.fromkeys(items, "OSError: Input/output error"))


@pytest.mark.parametrize(
    "fault",
    [
        errors(f"files:{program_file()}"),
        errors("state"),
        errors("state:cluster.json"),
        errors("state:intent.json"),
        errors("state:trip.json"),
        errors("files"),
        errors("docker"),
        errors("fabric"),
        errors("machine"),
    ],
)
def test_a_part_that_cannot_be_read_changes_nothing_on_a_cluster_that_serves(
    fault: Callable[[SimulatedNode], None],
) -> None:
    """And it is told, so that it is not taken for converged."""
    cluster = Cluster.make()
    cluster.apply()
    fault(cluster.node("spark-2"))
    plan = cluster.plan()
    assert not plan.operations
    assert plan.unknown or plan.blockers
