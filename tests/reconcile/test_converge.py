"""What apply does from end to end, on a simulated cluster: principles 4 to 7."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

import pytest

from sparkop.errors import BlockedError, ExitCode, LeaseHeldError, TimedOutError, UnreachableError
from sparkop.hosts.base import Host
from sparkop.hosts.simulated_node import Answer, SimulatedContainer, SimulatedNode
from sparkop.reconcile.converge import remains
from sparkop.reconcile.plan import Plan
from sparkop.resources.events import Event, Phase
from sparkop.resources.incident import KEPT
from sparkop.resources.operations import Blocker, Cause, Unknown
from sparkop.resources.registry import RESOURCES
from sparkop.resources.weights.files import Checkpoint
from sparkop.resources.weights.resource import WeightFiles
from tests.reconcile.simulation import PORT, SIMULATED, Cluster, spec_of
from tests.reconcile.worlds import CHANGES

STATE = PurePosixPath("/home/spark/.sparkop/test")


def serving(**changes: object) -> Cluster:
    cluster = Cluster.make(spec_of(2, **changes))
    cluster.apply()
    return cluster


def test_a_second_apply_does_nothing_at_all() -> None:
    """Not even the lease is taken: the world's list of writes does not grow."""
    cluster = serving()
    writes = len(cluster.world.writes)
    assert cluster.apply().operations == 0
    assert len(cluster.world.writes) == writes


def test_what_every_look_finds_is_told_once() -> None:
    """A plan is made again under the lease; apply told each of its lines twice."""
    cluster = serving()
    cluster.node("spark-2").exit("test-r1", 0)
    told: list[str] = []
    cluster.apply(emit=lambda event: told.append(event.text) if event.operation is None else None)
    read = [text for text in told if text.startswith("read ")]
    assert len(read) == 2, "what is to be done, and that nothing is left"
    assert read[-1] == "read 2 of 2 nodes: nothing to do"


def test_workers_start_before_the_head() -> None:
    """Decision 4."""
    assert Cluster.make(spec_of(4)).started == []
    cluster = Cluster.make(spec_of(4))
    cluster.apply()
    assert sorted(cluster.started[:3]) == ["1@spark-2", "2@spark-3", "3@spark-4"]
    assert cluster.started[3] == "0@spark-1"


def test_diff_has_no_hand_to_write_with() -> None:
    """Observation with hosts that have no writing half ends with the same plan; it never asks for one."""
    cluster = Cluster.make()

    class Reader:
        def __init__(self, host: Host) -> None:
            self.name = host.name
            self.probe, self.http = host.probe, host.http
            self.read_file, self.log_lines, self.close = host.read_file, host.log_lines, host.close

    from sparkop.reconcile.observe import observe

    for _ in range(2):
        readers = {name: Reader(host) for name, host in cluster.hosts().items()}
        attempts = cluster.world.attempts
        reading = observe(cluster.spec, readers, clock=cluster.clock, resources=SIMULATED)
        assert reading.observed.complete
        assert cluster.world.attempts == attempts
        cluster.apply()


def test_one_dead_rank_replaces_the_group_and_keeps_its_logs() -> None:
    """Stop all, start all; the logs of both lie on their nodes, owner-only."""
    cluster = serving()
    old = {number: cluster.rank(number)[1].id for number in (0, 1)}
    cluster.node("spark-2").exit("test-r1", 0)
    cluster.apply()
    assert {number: cluster.rank(number)[1].id for number in (0, 1)}.keys() == old.keys()
    assert all(cluster.rank(number)[1].id != old[number] for number in (0, 1))
    for number, node in ((0, "spark-1"), (1, "spark-2")):
        content, mode = cluster.node(node).files[str(STATE / f"incidents/epoch-1/rank-{number}.log")]
        assert b"Model loading took" in content
        assert mode == 0o600


