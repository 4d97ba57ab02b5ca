"""The guard as a resource: what it is given, when it is replaced, what a trip leads to, the launch gate."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from sparkop.errors import BlockedError
from sparkop.hosts.base import ContainerSpec, ReadableHost
from sparkop.hosts.simulated_node import Answer, SimulatedNode, SimulatedUnit
from sparkop.reconcile.memory import LATE, MemoryFeed, NodeMemory, memory_of, read_memory
from sparkop.reconcile.status import GuardStatus, status_of
from sparkop.resources import memory_gate
from sparkop.resources.guard import desired_guard, program, program_file
from sparkop.resources.trip import damaged, story_in
from sparkop.views.memory import memory_picture
from sparkop.views.plan_text import plan_lines
from sparkop.views.quantities import sparkline
from sparkop.views.status import story_lines
from tests.reconcile.simulation import Cluster, spec_of

GIB, MIB = 1 << 30, 1 << 20
STATE = "/home/spark/.sparkop/test"


def serving() -> Cluster:
    cluster = Cluster.make(spec_of(2))
    cluster.apply()
    return cluster


def put(node: SimulatedNode, name: str, document: dict[str, Any]) -> None:
    node.files[f"{STATE}/{name}"] = (json.dumps(document).encode(), 0o644)


def guard_of(cluster: Cluster) -> ContainerSpec:
    found = desired_guard(cluster.spec, "v1:0", STATE, "/w")
    assert found is not None
    return found


def operations(cluster: Cluster) -> list[str]:
    return [f"{o.action} {o.resource}@{o.node}" for o in cluster.plan().operations]


def test_the_guard_gets_what_it_needs_and_no_more() -> None:
    """No network, GPU, devices, privileges; Docker starts it whatever happened; checkpoint read-only."""
    options = guard_of(serving()).options
    assert options is not None
    assert (options.network, options.pid, options.restart) == ("none", "host", "always")
    assert options.capabilities == ("IPC_LOCK", "SYS_NICE")
    assert options.ulimits == {"memlock": -1}
    assert options.read_only_root
    assert options.security == ("apparmor=unconfined",), "Docker's profile keeps it from privileged ranks"
    assert (options.privileged, options.gpus, options.devices) == (False, False, ())
    mounts = {m.target: m.read_only for m in guard_of(serving()).mounts}
    assert mounts["/weights"] is True
    assert mounts[f"/sparkop/{program_file()}"] is True


def test_a_new_program_replaces_the_guard_and_leaves_the_ranks() -> None:
    """A running guard keeps the file that it was started with, so another program has another name."""
    cluster = serving()
    for node in cluster.world.nodes.values():
        container = node.containers["test-memguard"]
        labels = {**container.spec.labels}
        for key in ("sparkop.hash", "sparkop.desired"):
            labels[key] = labels[key].replace(program_file(), "memguard-000000000000.pyz")
        labels["sparkop.hash"] = "v1:" + "0" * 64
        container.spec = ContainerSpec(**{**vars(container.spec), "labels": labels})
        node.files.pop(f"{STATE}/{program_file()}")
    told = [line for line in plan_lines(cluster.plan()) if " memguard " in line]
    assert told, "the cause is sparkop itself: nobody has changed the spec, and nothing has drifted"
    for each in told:
        assert (
            f"sparkop's guard program: 000000000000 -> {program_file()[9:21]}  [another sparkop made it]"
            in each
        )
    assert {line.partition("@")[0] for line in operations(cluster)} == {
        "create state/memguard.py",
        "remove memguard",
        "start memguard",
    }
    cluster.apply()
    assert cluster.node("spark-1").files[f"{STATE}/{program_file()}"][0] == program()


def test_other_floors_and_another_program_name_the_floors() -> None:
    """What the user has changed is told first."""
    cluster = serving()
    guard = cluster.node("spark-1").containers["test-memguard"]
    older = guard.spec.labels["sparkop.desired"].replace(program_file(), "memguard-000000000000.pyz")
    labels = {**guard.spec.labels, "sparkop.hash": "v1:" + "0" * 64, "sparkop.desired": older}
    guard.spec = ContainerSpec(**{**vars(guard.spec), "labels": labels})
    cluster.spec = spec_of(2, memory={"kvCache": "4GiB", "guard": {"actionFloor": "2GiB"}})
    told = [line for line in plan_lines(cluster.plan()) if " memguard " in line and "spark-1" in line]
    assert told
    assert all("guard --floor" in line and "[the spec was changed" in line for line in told)


def test_a_guard_that_stopped_reading_is_replaced() -> None:
    """Its container runs, but it has looked at no memory for a minute."""
    cluster = serving()
    node = cluster.node("spark-2")
    cluster.clock.now += 300
    put(node, "memguard.json", {"at": cluster.clock.now - 5})
    assert operations(cluster) == []
    put(node, "memguard.json", {"at": cluster.clock.now - 90})
    assert operations(cluster) == ["remove memguard@spark-2", "start memguard@spark-2"]
    assert cluster.plan().operations[0].cause.observed == "silent for 90 s"


UNIT = {"kvCache": "64 MiB", "guard": {"run": "unit"}}


def as_unit() -> Cluster:
    cluster = Cluster.make(spec_of(2, memory=UNIT))
    cluster.apply()
    return cluster


def guards(node: SimulatedNode) -> list[str]:
    """The forms of the guards that run there."""
    containers = [c for c in node.containers.values() if c.spec.labels["sparkop.role"] == "memguard"]
    running = ["container"] * sum(c.running for c in containers)
    return running + ["unit"] * sum(unit.state == "running" for unit in node.units.values())


def watched(cluster: Cluster) -> list[list[list[str]]]:
    """The guards of all nodes after each write from now on."""
    seen: list[list[list[str]]] = []
    effect = cluster.world.effect

    def looked(*arguments: Any, **options: Any) -> dict[str, Any]:
        result = effect(*arguments, **options)
        seen.append([guards(node) for node in cluster.world.nodes.values()])
        return result

    cluster.world.effect = looked  # type: ignore[method-assign]
    return seen


def test_a_unit_is_the_same_program_with_the_nodes_own_paths() -> None:
    """No image, no Docker; systemd or nobody starts it."""
    cluster = as_unit()
    node = cluster.node("spark-1")
    [(name, unit)] = node.units.items()
    assert name.startswith("test-memguard-")
    assert unit.argv[0] == f"{STATE}/{program_file()}"
    assert unit.argv[1:] == [
        *("--cluster", "test", "--floor", str(GIB), "--hard-floor", str(512 * MIB)),
        *("--soft-floor", str(10 * GIB), "--interval", "1"),
        *("--state", STATE, "--weights", "/home/spark/models/model"),
    ]
    assert unit.labels["sparkop.role"] == "memguard"
    assert guards(node) == ["unit"]
    assert operations(cluster) == []
    assert cluster.plan().warnings == ()


def test_container_and_unit_change_places_without_a_moment_without_a_guard() -> None:
    """The new one runs before the old one is taken away, on every node; the ranks serve on."""
    cluster = serving()
    ranks = [cluster.rank(number)[1].id for number in (0, 1)]
    for form, memory in (("unit", UNIT), ("container", {"kvCache": "64 MiB"}), ("unit", UNIT)):
        cluster.spec = spec_of(2, memory=memory)
        told = [
            f"{o.cause.field}: {o.cause.observed} -> {o.cause.desired}" for o in cluster.plan().operations
        ]
        assert any(line.startswith("guard.run: ") for line in told)
        seen = watched(cluster)
        cluster.apply()
        assert all(each for moment in seen for each in moment)
        assert [guards(node) for node in cluster.world.nodes.values()] == [[form], [form]]
        assert operations(cluster) == []
    assert [cluster.rank(number)[1].id for number in (0, 1)] == ranks


def test_a_unit_with_other_floors_is_replaced_by_the_new_one_first() -> None:
    """Its name has the hash of what it is."""
    cluster = as_unit()
    before = set(cluster.node("spark-1").units)
    cluster.spec = spec_of(2, memory={**UNIT, "guard": {"run": "unit", "actionFloor": "2 GiB"}})
    assert cluster.plan().operations[0].cause.field == "guard --floor"
    seen = watched(cluster)
    cluster.apply()
    assert all(each for moment in seen for each in moment)
    assert set(cluster.node("spark-1").units).isdisjoint(before)
    assert [guards(node) for node in cluster.world.nodes.values()] == [["unit"], ["unit"]]


def test_a_unit_that_died_or_is_paused_or_there_twice_is_mended() -> None:
    """As with a container."""
    cluster = as_unit()
    node = cluster.node("spark-2")
    [name] = node.units
    for state in ("exited", "paused"):
        node.units[name].state = state
        assert cluster.plan().operations[0].cause.observed == state
        cluster.apply()
        assert guards(node) == ["unit"]
        assert operations(cluster) == []
    node.units["test-memguard-of-old"] = SimulatedUnit(dict(node.units[name].labels), [])
    assert operations(cluster) == ["remove memguard/test-memguard-of-old@spark-2"]
    cluster.apply()
    assert list(node.units) == [name]


def test_a_unit_is_removed_by_stop_and_when_no_guard_is_wanted() -> None:
    """Nothing is left that starts itself at the next boot."""
    cluster = as_unit()
    cluster.spec = spec_of(2, memory={"kvCache": "64 MiB", "guard": {"enabled": False}})
    cluster.apply()
    assert [node.units for node in cluster.world.nodes.values()] == [{}, {}]
    cluster = as_unit()
    cluster.stop()
    assert [node.units for node in cluster.world.nodes.values()] == [{}, {}]


def test_a_unit_that_nobody_starts_after_a_reboot_is_told() -> None:
    """A node without systemd, or a user who does not linger; after a reboot it is dead, and mended."""
    cluster = as_unit()
    [unit] = cluster.node("spark-1").units.values()
    for kept, remedy in (("detached", "sparkop watch"), ("systemd --user", "enable-linger spark")):
        unit.kept = kept
        [told] = cluster.plan().warnings
        assert told.startswith("spark-1: the memory guard does not come back after a reboot")
        assert remedy in told
    cluster.node("spark-1").reboot()
    assert guards(cluster.node("spark-1")) == []
    cluster.apply()
    assert guards(cluster.node("spark-1")) == ["unit"]


def test_units_that_can_not_be_read_are_unknown() -> None:
    """Unknown is never absent: nothing is started beside what may be there."""
    cluster = as_unit()
    cluster.node("spark-2").errors["units"] = "PermissionError"
    plan = cluster.plan()
    assert [(u.node, u.resource) for u in plan.unknown] == [("spark-2", "memguard")]
    assert plan.operations == ()


def test_status_and_memory_know_a_unit() -> None:
    """And who keeps it."""
    cluster = as_unit()
    found = status_of(cluster.observe(), cluster.plan()).nodes[0].guard
    assert found is not None
    assert found.state == "running (unit, systemd)"
    assert [each.guard for each in read_memory(cluster.spec, cluster.hosts())] == ["guarding", "guarding"]


def test_a_clock_that_is_set_makes_no_guard_silent() -> None:
    """The heartbeat has the time since the boot as well, and that never jumps."""
    cluster = serving()
    cluster.clock.now += 300
    put(cluster.node("spark-2"), "memguard.json", {"at": cluster.clock.now - 86400, "up": 1e6 - 5})
    assert operations(cluster) == []
    put(cluster.node("spark-2"), "memguard.json", {"at": cluster.clock.now + 86400, "up": 1e6 - 100})
    assert operations(cluster) == ["remove memguard@spark-2", "start memguard@spark-2"]
    put(cluster.node("spark-2"), "memguard.json", {"at": cluster.clock.now, "up": 1e7})
    assert cluster.plan().operations[0].cause.observed == "silent for 5 min", "of an earlier boot"


def trip(cluster: Cluster, **more: Any) -> None:
    node = cluster.node("spark-2")
    stamp = node.containers["test-r1"].spec.labels["sparkop.hash"]
    record = {"version": 1, "at": cluster.clock.now, "available": 900 * MIB, "floor": GIB, "hashes": [stamp]}
    put(node, "trip.json", {**record, "containers": ["test-r1"], **more})
    node.exit("test-r1", 137)


def test_after_a_trip_the_group_goes_down_everywhere_and_stays_down() -> None:
    """The rank that was not killed is; nothing is started, and the second plan has nothing more to do."""
    cluster = serving()
    trip(cluster)
    assert operations(cluster) == ["remove trip/test-r0@spark-1"]
    for operation in cluster.plan().operations:
        assert not operation.cost.stops_serving, "without the other it serves nothing"
    node = cluster.node("spark-1")
    node.exit("test-r0", 137)
    plan = cluster.plan()
    assert plan.operations == ()
    assert [b.resource for b in plan.blockers] == ["trip"]
    assert "lower memory.kvCache (now 64.0 MiB) before you raise the guard's floor" in plan.blockers[0].remedy


def tripped() -> Cluster:
    """As the guard of today writes it: with the numbers of the rank."""
    cluster = serving()
    numbers = cluster.node("spark-2").containers["test-r1"].spec.labels["sparkop.memory"]
    trip(cluster, numbers=[numbers])
    return cluster


@pytest.mark.parametrize(
    "harmless",
    [
        {"api": {"port": 8000, "servedNames": ["other"]}},
        {"api": {"port": 8001, "servedNames": ["tiny"]}},
        {"engine": {"kind": "vllm", "context": 32768, "parsers": {"reasoning": "x"}}},
        {"engine": {"kind": "vllm", "context": 32768, "container": {"namePrefix": "y"}}},
        {"memory": {"kvCache": "64 MiB", "guard": {"actionFloor": "900 MiB"}}},
        {"memory": {"kvCache": "64 MiB", "guard": {"run": "unit"}}},
    ],
)
def test_a_change_that_takes_no_less_memory_does_not_end_a_trip(harmless: dict[str, Any]) -> None:
    """Nor does a lower floor: it would be reached again."""
    cluster = tripped()
    cluster.spec = spec_of(2, **harmless)
    assert [b.resource for b in cluster.plan().blockers] == ["trip"]


@pytest.mark.parametrize(
    "change",
    [
        {"memory": {"kvCache": "32 MiB"}},
        {"memory": {"kvCache": "64 MiB", "gpuFraction": 0.5}},
        {"engine": {"kind": "vllm", "context": 16384, "container": {"caches": {"/cache": "."}}}},
        {"engine": {"kind": "vllm", "context": 32768, "extraArgs": ["--enforce-eager"]}},
    ],
)
def test_other_memory_numbers_end_a_trip(change: dict[str, Any]) -> None:
    """The record is taken away, and the ranks are launched."""
    cluster = tripped()
    cluster.spec = spec_of(2, **change)
    assert "remove trip@spark-2" in operations(cluster)
    cluster.apply()
    assert operations(cluster) == []


def guard_status(cluster: Cluster) -> GuardStatus:
    reading = cluster.observe()
    found = status_of(reading, cluster.plan()).nodes[1].guard
    assert found is not None
    return found


def test_status_has_the_last_minutes_of_a_trip() -> None:
    """Samples, phase and the largest processes; what can't be read is left out, not in the way."""
    cluster = serving()
    largest = [{"pid": 7, "name": "python3", "rss": 3 * GIB}]
    trip(cluster, samples=[4000, 2000, 900], step=2.0, phase="serving", largest=largest)
    story = guard_status(cluster).story
    assert story is not None
    assert story.samples == (4000 * MIB, 2000 * MIB, 900 * MIB)
    assert (story.phase, story.largest, story.containers) == (
        "serving",
        ("python3 (7) 3.0 GiB",),
        ("test-r1",),
    )
    put(
        cluster.node("spark-2"),
        "trip.json",
        {"at": 1, "available": 2, "floor": 3, "samples": "x", "largest": 4},
    )
    story = guard_status(cluster).story
    assert story is not None
    assert (story.samples, story.largest, story.available) == ((), (), 2)


