"""Reading: in parallel, never raising for a node, never keeping a secret, never writing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest

from sparkop.errors import BlockedError, HostKeyError, UnreachableError
from sparkop.hosts.base import Host
from sparkop.hosts.simulated import SimulatedHost
from sparkop.hosts.simulated_node import SimulatedNode
from sparkop.reconcile.observe import SETTLE, STALE, observe, probe_request
from sparkop.reconcile.plan import Plan
from sparkop.reconcile.reconcile import reconcile
from sparkop.resources.base import Difference
from sparkop.resources.operations import Action
from sparkop.serving.canary import Serving
from sparkop.views.plan_text import plan_lines
from tests.reconcile.simulation import SIMULATED, Cluster, spec_of


class Odd(SimulatedHost):
    """A host whose probe fails as the test says."""

    def __init__(self, host: SimulatedHost, error: Exception) -> None:
        super().__init__(host.node)
        self.error = error

    def probe(self, request: Mapping[str, Any], *, timeout: float = 30.0) -> dict[str, Any]:
        raise self.error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UnreachableError("No answer.", cause="it is off", remedy="switch it on"), "No answer: it is off"),
        (HostKeyError("The host key has changed"), "host key has changed"),
        (
            UnreachableError("No answer.", cause="none came", detail="python3: not found\n\nIs it there?\n"),
            "No answer: none came (python3: not found; Is it there?)",
        ),
        (BlockedError("There is no python3", remedy="install it"), "install it"),
        (TimeoutError("timed out"), "timed out"),
        (ConnectionResetError("reset"), "reset"),
        (ValueError("no JSON"), "no JSON"),
    ],
)
def test_whatever_a_node_does_is_unknown_with_its_reason(error: Exception, said: str) -> None:
    """And the others are read all the same."""
    cluster = Cluster.make()
    hosts = dict(cluster.hosts())
    hosts["spark-2"] = Odd(SimulatedHost(cluster.node("spark-2")), error)
    observed = observe(cluster.spec, hosts, clock=cluster.clock, resources=SIMULATED).observed
    assert list(observed.documents) == ["spark-1"]
    assert said in observed.unknown["spark-2"].told


def test_a_way_out_ends_the_line_so_that_it_can_be_copied() -> None:
    """The command that accepts a host key ended in a bracket, which no shell takes."""
    cluster = Cluster.make()
    hosts = dict(cluster.hosts())
    error = HostKeyError("It is unknown.", remedy="accept it:\nssh-keyscan spark-2 >> ~/.ssh/known_hosts")
    hosts["spark-2"] = Odd(SimulatedHost(cluster.node("spark-2")), error)
    reading = observe(cluster.spec, hosts, clock=cluster.clock, resources=SIMULATED)
    plan = reconcile(reading.desired, reading.observed, reading.history, 0.0, SIMULATED)
    assert "ssh-keyscan spark-2 >> ~/.ssh/known_hosts" in "\n".join(plan_lines(plan)).splitlines()


def test_nodes_are_read_at_the_same_time() -> None:
    """All probes wait for each other."""
    cluster = Cluster.make(spec_of(8))
    barrier = threading.Barrier(8, timeout=20)

    class Meeting(SimulatedHost):
        def probe(self, request: Mapping[str, Any], *, timeout: float = 30.0) -> dict[str, Any]:
            barrier.wait()
            return super().probe(request, timeout=timeout)

    hosts = {name: Meeting(node) for name, node in cluster.world.nodes.items()}
    assert observe(cluster.spec, hosts, clock=cluster.clock, resources=SIMULATED).observed.complete


def test_nodes_are_told_in_the_specs_order_whichever_answers_first() -> None:
    """What a command lists is the same each time; here each waits for the one after it."""
    cluster = Cluster.make(spec_of(3))
    names = [node.name for node in cluster.spec.nodes]
    answered = {name: threading.Event() for name in names}
    after = dict(pairwise(names))

    class Last(SimulatedHost):
        def probe(self, request: Mapping[str, Any], *, timeout: float = 30.0) -> dict[str, Any]:
            if self.node.name in after:
                assert answered[after[self.node.name]].wait(20)
            document = super().probe(request, timeout=timeout)
            answered[self.node.name].set()
            return document

    hosts = {name: Last(node) for name, node in cluster.world.nodes.items()}
    observed = observe(cluster.spec, hosts, clock=cluster.clock, resources=SIMULATED).observed
    assert list(observed.documents) == names


def test_no_secret_is_kept_in_a_reading() -> None:
    """The key is used for the canary and compared, and then it is gone."""
    cluster = Cluster.make()
    cluster.apply()
    reading = cluster.observe()
    assert reading.observed.endpoint.serving is Serving.READY
    assert reading.observed.key is not None
    assert reading.observed.key.handed
    assert cluster.served_key
    assert cluster.served_key not in repr(reading)


def test_the_canary_is_left_out_when_nobody_wants_it() -> None:
    """`logs` and `stop` do not wait for tokens; what was not asked is no difference."""
    cluster = Cluster.make()
    cluster.apply()
    reading = cluster.observe(canary=False)
    assert reading.observed.endpoint.serving is Serving.NOT_ASKED
    plan = reconcile(reading.desired, reading.observed, reading.history, 0.0, SIMULATED)
    assert plan.converged


def test_requests_of_all_resources_are_merged_without_doubles() -> None:
    """One probe a node; and two resources that contradict each other are a fault that is seen at once."""
    request = probe_request(spec_of(), "spark-1", resources=SIMULATED)
    assert len(request["containers"]) == len(set(request["containers"]))
    assert {"test-r0", "test-r1", "test-memguard"} <= set(request["containers"])
    assert "ports" in request
    assert "ports" not in probe_request(spec_of(), "spark-2", resources=SIMULATED)

    class Contrary:
        kind = "contrary"

        def prepare(self, spec: Any) -> None:
            return None

        def request(self, spec: Any, node: Any, outside: Any) -> dict[str, Any]:
            return {"state": "elsewhere"}

        def diff(self, desired: Any, observed: Any, history: Any) -> Difference:
            return Difference()

        def perform(self, operation: Any, context: Any) -> None:
            return None

    with pytest.raises(ValueError, match="different things"):
        probe_request(spec_of(), "spark-1", resources=(*SIMULATED, Contrary()))


def test_a_bad_key_is_told_and_not_a_crash() -> None:
    """What no engine takes blocks with the way out."""
    cluster = Cluster.make()
    cluster.apply()
    cluster.node("spark-1").files["/home/spark/.sparkop/test/api_key"] = (b"--flag\n", 0o600)
    plan = cluster.plan()
    assert any(blocker.resource == "api-key" for blocker in plan.blockers)


class Blinking(SimulatedHost):
    """A node whose first reading falls into a ``netplan apply``: the first rail has no address."""

    blinks = 1

    def probe(self, request: Mapping[str, Any], *, timeout: float = 30.0) -> dict[str, Any]:
        document = deepcopy(super().probe(request, timeout=timeout))
        if self.blinks:
            self.blinks -= 1
            document["fabric"]["interfaces"][0]["addresses"] = []
        return document


def test_an_address_that_is_away_for_a_second_moves_no_group() -> None:
    """A false alarm that peers had; here it would cost a restart of minutes."""
    cluster = Cluster.make()
    cluster.apply()
    hosts = {**cluster.hosts(), "spark-2": Blinking(SimulatedHost(cluster.node("spark-2")).node)}
    began = cluster.clock.now
    reading = observe(cluster.spec, hosts, clock=cluster.clock, resources=SIMULATED)
    plan = reconcile(reading.desired, reading.observed, reading.history, cluster.clock.time(), SIMULATED)
    assert plan.operations == ()
    assert cluster.clock.now - began >= SETTLE


def test_a_group_that_is_as_it_should_be_is_read_once() -> None:
    cluster = Cluster.make()
    cluster.apply()
    began = cluster.clock.now
    observe(cluster.spec, cluster.hosts(), canary=False, clock=cluster.clock, resources=SIMULATED)
    assert cluster.clock.now == began


def test_a_port_that_the_running_ranks_have_not_is_asked_nothing() -> None:
    """The new port of an edited spec was another program's: it was sent the API key, and its words shown."""
    cluster = Cluster.make()
    cluster.apply()
    asked: list[int] = []
    cluster.spec = spec_of(2, api={"port": 8050, "servedNames": ["tiny"]})

    class Server(SimulatedHost):
        def http(self, method: str, port: int, *rest: Any, **more: Any) -> Any:
            asked.append(port)
            return super().http(method, port, *rest, **more)

    hosts = {**cluster.hosts(), "spark-1": Server(cluster.node("spark-1"))}
    reading = observe(cluster.spec, hosts, clock=cluster.clock, resources=SIMULATED)
    assert reading.observed.endpoint.serving is Serving.NOT_ASKED
    assert asked == []
    cluster.spec = spec_of(2)
    assert observe(cluster.spec, hosts, clock=cluster.clock, resources=SIMULATED).observed.endpoint.serving
    assert asked == [8000]