def test_the_evidence_of_a_dead_group_says_why_it_served_nothing() -> None:
    """Not "not asked", which looks as if nobody had looked."""
    cluster = serving()
    cluster.node("spark-2").exit("test-r1", 137)
    cluster.apply()
    kept = json.loads(cluster.node("spark-1").files[str(STATE / "incidents/epoch-1/group.json")][0])
    assert kept["endpoint"] == {"serving": "not serving", "detail": "rank 1 on spark-2 exited (137)"}


def test_the_evidence_of_a_group_is_kept_before_it_is_touched() -> None:
    """Decision 6: why, the states of all ranks, and the engine's counters when it still tells them."""
    cluster = serving()
    cluster.manner = "degenerate"
    first = len(cluster.world.writes)

    def emit(event: Event) -> None:
        if event.phase is Phase.STARTED and event.operation and event.operation.resource == "rank/0":
            cluster.manner = "serve"

    cluster.apply(emit=emit)
    kept = json.loads(cluster.node("spark-1").files[str(STATE / "incidents/epoch-1/group.json")][0])
    assert kept["endpoint"]["serving"] == "degenerate"
    assert [rank["state"] for node in kept["nodes"].values() for rank in node["ranks"]] == ["running"] * 2
    assert (
        b"generation_tokens" in cluster.node("spark-1").files[str(STATE / "incidents/epoch-1/metrics.txt")][0]
    )
    actions = [w.target for w in cluster.world.writes[first:]]
    assert actions.index(str(STATE / "incidents/epoch-1/group.json")) < actions.index("test-r0")


def test_logs_of_old_groups_make_room_for_new_ones() -> None:
    """A restart loop of months must not fill the disk."""
    cluster = serving()
    for _ in range(KEPT + 2):
        cluster.node("spark-2").exit("test-r1", 0)
        cluster.apply()
    kept = {path.split("/")[-2] for path in cluster.node("spark-2").files if "/incidents/" in path}
    assert len(kept) == KEPT
    assert f"epoch-{KEPT + 2}" in kept


def test_epoch_grows_with_every_group_and_generation_with_every_change() -> None:
    """What is stamped on the ranks tells groups apart, and a restart from a changed spec."""
    cluster = serving()

    def stamped() -> tuple[str, str]:
        labels = cluster.rank(0)[1].spec.labels
        return labels["sparkop.epoch"], labels["sparkop.generation"]

    assert stamped() == ("1", "1")
    cluster.node("spark-1").exit("test-r0", 1)
    cluster.apply()
    assert stamped() == ("2", "1")
    cluster.spec = spec_of(2, memory={"kvCache": "32 MiB"})
    cluster.apply()
    assert stamped() == ("3", "2")
    cluster.stop()
    cluster.apply()
    assert stamped()[0] == "4"


def test_a_rank_that_dies_while_loading_ends_the_wait_at_once_with_its_words() -> None:
    """Its last lines and the likely cause, not a timeout after 45 minutes."""
    cluster = Cluster.make()
    cluster.manner = "die-1"
    before = cluster.clock.monotonic()
    with pytest.raises(BlockedError) as caught:
        cluster.apply()
    assert cluster.clock.monotonic() - before < 10
    error = caught.value
    assert error.node == "spark-2"
    assert "rank 1 exited (1)" in error.message
    assert error.cause == "the container's /dev/shm is too small"
    assert "shm" in (error.remedy or "")
    assert "Insufficient space" in (error.detail or "")


def test_how_long_it_is_not_ready_is_told_once_a_minute() -> None:
    """In whole minutes the same line stood there four times."""
    cluster = Cluster.make()
    cluster.manner = "loading"
    with pytest.raises(TimedOutError):
        cluster.apply()
    told = [event.text for event in cluster.events if event.text.startswith("not ready after")]
    assert len(told) > 5
    assert len(set(told)) == len(told)