@pytest.mark.parametrize(("left", "told"), [(300 * MIB, True), (90 * GIB, False), (None, False)])
def test_a_program_that_is_no_rank_is_told_when_the_kill_brought_little(left: int | None, told: bool) -> None:
    """Lower numbers would not help then."""
    cluster = serving()
    hog = {"pid": 9, "name": "hog", "rss": 100 * GIB}
    trip(cluster, samples=[4000, 900], after=[hog], **({"available_after": left} if left else {}))
    story = guard_status(cluster).story
    assert story is not None
    text = "\n".join(line.plain for line in story_lines("spark-2", story))
    assert ("hog (9) 100.0 GiB is no rank: end it" in text) is told


HOG = {"pid": 9, "name": "hog", "rss": 30 * GIB}


@pytest.mark.parametrize(
    ("looks", "told"),
    [
        ({"outside": {"grew": 20 * GIB, "most": HOG}}, True),
        ({"outside": {"grew": 0, "most": None}, "outside_after": {"grew": 30 * GIB, "most": HOG}}, True),
        ({"outside": {"grew": 5 * GIB, "most": HOG}}, False),
        ({}, False),
    ],
    ids=["before", "in the last seconds", "the smaller part", "an older guard"],
)
def test_memory_that_was_taken_outside_of_the_group_is_no_reason_to_lower_its_numbers(
    looks: dict[str, Any], told: bool
) -> None:
    """A rank is the largest process all the same; kvCache was to be lowered for what another program took."""
    cluster = serving()
    rank = {"pid": 7, "name": "VLLM::Worker", "rss": 60 * GIB}
    trip(cluster, available=GIB // 2, samples=[30 * 1024, 20 * 1024, 512], largest=[rank, HOG], **looks)
    status = status_of(cluster.observe(), cluster.plan())
    guard = status.nodes[1].guard
    assert guard is not None
    assert guard.story is not None
    text = "\n".join(line.plain for line in story_lines("spark-2", guard.story))
    (blocked,) = [b for b in cluster.plan().blockers if b.resource == "trip"]
    assert ("outside the group took it" in text) is told
    assert ("GiB of the 29.5 GiB that are missing, most of it hog (9) 30.0 GiB" in text) is told
    for advice in (guard.advice, blocked.remedy):
        assert ("end hog (9) 30.0 GiB if it still runs, or let it take less" in advice) is told
        assert ("lower memory.kvCache" in advice) is not told
    assert "to launch the same numbers again: sparkop apply --after-trip" in blocked.remedy


@pytest.mark.parametrize("looked", [False, True], ids=["at once", "after the second look"])
def test_until_the_guard_has_looked_again_the_group_is_not_the_only_suspect(looked: bool) -> None:
    """In the first seconds kvCache was to be lowered, also where a minute later it was another program."""
    cluster = serving()
    after = {"available_after": 20 * GIB} if looked else {}
    trip(cluster, available=GIB // 2, samples=[30 * 1024, 512], outside={"grew": 0, "most": None}, **after)
    (blocked,) = [b for b in cluster.plan().blockers if b.resource == "trip"]
    assert blocked.remedy is not None
    assert blocked.remedy.startswith(
        "lower memory." if looked else "end what else runs there (sparkop memory), or"
    )


def test_too_little_memory_is_refused_before_a_launch_with_figures() -> None:
    """vLLM wants its share of all memory; nothing is started, and it says what there is and what it takes."""
    cluster = Cluster.make(spec_of(2, memory={"gpuFraction": 0.85}))
    cluster.node("spark-2").memory_used = 40 * GIB
    plan = cluster.plan()
    [refused] = [b for b in plan.blockers if b.resource == memory_gate.RESOURCE]
    assert (refused.node, refused.cause.observed) == ("spark-2", "81.0 GiB")
    assert refused.cause.desired == "102.8 GiB at least: memory.gpuFraction 0.85 of all"
    assert not [o for o in plan.operations if o.resource.startswith("rank")]


def test_memory_that_does_not_come_back_after_the_ranks_end_is_refused_too() -> None:
    """A moment after their end it may be on its way; what a program that is no rank holds does not come."""
    cluster = serving()
    for node in cluster.world.nodes.values():
        for name in [each for each in node.containers if not each.endswith("memguard")]:
            node.exit(name, 137)
    cluster.node("spark-2").memory_used = cluster.node("spark-2").memory_total - GIB // 4
    assert not [b for b in cluster.plan().blockers if b.resource == memory_gate.RESOURCE], "just ended"
    with pytest.raises(BlockedError) as refused:
        cluster.apply()
    assert refused.value.node == "spark-2"
    assert "memory available: 245.8 MiB -> 1.1 GiB at least" in str(refused.value.cause)
    assert not [n for n, c in cluster.node("spark-2").containers.items() if c.running and "-r" in n]
    [again] = [b for b in cluster.plan().blockers if b.resource == memory_gate.RESOURCE]
    assert again.node == "spark-2", "it stays refused"
    cluster.node("spark-2").memory_used = 4 * GIB
    cluster.apply()


def test_a_running_group_is_not_asked_for_its_memory_again() -> None:
    """What is available beside it is what it left."""
    cluster = serving()
    cluster.node("spark-2").memory_used = 120 * GIB
    assert cluster.plan().blockers == ()


def test_fragmented_memory_is_told_before_a_launch() -> None:
    """Plenty is free, but hardly any of it in large blocks."""
    cluster = Cluster.make(spec_of(2))
    put(cluster.node("spark-1"), "memguard.json", {"at": cluster.clock.now, "large_blocks": 2 * GIB})
    assert any("spark-1: only 2.0 GiB of 117.0 GiB free" in warning for warning in cluster.plan().warnings)
    put(cluster.node("spark-1"), "memguard.json", {"at": cluster.clock.now, "large_blocks": 100 * GIB})
    assert cluster.plan().warnings == ()


def test_memory_of_a_node_beside_its_guards_heartbeat() -> None:
    """Figures from the probe, phase and minutes from the guard; a guard that is silent has no phase."""
    cluster = serving()
    beat = {
        "at": cluster.clock.now,
        "phase": "serving",
        "samples": [5, 4],
        "lowest": 4 * MIB,
        "large_blocks": 9,
    }
    put(cluster.node("spark-1"), "memguard.json", {**beat, "containers": [{"name": "test-r0", "rss": 7}]})
    documents = cluster.observe().observed.documents
    found = memory_of(cluster.spec, "spark-1", documents["spark-1"])
    assert (found.guard, found.phase, found.samples) == ("guarding", "serving", (5 * MIB, 4 * MIB))
    assert [(c.name, c.resident) for c in found.containers] == [("test-r0", 7)]
    cluster.node("spark-1").containers.pop("test-memguard")
    documents = cluster.observe().observed.documents
    found = memory_of(cluster.spec, "spark-1", documents["spark-1"])
    assert (found.guard, found.phase, found.samples) == ("missing", "", ())


def test_memory_of_a_silent_node_is_unknown_and_of_the_others_is_told() -> None:
    """Unknown is never zero."""
    cluster = serving()
    cluster.node("spark-2").answer = Answer.SILENT
    first, second = read_memory(cluster.spec, cluster.hosts())
    assert (first.reason, first.total) == ("", 121 * GIB)
    assert second.available is None
    assert second.reason


def test_a_node_that_does_not_answer_holds_up_no_other() -> None:
    """The live picture: the others' figures go on; old figures of a silent node are not shown as if new."""
    cluster = serving()
    hosts = cluster.hosts()
    hung = Hung(hosts["spark-2"])
    now = [0.0]
    feed = MemoryFeed(cluster.spec, {**hosts, "spark-2": hung}, clock=lambda: now[0])  # type: ignore[dict-item]

    def look() -> list[NodeMemory]:
        found = feed.look(10.0 if hung.free.is_set() else 0.2)
        assert (found[0].total, found[0].reason) == (121 * GIB, "")
        return found

    assert look()[1].total == 121 * GIB
    hung.free.clear()
    assert look()[1].total == 121 * GIB, "late by a moment"
    now[0] = LATE + 1
    assert (look()[1].total, look()[1].reason) == (None, "no answer for 4 s")
    hung.free.set()
    assert look()[1].total == 121 * GIB
    cluster.node("spark-2").answer = Answer.SILENT
    failed = look()[1].reason
    assert failed
    assert "no answer for" not in failed
    hung.free.clear()
    now[0] += 2 * LATE
    assert look()[1].reason == failed, "why it failed stays until it answers"
    hung.free.set()


class Hung:
    """A host whose probe answers only while it is ``free``."""

    def __init__(self, host: ReadableHost) -> None:
        self.host = host
        self.free = threading.Event()
        self.free.set()

    def probe(self, request: Mapping[str, Any], timeout: float) -> Mapping[str, Any]:
        self.free.wait(60)
        return self.host.probe(request, timeout=timeout)


def test_a_sparkline_keeps_the_lows() -> None:
    """One bar a value; of a group, the least."""
    assert sparkline([0, 4, 8]) == "▁▅█"
    assert sparkline([8] * 50 + [0] + [8] * 69, width=60).count("▁") == 1
    assert sparkline([]) == ""


RECORD: dict[str, Any] = {
    "at": 1.79e9,
    "available": 1,
    "floor": 2,
    "phase": "loading",
    "hashes": ["v1:77"],
    "numbers": ["v1:88"],
    "containers": ["x-r0"],
    "largest": [{"pid": 1, "name": "a", "rss": 5}],
    "after": [{"pid": 1, "name": "a", "rss": 5}],
    "available_after": 3,
    "outside": {"grew": 1 << 40, "most": {"pid": 1, "name": "a", "rss": 5}},
    "outside_after": {"grew": 1 << 40, "most": {"pid": 1, "name": "a", "rss": 5}},
    "step": 2.0,
    "samples": [1, 2000],
}
ODD = (
    None,
    "x",
    -1,
    float("inf"),
    float("nan"),
    1e300,
    10**30,
    [],
    {},
    [None],
    [[]],
    [{}],
    [float("inf")],
    True,
)


@pytest.mark.parametrize("key", RECORD)
def test_a_record_with_any_damaged_figure_is_told_or_called_damaged(key: str) -> None:
    """No command that shows it may break off."""
    cluster = serving()
    for value in ODD:
        put(cluster.node("spark-1"), "trip.json", {**RECORD, key: value})
        document = cluster.observe().observed.documents["spark-1"]
        story = story_in(document)
        assert (story is None) == damaged(document), value
        if story is not None:
            assert story_lines("spark-1", story)


@pytest.mark.parametrize(
    "key", ["at", "up", "phase", "samples", "lowest", "large_blocks", "containers", "floors", "ranks"]
)
def test_a_heartbeat_with_any_damaged_figure_breaks_no_command(key: str) -> None:
    """It is written each ten seconds by a program that may be of another sparkop."""
    cluster = serving()
    beat = {"at": cluster.clock.now, "phase": "serving", "samples": [5, 4], "lowest": 4, "large_blocks": 9}
    for value in ODD:
        put(cluster.node("spark-1"), "memguard.json", {**beat, key: value})
        reading = cluster.observe()
        memory_picture([memory_of(cluster.spec, "spark-1", reading.observed.documents["spark-1"])])
        assert plan_lines(cluster.plan())
