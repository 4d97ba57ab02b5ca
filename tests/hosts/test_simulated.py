"""What only the simulation can do: faults at any write, nodes that answer badly, machines that reboot."""

from __future__ import annotations

from typing import Any

import pytest

from sparkop.errors import LeaseHeldError, UnreachableError
from sparkop.hosts.base import ContainerOptions, ContainerSpec, Fence
from sparkop.hosts.document import parse_document
from sparkop.hosts.simulated import SimulatedHost
from sparkop.hosts.simulated_node import Answer, Fault, SimulatedCrash, SimulatedImage, SimulatedNode, World

FENCE = Fence("c", "me", 1, "~/.sparkop/c")


@pytest.fixture
def node() -> SimulatedNode:
    """A node with a lease and an image."""
    node = World(memory_of=lambda _: 10 << 30).add("spark-1")
    node.images["i"] = SimulatedImage("sha256:1")
    SimulatedHost(node).act("lease.acquire", {}, FENCE)
    return node


def spec(name: str = "r0", restart: str = "no") -> ContainerSpec:
    return ContainerSpec(name, "i", {"sparkop.cluster": "c"}, options=ContainerOptions(restart=restart))


def container(node: SimulatedNode, name: str = "r0") -> Any:
    return parse_document(SimulatedHost(node).probe({"containers": [name]})).container(name)


@pytest.mark.parametrize(
    ("fault", "error", "there"),
    [
        (Fault.BEFORE, SimulatedCrash, False),
        (Fault.AFTER, SimulatedCrash, True),
        (Fault.LOST, UnreachableError, True),
    ],
)
def test_faults(fault: Fault, error: type[BaseException], there: bool, node: SimulatedNode) -> None:
    node.world.faults[node.world.attempts] = fault
    with pytest.raises(error):
        SimulatedHost(node).containers.run(spec(), FENCE)
    assert (container(node) is not None) is there
    SimulatedHost(node).containers.run(spec(), FENCE)
    assert container(node).running
    assert [w.action for w in node.world.writes].count("container.run") == 1 + there


def test_a_write_that_is_refused_took_no_place(node: SimulatedNode) -> None:
    before = list(node.world.writes)
    with pytest.raises(LeaseHeldError):
        SimulatedHost(node).containers.run(spec(), Fence("c", "other", 1, FENCE.directory))
    assert node.world.writes == before


@pytest.mark.parametrize("answer", [Answer.SILENT, Answer.HALF, Answer.OLD])
def test_bad_answers_are_unknown(answer: Answer, node: SimulatedNode) -> None:
    node.answer = answer
    with pytest.raises(UnreachableError):
        SimulatedHost(node).probe({})


def test_memory_comes_and_goes_with_containers(node: SimulatedNode) -> None:
    free = node.memory_available
    SimulatedHost(node).containers.run(spec(), FENCE)
    assert node.memory_available == free - (10 << 30)
    node.exit("r0", 137, oom=True)
    assert node.memory_available == free
    assert (container(node).state, container(node).exit_code, container(node).oom_killed) == (
        "exited",
        137,
        True,
    )


def test_after_a_reboot_only_restarted_containers_run(node: SimulatedNode) -> None:
    host = SimulatedHost(node)
    host.containers.run(spec("rank"), FENCE)
    host.containers.run(spec("guard", "unless-stopped"), FENCE)
    machine = parse_document(host.probe({})).machine
    assert machine is not None
    node.reboot()
    after = parse_document(host.probe({})).machine
    assert after is not None
    assert after.boot_id != machine.boot_id
    assert (container(node, "rank").state, container(node, "rank").exit_code) == ("exited", 255)
    assert container(node, "guard").running


def test_weights_by_what_is_on_the_disk(node: SimulatedNode) -> None:
    files = [{"path": f"{n}.bin", "size": 5, "sha256": n * 64} for n in "abcd"]
    node.place("~/w", files[:1])
    node.place("~/w", files[1:2], verified=False)
    node.place("~/w", [{**files[2], "sha256": "x" * 64}])
    weights = parse_document(
        SimulatedHost(node).probe({"weights": {"directory": "~/w", "files": files}})
    ).weights
    assert weights is not None
    assert (weights.verified, weights.unverified) == (1, ("b.bin",))
    assert (weights.wrong, weights.missing) == (("c.bin",), ("d.bin",))
    assert not weights.complete