def test_the_loading_lines_of_all_ranks_are_shown() -> None:
    """What people watch for thirteen minutes, without the rest that engines print."""
    cluster = Cluster.make()
    cluster.apply()
    lines = {(e.node, e.text) for e in cluster.events if e.phase is Phase.LOG}
    assert lines == {(node, "Model loading took 3 GiB memory") for node in ("spark-1", "spark-2")}


def test_not_ready_in_time_is_a_timeout_and_the_ranks_stay() -> None:
    """Exit code 3, and the next apply waits on."""
    cluster = Cluster.make()
    cluster.manner = "loading"
    with pytest.raises(TimedOutError) as caught:
        cluster.apply()
    assert caught.value.exit_code is ExitCode.TIMED_OUT
    assert cluster.rank(0)[1].running
    assert cluster.rank(1)[1].running


def test_ranks_that_load_beyond_the_deadline_are_waited_for_by_the_next_apply_and_started_anew_later() -> (
    None
):
    """Each apply removed what still loaded, so that it could never come up, and called it drift (issue 4)."""
    cluster = Cluster.make()
    cluster.manner = "loading"
    with pytest.raises(TimedOutError, match="have run for 5 min") as caught:
        cluster.apply()
    assert "sparkop apply waits up to 5 min more for them; after that" in (caught.value.remedy or "")
    (wait,) = cluster.plan().operations
    assert wait.resource == "endpoint"
    assert wait.cause.observed.startswith("loading for 5 min")
    assert wait.cause.observed.endswith(", longer than ready.deadline")
    started = list(cluster.started)
    with pytest.raises(TimedOutError) as caught:
        cluster.apply()
    assert cluster.started == started, "they still loaded"
    assert (caught.value.remedy or "").startswith("sparkop apply starts all ranks anew")
    with pytest.raises(TimedOutError):
        cluster.apply()
    assert len(cluster.started) == 2 * len(started), "they hang"


def test_a_rank_started_anew_in_a_group_that_served_gets_the_time_that_the_advice_promises() -> None:
    """That apply waits was the advice, and the next plan was a new start of all ranks."""
    cluster = serving()
    node, rank = cluster.rank(1)
    node.exit(rank.spec.name, 0)
    node.start(rank)  # docker restart
    cluster.clock.sleep(30 * 60)
    node.exit(rank.spec.name, 0)
    node.start(rank)
    cluster.manner = "loading"
    started = list(cluster.started)
    with pytest.raises(TimedOutError) as caught:
        cluster.apply()
    assert "sparkop apply waits up to 5 min more for them; after that" in (caught.value.remedy or "")
    assert [each.resource for each in cluster.plan().operations] == ["endpoint"]
    with pytest.raises(TimedOutError) as caught:
        cluster.apply()
    assert cluster.started == started, "it waits, as was said"
    assert (caught.value.remedy or "").startswith("sparkop apply starts all ranks anew")
    assert "rank/0" in [each.resource for each in cluster.plan().operations]


def test_ranks_that_load_beyond_the_deadline_come_up_while_the_next_apply_waits() -> None:
    cluster = Cluster.make()
    cluster.manner = "loading"
    with pytest.raises(TimedOutError):
        cluster.apply()
    started = list(cluster.started)
    cluster.manner = "serve"
    cluster.apply()
    assert cluster.started == started
    assert cluster.plan().converged


def test_the_lease_is_given_back_after_every_end() -> None:
    """Also after a failure: the next apply would wait thirty seconds."""
    cluster = Cluster.make()
    cluster.manner = "die-1"
    with pytest.raises(BlockedError):
        cluster.apply()
    for name in ("spark-1", "spark-2"):
        lease = cluster.node(name).document_of(str(STATE / "lease.json"))
        assert lease["released"] is True