class Asked(SimulatedHost):
    """A head where something happens once, at its ``turn``-th request."""

    def __init__(self, node: SimulatedNode, happens: Callable[[], None], turn: int) -> None:
        super().__init__(node)
        self.happens = happens
        self.turn = turn

    def http(self, *request: Any, **more: Any) -> Any:
        self.turn -= 1
        try:
            return super().http(*request, **more)
        finally:
            if self.turn == 0:
                self.happens()


def meanwhile(cluster: Cluster, happens: Callable[[], None], turn: int = 1) -> dict[str, Host]:
    return {**cluster.hosts(), "spark-1": Asked(cluster.node("spark-1"), happens, turn)}


def planned(cluster: Cluster, hosts: Mapping[str, Host], **options: Any) -> Plan:
    reading = observe(cluster.spec, hosts, clock=cluster.clock, resources=SIMULATED, **options)
    return reconcile(reading.desired, reading.observed, reading.history, cluster.clock.time(), SIMULATED)


@pytest.mark.parametrize(("manner", "turn"), [("wedge", 1), ("wedge", 3), ("wedge", 4), ("serve", 1)])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_dies_while_the_api_is_asked_is_seen_and_restarted(
    rank: int, manner: str, turn: int
) -> None:
    """In the first generation, at the counters before and after; or after tokens that came late. The nodes
    had been read minutes before: diff and apply said converged of a dead group."""
    cluster = Cluster.make()
    cluster.apply()
    cluster.manner = manner
    node, container = cluster.rank(rank)

    def dies() -> None:
        cluster.clock.sleep(STALE + 1)
        node.exit(container.spec.name, 137)

    plan = planned(cluster, meanwhile(cluster, dies, turn))
    assert not plan.converged
    assert f"rank/{rank}" in "\n".join(plan_lines(plan))
    assert "exited (137)" in "\n".join(plan_lines(plan))

    cluster.manner = "serve"
    cluster.apply()
    cluster.manner = manner
    node, container = cluster.rank(rank)
    cluster.started.clear()

    def dies_and_mends() -> None:
        dies()
        cluster.manner = "serve"

    cluster.apply(meanwhile(cluster, dies_and_mends, turn))
    assert sorted(cluster.started) == ["0@spark-1", "1@spark-2"]
    assert cluster.plan().converged


