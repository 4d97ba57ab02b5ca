"""What must hold for every plan, whatever the world: order, determinism, purity, size."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkop.reconcile.plan import Plan
from sparkop.reconcile.reconcile import reconcile
from sparkop.resources.base import Difference, Resource
from sparkop.resources.desired import Desired
from sparkop.resources.guard import program_file
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Action, Blocker, Cause, Operation, kind_of
from sparkop.resources.registry import RESOURCES, STANDS_ON
from sparkop.views.plan_text import plan_lines
from tests.reconcile.simulation import SIMULATED, Cluster, spec_of
from tests.reconcile.worlds import CHANGES

FAULTS: tuple[dict[str, Any], ...] = (
    {"answer": "silent"},
    {"docker": "down"},
    {"image": "absent"},
    {"weights": "absent"},
    {"weights": {"model.safetensors": "unverified"}},
    {"rails_down": [0]},
    {"rails_down": [0, 1]},
    {"gid_index": 5},
    {"reboot": True},
    {"files": {program_file(): "absent"}},
    {"files": {"cluster.json": "absent"}},
    {"disk_free": 1000},
    {"errors": {"files": "OSError: Input/output error"}},
    {"machine": {"machine_id": "spark-1-machine"}},
    {"containers": {"test-r7": {}}},
)


def broken(base: str, faults: dict[str, int]) -> Cluster:
    """A cluster of four with one fault on each named node."""
    cluster = Cluster.make(spec_of(4))
    if base == "converged":
        cluster.apply()
    for node, number in faults.items():
        for key, value in FAULTS[number].items():
            CHANGES[key](cluster.node(node), value)
    return cluster


worlds = st.tuples(
    st.sampled_from(["bare", "converged"]),
    st.dictionaries(
        st.sampled_from([f"spark-{n}" for n in range(1, 5)]), st.integers(0, len(FAULTS) - 1), max_size=4
    ),
)
quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(worlds)
def test_every_operation_comes_after_what_it_needs(world: tuple[str, dict[str, int]]) -> None:
    """The executor would wait for ever for a need that comes never; people read plans from top to bottom."""
    plan = broken(*world).plan()
    seen: set[str] = set()
    for operation in plan.operations:
        assert set(operation.needs) <= seen, operation.key
        assert operation.key not in seen
        seen.add(operation.key)


@quick
@given(worlds)
def test_no_rank_starts_before_all_are_seen_to_be_gone(world: tuple[str, dict[str, int]]) -> None:
    """Decision 4: stop all, verify, workers, head. By needs, not by luck of the order."""
    plan = broken(*world).plan()
    needs = {operation.key: set(operation.needs) for operation in plan.operations}

    def before(key: str) -> set[str]:
        found = set(needs[key])
        for need in needs[key]:
            found |= before(need)
        return found

    removals = {o.key for o in plan.operations if kind_of(o.resource) == "rank" and o.action is Action.REMOVE}
    others = {o.key for o in plan.operations if kind_of(o.resource) not in ("rank", "endpoint")}
    for operation in plan.operations:
        if operation.action is Action.START and kind_of(operation.resource) == "rank":
            earlier = before(operation.key)
            assert removals <= earlier
            assert others <= earlier
            if operation.resource == "rank/0":
                workers = {
                    o.key
                    for o in plan.operations
                    if o.action is Action.START and o.resource.startswith("rank/")
                }
                assert workers - {operation.key} <= earlier


@quick
@given(worlds)
def test_nothing_is_planned_on_what_is_unknown_or_blocked(world: tuple[str, dict[str, int]]) -> None:
    """Decision 2, for every kind and what it stands on; the group when all nodes are read and right."""
    plan = broken(*world).plan()
    silent = {u.node for u in plan.unknown if u.resource is None}
    bad = {(kind_of(b.resource), b.node) for b in plan.blockers}
    bad |= {(kind_of(u.resource), u.node) for u in plan.unknown if u.resource}
    for operation in plan.operations:
        kind = kind_of(operation.resource)
        assert operation.node not in silent
        if kind in ("rank", "endpoint"):
            assert not plan.unknown
            assert not {k for k, _ in bad} - {"endpoint"}
        else:
            assert not {(base, operation.node) for base in STANDS_ON[kind]} & bad


@quick
@given(worlds)
def test_a_plan_is_a_function_of_what_was_read(world: tuple[str, dict[str, int]]) -> None:
    """Same reading, same plan; and nothing that was read is changed by planning."""
    cluster = broken(*world)
    reading = cluster.observe()
    before = repr((reading.observed, reading.history))
    plans = [
        reconcile(reading.desired, reading.observed, reading.history, now, SIMULATED) for now in (0.0, 1e9)
    ]
    assert plans[0] == plans[1]
    assert repr((reading.observed, reading.history)) == before


def many(count: int) -> Cluster:
    return Cluster.make(spec_of(count))


def test_a_plan_of_sixty_four_nodes_takes_no_square_of_the_time_of_sixteen() -> None:
    """speeds.md. Of the processor, the best of five; ``tests.bench tick`` tells the milliseconds."""

    def took(count: int) -> float:
        reading = many(count).observe()

        def once() -> float:
            began = time.thread_time()
            plan = reconcile(reading.desired, reading.observed, reading.history, 0.0, SIMULATED)
            assert len([o for o in plan.operations if o.resource.startswith("rank/")]) == count + 2
            return time.thread_time() - began

        return min(once() for _ in range(5))

    assert took(64) < 10 * took(16), "four times as many nodes; a square would be sixteen"


def test_needs_grow_linearly_with_nodes() -> None:
    """A worker that needed every operation of every node would make plans of 64 nodes unreadable."""

    def size(count: int) -> int:
        return sum(len(operation.needs) for operation in many(count).plan().operations)

    assert size(32) < 2.2 * size(16)


def test_every_kind_stands_on_kinds_that_exist() -> None:
    """A misspelt kind would silently lose an order."""
    kinds = {resource.kind for resource in RESOURCES}
    assert set(STANDS_ON) == kinds - {"rank", "endpoint"}
    assert {base for bases in STANDS_ON.values() for base in bases} <= kinds


def test_preparation_leaves_the_group_for_a_later_look() -> None:
    """After hours of download the ranks are planned on fresh readings (principle 6)."""
    plan = many(2).plan()
    assert {kind_of(o.resource) for o in plan.preparation.operations}.isdisjoint({"rank", "endpoint"})
    group = Cluster.make()
    group.apply()
    CHANGES["exit"](group.node("spark-2"), {"test-r1": 0})
    assert group.plan().preparation.operations == ()


def test_causes_are_no_secrets() -> None:
    """Decision 10: the key is nowhere in a plan or in what it is made of."""
    cluster = Cluster.make()
    cluster.apply()
    key = cluster.node("spark-1").files["/home/spark/.sparkop/test/api_key"][0].decode().strip()
    cluster.spec = spec_of(2, memory={"kvCache": "32 MiB"})
    reading = cluster.observe()
    plan: Plan = cluster.plan()
    assert plan.operations
    assert key not in repr(plan) + "\n".join(plan_lines(plan)) + repr(reading)


def test_circles_are_refused() -> None:
    """A fault of a resource must not hang an apply."""
    import pytest

    from sparkop.reconcile.reconcile import _ordered

    first: Operation = many(1).plan().operations[0]
    one = replace(first, resource="a", needs=("create:b@spark-1",))
    two = replace(first, resource="b", needs=("create:a@spark-1",))
    with pytest.raises(ValueError, match="circles"):
        _ordered([one, two])


def test_ranks_are_put_on_a_rail_that_reaches_every_node() -> None:
    """One rail of one node is down: no rank may be told an address that the others can't reach."""
    cluster = Cluster.make()
    cluster.node("spark-2").fabric["devices"][0]["state"] = "DOWN"
    facts = [node.facts for node in cluster.observe().desired.nodes.values()]
    networks = {each.fabric.address.rsplit(".", 1)[0] for each in facts if each and each.fabric}
    assert len(networks) == 1