def test_an_unknown_node_is_exit_4_after_everything_else_was_done() -> None:
    """The other node is prepared; nothing of the group is touched."""
    cluster = Cluster.make()
    cluster.node("spark-2").answer = Answer.SILENT
    with pytest.raises(UnreachableError) as caught:
        cluster.apply()
    assert caught.value.node == "spark-2"
    assert "test-memguard" in cluster.node("spark-1").containers
    assert cluster.started == []
    assert "sparkop apply again when it answers" in str(caught.value.remedy)
    with pytest.raises(UnreachableError) as caught:
        cluster.apply(command="download")
    assert "sparkop download again when it answers" in str(caught.value.remedy)


def test_a_survivor_is_not_killed_while_its_peer_is_unknown() -> None:
    """Hold and report: a node that does not answer is not a dead node."""
    cluster = serving()
    cluster.node("spark-2").answer = Answer.SILENT
    with pytest.raises(UnreachableError):
        cluster.apply()
    assert cluster.rank(0)[1].running


def test_a_blocker_is_exit_6_with_the_remedy() -> None:
    """Named, with what to do."""
    cluster = Cluster.make()
    CHANGES["rails_down"](cluster.node("spark-2"), [0, 1])
    with pytest.raises(BlockedError) as caught:
        cluster.apply()
    assert caught.value.exit_code is ExitCode.FAILED
    assert caught.value.node == "spark-2"
    assert caught.value.remedy


def test_no_is_no() -> None:
    """Asked before serving stops; a no changes nothing."""
    cluster = serving()
    cluster.spec = spec_of(2, memory={"kvCache": "32 MiB"})
    asked: list[Plan] = []

    def approve(plan: Plan) -> bool:
        asked.append(plan)
        return False

    writes = len(cluster.world.writes)
    with pytest.raises(BlockedError, match="you said no"):
        cluster.apply(approve=approve)
    assert len(asked) == 1
    assert len(cluster.world.writes) == writes
    cluster.spec = spec_of(2, memory={"kvCache": "64 MiB", "guard": {"actionFloor": "2 GiB"}})
    assert cluster.apply(approve=approve).operations == 4
    assert len(asked) == 1, "replacing the guard stops nothing, so nobody is asked"


@pytest.mark.parametrize("lost", ["dead", "missing"])
def test_nobody_is_asked_about_serving_where_nothing_serves(lost: str) -> None:
    """The worker has ended, the head still runs: "This stops serving" was asked, and was not so."""
    cluster = serving()
    if lost == "dead":
        cluster.node("spark-2").exit("test-r1", 137)
    else:
        del cluster.node("spark-2").containers["test-r1"]
    assert not cluster.plan().stops_serving
    cluster.apply(approve=lambda _plan: False)
    assert cluster.plan().converged


def test_a_group_of_another_spec_may_serve_without_a_rank_that_this_one_adds() -> None:
    """Its ranks all run: which the old spec had is not known here."""
    cluster = Cluster.make(spec_of(3))
    cluster.spec = spec_of(2)
    cluster.apply()
    cluster.spec = spec_of(3)
    assert cluster.plan().stops_serving


def test_a_stop_request_ends_after_what_runs() -> None:
    """The first Ctrl-C: nothing new, and what is left is said."""
    cluster = Cluster.make()
    stop = threading.Event()

    def emit(event: Event) -> None:
        if event.phase is Phase.DONE:
            stop.set()

    result = cluster.apply(emit=emit, stop=stop)
    assert result.interrupted
    assert result.left
    assert cluster.started == []
    assert cluster.apply().operations > 0
    assert cluster.plan().converged


def test_a_stop_request_while_loading_leaves_the_ranks_loading() -> None:
    """They go on by themselves; the next apply waits for them without a restart."""
    cluster = Cluster.make()
    cluster.begin()
    ids = [cluster.rank(number)[1].id for number in (0, 1)]
    cluster.manner = "serve"
    cluster.apply()
    assert [cluster.rank(number)[1].id for number in (0, 1)] == ids