def test_a_node_that_falls_silent_while_the_api_is_asked_is_unknown() -> None:
    """What was read of it before proves nothing any more."""
    cluster = Cluster.make()
    cluster.apply()
    cluster.manner = "wedge"
    hosts = meanwhile(cluster, lambda: hosts.update({"spark-2": gone}))
    gone = Odd(SimulatedHost(cluster.node("spark-2")), TimeoutError("timed out"))
    plan = planned(cluster, hosts)
    assert [unknown.node for unknown in plan.unknown] == ["spark-2"]
    assert not any(operation.resource.startswith("rank/") for operation in plan.operations)


def test_ranks_that_were_started_while_others_were_asked_are_waited_for() -> None:
    """What the old ones did not answer is no reason to restart the new ones."""
    cluster = Cluster.make()
    cluster.apply()
    cluster.manner = "wedge"

    def another() -> None:
        node, container = cluster.rank(0)
        node.exit(container.spec.name, 137)
        cluster.manner = "serve"
        cluster.apply()
        cluster.manner = "wedge"

    plan = planned(cluster, meanwhile(cluster, another))
    assert [(o.action, o.resource) for o in plan.operations] == [(Action.WAIT, "endpoint")]


def test_weights_that_were_hashed_are_not_believed_by_the_ledger_at_the_second_reading() -> None:
    cluster = Cluster.make()
    cluster.apply()
    cluster.manner = "wedge"
    asked: list[bool] = []

    class Deep(SimulatedHost):
        def probe(self, request: Mapping[str, Any], *, timeout: float = 30.0) -> dict[str, Any]:
            asked.append(bool(request.get("deep")))
            document = deepcopy(super().probe(request, timeout=timeout))
            if not request.get("deep"):
                document["weights"] = None
            return document

    hosts = {**cluster.hosts(), "spark-2": Deep(cluster.node("spark-2"))}
    reading = observe(cluster.spec, hosts, deep=True, clock=cluster.clock, resources=SIMULATED)
    assert asked.count(True) == 1
    assert reading.observed.endpoint.serving is Serving.WEDGED
    assert reading.observed.documents["spark-2"].weights is not None
