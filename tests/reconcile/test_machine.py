"""Any order of faults, edits, crashes and commands: what must never happen, and where it must end.

Always: at most one container a rank; no rank starts while one of another group exists anywhere; nothing
without our labels is touched; no write without the lease, and epochs never go back; the key is nowhere.
After the faults end: one apply converges, and then looks write nothing.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sparkop.errors import LeaseHeldError, SparkopError
from sparkop.hosts.simulated_node import Answer, Fault, SimulatedContainer, SimulatedCrash, SimulatedNode
from sparkop.reconcile.lease import Held, break_lease
from sparkop.reconcile.lease_seen import show_lease
from sparkop.views.plan_text import plan_lines
from tests.reconcile.simulation import Cluster, spec_of
from tests.reconcile.test_damaged import damage
from tests.reconcile.test_lease import silent_holder, write
from tests.reconcile.watching import Watching
from tests.reconcile.worlds import CHANGES

NODES = ("spark-1", "spark-2", "spark-3")
SOON = {"deadline": "20 s", "canary": {"deadline": "5 s"}}
SPECS = (
    spec_of(3, ready=SOON),
    spec_of(3, ready=SOON, memory={"kvCache": "32 MiB"}),
    spec_of(3, ready=SOON, memory={"kvCache": "64 MiB", "guard": {"actionFloor": "2 GiB"}}),
    spec_of(3, ready=SOON, engine={"kind": "vllm", "context": 32768, "container": {"namePrefix": "other"}}),
)
OTHERS: dict[str, dict[str, Any]] = {
    "jellyfin": {},
    "recipe": {"state": "exited", "exit": 1},
    "elsewhere": {"labels": {"sparkop.cluster": "elsewhere", "sparkop.role": "rank", "sparkop.rank": "1"}},
}
nodes = st.sampled_from(NODES)
NO_WRITER = ("lease.ask", "lease.watching")
FILES = ("cluster.json", "history.json", "intent.json", "trip.json", "lease.json", "api_key")


class Life(RuleBasedStateMachine):
    """A cluster of three that somebody uses while things break."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster.make(SPECS[0])
        self.said: list[str] = []
        self.broken: list[str] = []
        self.paused: list[Held] = []
        for name in NODES:
            CHANGES["containers"](self.cluster.node(name), OTHERS)
        self.others = self.foreign()
        made = self.cluster.world.on_start

        def started(node: SimulatedNode, container: SimulatedContainer) -> None:
            self.check_start(node, container)
            made(node, container)

        self.cluster.world.on_start = started

    # What must never happen

    def check_start(self, node: SimulatedNode, container: SimulatedContainer) -> None:
        """Told of every start, also those of Docker itself after a boot."""
        labels = container.spec.labels
        if labels.get("sparkop.role") != "rank":
            return
        for other in self.cluster.world.nodes.values():
            for found in other.containers.values():
                theirs = found.spec.labels
                if theirs.get("sparkop.cluster") != "test" or theirs.get("sparkop.role") != "rank":
                    continue
                if theirs["sparkop.epoch"] != labels["sparkop.epoch"]:
                    self.broken.append(
                        f"{container.spec.name} started beside {found.spec.name} of another group"
                    )
                if found is not container and theirs["sparkop.rank"] == labels["sparkop.rank"]:
                    self.broken.append(f"rank {labels['sparkop.rank']} twice")

    def foreign(self) -> list[tuple[str, str, str]]:
        return [
            (node.name, c.spec.name, c.state)
            for node in self.cluster.world.nodes.values()
            for c in node.containers.values()
            if c.spec.labels.get("sparkop.cluster") != "test"
        ]

    @invariant()
    def nothing_forbidden_has_happened(self) -> None:
        assert self.broken == []
        assert self.foreign() == self.others
        for name in NODES:
            # A wish for the lease names the token that its writer will have: it is no writer's yet.
            tokens = [
                w.token for w in self.cluster.world.writes if w.node == name and w.action not in NO_WRITER
            ]
            assert tokens == sorted(tokens), "a writer with a past lease has written"

    @invariant()
    def the_key_is_nowhere(self) -> None:
        key = self.cluster.served_key
        if key:
            labels = [
                json.dumps(dict(c.spec.labels)) + " ".join(c.spec.arguments)
                for node in self.cluster.world.nodes.values()
                for c in node.containers.values()
            ]
            assert key not in "".join([*self.said[-200:], *labels])

    # What a human does

    def tell(self, event: Any) -> None:
        self.said.append(repr(event))

    @initialize()
    def first_apply(self) -> None:
        self.cluster.apply(emit=self.tell)

    @rule()
    def apply(self) -> None:
        with suppress(SparkopError):
            self.cluster.apply(emit=self.tell)

    @rule()
    def stop(self) -> None:
        with suppress(SparkopError):
            self.cluster.stop(emit=self.tell)

    @rule(number=st.integers(0, len(SPECS) - 1))
    def edit(self, number: int) -> None:
        self.cluster.spec = SPECS[number]

    @rule(after=st.integers(0, 12), fault=st.sampled_from(list(Fault)), stopping=st.booleans())
    def interrupted(self, after: int, fault: Fault, stopping: bool) -> None:
        """The writer dies, or a reply is lost, at some write of the next command."""
        world = self.cluster.world
        world.faults[world.attempts + after] = fault
        with suppress(SparkopError, SimulatedCrash):
            self.cluster.stop(emit=self.tell) if stopping else self.cluster.apply(emit=self.tell)
        world.revive()

    @rule()
    def look(self) -> None:
        self.said += plan_lines(self.cluster.plan())

    @rule(ticks=st.integers(1, 4))
    def watch(self, ticks: int) -> None:
        """A watch that somebody runs for a while."""
        watching = Watching(self.cluster)
        watching.ticks(ticks)
        self.said.append(repr(watching.said))

    # A second writer

    @precondition(lambda self: len(self.paused) < 2)
    @rule()
    def pause(self) -> None:
        """A laptop that goes to sleep while it holds the lease."""
        with suppress(SparkopError, AssertionError):
            self.paused.append(silent_holder(self.cluster, f"paused-{len(self.cluster.world.writes)}"))

    @rule(node=nodes)
    def wake(self, node: str) -> None:
        """It goes on with the next write of its plan; only the lease that is still its own lets it."""
        for held in self.paused:
            if node not in held.fences:
                continue
            try:
                write(self.cluster.hosts()[node], held, "of-a-sleeper")
            except SparkopError:
                continue
            found = self.lease_of(node)
            if (found.get("holder"), found.get("epoch")) != (
                held.fences[node].holder,
                held.fences[node].token,
            ):
                self.broken.append(f"{held.fences[node].holder} has written on {node} without the lease")

    def lease_of(self, node: str) -> Any:
        made = self.cluster.node(node)
        return json.loads(made.files[made.path("lease.json", "~/.sparkop/test")][0])

    # What breaks

    @rule(node=nodes, file=st.sampled_from(FILES), content=st.sampled_from([b"", b"{", b"[]"]))
    def corrupt(self, node: str, file: str, content: bytes) -> None:
        """A file of the state folder makes no sense any more; only where there was one."""
        made = self.cluster.node(node)
        if made.path(file, "~/.sparkop/test") in made.files:
            content = b"" if file == "api_key" else content  # any text is a key that somebody wrote
            damage(self.cluster, node, file, (content, 0o600))

    @rule(rank=st.integers(0, 2), code=st.sampled_from([0, 1, 137]))
    def kill(self, rank: int, code: int) -> None:
        with suppress(AssertionError):
            node, container = self.cluster.rank(rank)
            if container.running:
                node.exit(container.spec.name, code)

    @rule(node=nodes)
    def power_cut(self, node: str) -> None:
        before = self.foreign()
        self.cluster.node(node).reboot()
        for name, container, state in before:
            self.cluster.node(name).containers[container].state = state

    @rule(node=nodes, answer=st.sampled_from([Answer.SILENT, Answer.HALF, Answer.OLD, Answer.WHOLE]))
    def reach(self, node: str, answer: Answer) -> None:
        self.cluster.node(node).answer = answer

    @rule(node=nodes, up=st.booleans())
    def docker(self, node: str, up: bool) -> None:
        self.cluster.node(node).docker_up = up

    @rule(node=nodes)
    def prune(self, node: str) -> None:
        """docker system prune: our stopped containers and the image go."""
        found = self.cluster.node(node)
        ours = [
            c.spec.name for c in found.containers.values() if c.spec.labels.get("sparkop.cluster") == "test"
        ]
        for name in ours:
            if not found.containers[name].running:
                del found.containers[name]
        found.images.clear()

    @rule(node=nodes)
    def lose_a_weight(self, node: str) -> None:
        CHANGES["weights"](self.cluster.node(node), {"model.safetensors": "absent"})

    @rule(node=nodes)
    def kill_guard(self, node: str) -> None:
        self.cluster.node(node).containers.pop("test-memguard", None)

    @rule(node=nodes, down=st.booleans())
    def cable(self, node: str, down: bool) -> None:
        from sparkop.hosts.simulated_node import healthy_fabric

        found = self.cluster.node(node)
        found.fabric = healthy_fabric(found.index)
        if down:
            CHANGES["rails_down"](found, [0, 1])

    @rule(manner=st.sampled_from(["serve", "wedge", "degenerate"]))
    def engine(self, manner: str) -> None:
        self.cluster.manner = manner

    # Where it must end

    @precondition(lambda self: self.cluster.world.attempts > 40)
    @rule()
    def heal(self) -> None:
        self.mend()
        self.cluster.apply(emit=self.tell, confirm_trip=True)
        writes = len(self.cluster.world.writes)
        for _ in range(3):
            assert self.cluster.plan().converged, plan_lines(self.cluster.plan())
            assert self.cluster.apply(emit=self.tell).operations == 0
        assert len(self.cluster.world.writes) == writes

    def mend(self) -> None:
        for name in NODES:
            self.cluster.node(name).answer = Answer.WHOLE
            self.cluster.node(name).docker_up = True
            self.cable(name, False)
        self.cluster.manner = "serve"
        broken = break_lease(self.cluster.spec, self.cluster.hosts()) if self.lease_damaged() else []
        self.said += broken

    def lease_damaged(self) -> bool:
        found = show_lease(self.cluster.spec, self.cluster.hosts())
        return any(isinstance(each, LeaseHeldError) for each in found.values())

    def teardown(self) -> None:
        self.mend()
        self.cluster.apply(emit=self.tell, confirm_trip=True)
        assert self.cluster.plan().converged, plan_lines(self.cluster.plan())
        assert self.broken == []


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=15,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