def test_what_does_not_hold_ends_and_says_so() -> None:
    """Someone else changes it back at once: no endless loop."""
    cluster = serving()
    node = cluster.node("spark-1")
    del node.containers["test-memguard"]

    def emit(event: Event) -> None:
        if event.phase is Phase.DONE and event.operation and event.operation.resource == "memguard":
            del node.containers["test-memguard"]

    with pytest.raises(BlockedError, match="does not hold"):
        cluster.apply(emit=emit)


def test_a_tripped_guard_blocks_the_same_numbers_until_they_are_confirmed() -> None:
    """Exit 6; `--after-trip` and other numbers both get past it, and the record is gone then."""
    cluster = serving()
    trip = {"available": 900_000_000, "floor": 1 << 30}
    CHANGES["trip"](cluster.node("spark-2"), trip)
    cluster.node("spark-2").exit("test-r1", 137)
    with pytest.raises(BlockedError, match="killed the ranks"):
        cluster.apply()
    cluster.apply(confirm_trip=True)
    assert str(STATE / "trip.json") not in cluster.node("spark-2").files
    CHANGES["trip"](cluster.node("spark-2"), trip)
    cluster.node("spark-2").exit("test-r1", 137)
    cluster.spec = spec_of(2, memory={"kvCache": "32 MiB"})
    cluster.apply()
    assert cluster.plan().converged


def kill_by_guard(cluster: Cluster, rank: int, file: str) -> None:
    """As a guard does it: the record, in its draft or published, then the rank."""
    node, container = cluster.rank(rank)
    CHANGES["trip"](node, {"container": container.spec.name, "available": 900_000_000, "floor": 1 << 30})
    node.files[str(STATE / file)] = node.files.pop(str(STATE / "trip.json"))
    node.exit(container.spec.name, 137)


@pytest.mark.parametrize("agreed", [False, True])
@pytest.mark.parametrize("file", ["trip.json", "trip.draft"])
def test_a_trip_while_apply_waits_takes_the_group_down_and_is_explained(file: str, agreed: bool) -> None:
    """Not only "killed": what the guard saw, what to lower; no rank is left, and none is started again. Who
    has confirmed the trip before has not confirmed this one."""
    cluster = Cluster.make()
    cluster.manner = "loading"

    def emit(event: Event) -> None:
        if event.phase is Phase.STARTED and event.operation and event.operation.resource == "endpoint":
            kill_by_guard(cluster, 1, file)

    with pytest.raises(BlockedError, match="killed the ranks at") as caught:
        cluster.apply(emit=emit, confirm_trip=agreed)
    assert caught.value.node == "spark-2"
    assert "lower memory.kvCache" in (caught.value.remedy or "")
    assert not any(cluster.rank(number)[1].running for number in (0, 1))
    started = list(cluster.started)
    with pytest.raises(BlockedError, match="killed the ranks at"):
        cluster.apply()
    assert cluster.started == started


@pytest.mark.parametrize("file", ["trip.json", "trip.draft"])
def test_no_rank_is_started_after_a_trip_that_came_after_the_plan(file: str) -> None:
    """Right before each start it is looked again, at the head's for all nodes: the worker that was started
    first may be gone by then."""
    cluster = Cluster.make()
    before = cluster.world.on_start

    def start(node: SimulatedNode, container: SimulatedContainer) -> None:
        before(node, container)
        if container.spec.name == "test-r1":
            kill_by_guard(cluster, 1, file)

    cluster.world.on_start = start
    with pytest.raises(BlockedError, match="the ranks at"):
        cluster.apply()
    assert cluster.started == ["1@spark-2"]


def test_a_draft_that_was_confirmed_is_taken_away() -> None:
    """Else the guard publishes it after the start, and the numbers are refused again."""
    cluster = serving()
    kill_by_guard(cluster, 1, "trip.draft")
    cluster.apply(confirm_trip=True)
    assert str(STATE / "trip.draft") not in cluster.node("spark-2").files
    assert cluster.plan().converged