@dataclass
class Says(Resource):
    """A resource that finds what the test wants."""

    kind: str
    found: Difference

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        return self.found


def test_what_stands_on_a_step_that_is_not_taken_is_not_taken_either() -> None:
    """A full disk on one node, an image that the other should have got from there: its guard was started
    all the same, and "No such image" was told instead of the disk."""
    cluster = Cluster.make()
    cause = Cause("image", "missing", "there")
    pull = Operation(Action.PULL, "spark-1", "image", cause)
    copy = Operation(Action.COPY, "spark-2", "image", cause, needs=(pull.key,))
    guard = Operation(Action.START, "spark-2", "memguard", cause)
    full = Blocker("spark-1", "disk", Cause("free", "8 MiB", "more"), "make room")
    resources = (
        Says("disk", Difference(blockers=(full,))),
        Says("image", Difference((pull, copy))),
        Says("memguard", Difference((guard,))),
    )
    reading = cluster.observe()
    plan = reconcile(reading.desired, reading.observed, reading.history, 0.0, resources)
    assert (plan.operations, plan.blockers) == ((), (full,))


def test_nothing_is_copied_from_a_node_that_can_not_be_written_on() -> None:
    """The copy needs the lease and a key in the source's state folder: it was planned, and failed with
    "nothing may be written here" instead of the full disk."""
    for broken, kind in (("state", "state"), ("disk", "disk")):
        cluster = Cluster.make()
        cluster.apply()
        worker, head = cluster.node("spark-2"), cluster.node("spark-1")
        worker.checkpoint.clear()
        if broken == "disk":
            head.disk_free = 1000
        else:
            head.errors["state:cluster.json"] = "OSError: Input/output error"
        plan = cluster.plan()
        assert [o.key for o in plan.operations] == []
        assert {each.resource for each in (*plan.blockers, *plan.unknown)} >= {kind}


def test_a_copy_does_not_wait_for_the_docker_of_its_source() -> None:
    """Weights come over SSH: hours of copying need no engine at the other end."""
    cluster = Cluster.make()
    cluster.apply()
    cluster.node("spark-2").checkpoint.clear()
    cluster.node("spark-1").docker_up = False
    assert [o.key for o in cluster.plan().operations] == ["copy:weights@spark-2"]