def test_foreign_containers_are_replaced_only_when_agreed() -> None:
    """A recipe that runs under our names."""
    cluster = Cluster.make()
    CHANGES["containers"](cluster.node("spark-2"), {"test-r1": {}})
    with pytest.raises(BlockedError, match="not made by sparkop"):
        cluster.apply()
    told = [event.text for event in cluster.events if event.text.startswith("blocked: ")]
    assert len(told) == 1, "while image and weights go on"
    with pytest.raises(BlockedError, match="not made by sparkop"):
        cluster.apply()
    told = [event.text for event in cluster.events if event.text.startswith("blocked: ")]
    assert told == [], "the error says it: nothing that takes long goes on before"
    assert cluster.node("spark-2").containers["test-r1"].id == "id-test-r1"
    cluster.apply(adopt=True)
    assert cluster.plan().converged
    assert cluster.node("spark-2").containers["test-r1"].id != "id-test-r1"


def test_what_is_not_ours_is_never_touched() -> None:
    """A user's containers, with and without a cluster's labels, live through apply, edit and stop."""
    cluster = Cluster.make()
    others = {
        "jellyfin": {},
        "another": {"labels": {"sparkop.cluster": "other", "sparkop.role": "rank", "sparkop.rank": "0"}},
        "dead": {"state": "exited", "exit": 3},
    }
    CHANGES["containers"](cluster.node("spark-1"), others)
    cluster.apply()
    cluster.spec = spec_of(2, memory={"kvCache": "32 MiB"})
    cluster.apply()
    cluster.stop()
    assert set(cluster.node("spark-1").containers) == set(others)


def test_stop_removes_ranks_and_guards_and_remembers_it() -> None:
    """Gone, memory back, and the mark is on every node."""
    cluster = serving()
    stopped = cluster.stop(holder="ada@desk/1/0")
    assert all(not node.containers for node in cluster.world.nodes.values())
    assert set(stopped.removed) == {"spark-1", "spark-2"}
    assert all(free > 110 << 30 for free in stopped.available.values())
    assert cluster.observe().history.intent.stopped
    assert cluster.observe().history.intent.by == "ada@desk"
    writes = len(cluster.world.writes)
    assert cluster.stop().removed == {}
    assert len(cluster.world.writes) == writes, "a second stop writes nothing"


def test_stop_reports_the_node_that_it_could_not_reach() -> None:
    """Elsewhere everything stops."""
    cluster = serving()
    cluster.node("spark-2").answer = Answer.SILENT
    stopped = cluster.stop()
    assert "spark-2" in stopped.unknown
    assert not cluster.node("spark-1").containers
    assert "test-r1" in cluster.node("spark-2").containers


def test_a_lease_that_is_lost_ends_the_apply() -> None:
    """Every node refuses the writes of a past epoch; the error says who writes."""
    cluster = Cluster.make()

    def emit(event: Event) -> None:
        if event.phase is Phase.DONE and event.operation and event.operation.resource == "image":
            for name in ("spark-1", "spark-2"):
                path = str(STATE / "lease.json")
                lease = cluster.node(name).document_of(path)
                lease.update(holder="eve", epoch=lease["epoch"] + 1)
                cluster.node(name).files[path] = (json.dumps(lease).encode(), 0o600)

    with pytest.raises(LeaseHeldError):
        cluster.apply(emit=emit)
    assert cluster.started == []


def test_the_api_is_not_asked_while_a_rank_is_down() -> None:
    """A diff of a broken group must not take the canary's deadline."""
    cluster = serving()
    cluster.node("spark-2").exit("test-r1", 0)
    asked: list[str] = []
    service = cluster.node("spark-1").services[PORT]

    def spy(
        method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, Iterable[bytes]]:
        asked.append(path)
        return service(method, path, headers, body)

    cluster.node("spark-1").services[PORT] = spy
    assert not cluster.plan().converged
    assert asked == []


def test_a_node_that_goes_silent_while_the_ranks_load_is_told_at_once_and_ends_the_wait_later() -> None:
    """A minute went by with nothing but "not ready"."""
    cluster = Cluster.make()
    cluster.manner = "loading"
    told: list[str] = []

    def emit(event: Event) -> None:
        told.append(event.text)
        if event.phase is Phase.LOG:
            cluster.node("spark-2").answer = Answer.SILENT

    with pytest.raises(UnreachableError):
        cluster.apply(emit=emit)
    assert any("not ready" in text and "spark-2 has not answered for" in text for text in told)


def test_a_rank_that_dies_while_another_node_is_silent_is_told() -> None:
    cluster = Cluster.make()
    cluster.manner = "loading"

    def emit(event: Event) -> None:
        if event.phase is Phase.LOG:
            cluster.node("spark-2").answer = Answer.SILENT
            node, container = cluster.rank(0)
            node.exit(container.spec.name, 1)

    with pytest.raises(BlockedError, match="rank 0"):
        cluster.apply(emit=emit)


def test_a_node_that_loses_power_while_the_ranks_load_is_told_as_that() -> None:
    """Its rank "exited (255)", and the last line of its log was taken for the cause (a reader)."""
    cluster = Cluster.make()
    cluster.manner = "loading"

    def emit(event: Event) -> None:
        if "not ready" in event.text:
            cluster.node("spark-2").reboot()

    with pytest.raises(BlockedError, match="it has booted anew") as caught:
        cluster.apply(emit=emit)
    assert caught.value.node == "spark-2"
    assert "power cut" in (caught.value.cause or "")
    assert caught.value.remedy == "sparkop apply starts the group again"


def test_what_could_not_be_read_is_told_beside_what_is_blocked() -> None:
    """After a trip a stopped Docker was not named: the human mended the one, and met the other."""
    blocked = Blocker("spark-2", "trip", Cause("trip", "killed the ranks", "confirmed"), "end pid 7")
    unread = Unknown("spark-1", "Docker does not answer", "image", remedy="sudo systemctl start docker")
    with pytest.raises(BlockedError) as caught:
        remains(Plan(blockers=(blocked,), unknown=(unread, unread)))
    assert caught.value.detail is not None
    assert caught.value.detail.count("spark-1 unknown: Docker does not answer") == 1
    assert "sudo systemctl start docker" in caught.value.detail


def test_where_every_node_is_silent_the_hub_is_not_what_is_in_the_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing could be read: 4. It ended with 6, as if a human had to mend the hub's list."""
    away = Checkpoint(None, error=UnreachableError("the hub does not answer"))
    monkeypatch.setattr(WeightFiles, "prepare", lambda *_: away)
    cluster = Cluster.make()
    for node in cluster.spec.nodes:
        cluster.node(node.name).answer = Answer.SILENT
    with pytest.raises(UnreachableError, match="could not be read: spark-1, spark-2"):
        cluster.apply(resources=RESOURCES)
    cluster.node("spark-1").answer = Answer.WHOLE
    with pytest.raises(BlockedError, match="the hub does not answer"):
        cluster.apply(resources=RESOURCES)


def test_a_restart_policy_that_was_changed_by_hand_costs_no_serving() -> None:
    """``docker update --restart`` was not seen: Docker starts a rank without the others, or a guard no more.
    The guard is made anew, of the rank it is told what to type."""
    cluster = serving()
    started = list(cluster.started)
    changed = {"test-r1": "always", "test-memguard": "no"}
    CHANGES["restart_policy"](cluster.node("spark-2"), changed)
    cluster.apply()
    plan = cluster.plan()
    assert plan.converged
    assert any("docker update --restart=no test-r1" in warning for warning in plan.warnings)
    assert cluster.started == started
    guards = [c.spec for c in cluster.node("spark-2").containers.values() if "memguard" in c.spec.name]
    assert [each.options.restart for each in guards if each.options] == ["always"]
    CHANGES["restart_policy"](cluster.node("spark-2"), {"test-r1": "no"})
    assert not cluster.plan().warnings
