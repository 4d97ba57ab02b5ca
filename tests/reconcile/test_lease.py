"""One writer (principle 7): two contenders, a paused one, a sleeping one, clocks that jump."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from sparkop.cli import download
from sparkop.errors import LeaseHeldError, UnreachableError, WaitInterruptedError
from sparkop.hosts.base import Fence, Host
from sparkop.hosts.simulated import SimulatedHost
from sparkop.hosts.simulated_node import Answer
from sparkop.reconcile import lease, transfers
from sparkop.reconcile.lease import LOOK_EVERY, Held, break_lease, hold, new_holder
from sparkop.reconcile.lease_seen import (
    EXPIRY,
    DamagedLeaseError,
    LeaseState,
    beside_a_writer,
    place,
    show_lease,
    signs_in,
)
from sparkop.reconcile.plan import Plan
from sparkop.resources.events import Event, Phase, ignore
from sparkop.views.lease import show_broken, show_leases
from tests.reconcile.simulation import Cluster, PlayedWeights, SimulatedClock, spec_of


@contextmanager
def holding(
    cluster: Cluster, holder: str, *, command: str = "apply", clock: SimulatedClock | None = None
) -> Iterator[Held]:
    """Hold the lease as one controller."""
    documents = cluster.observe(canary=False).observed.documents
    with hold(
        cluster.spec,
        cluster.hosts(),
        documents,
        command=command,
        holder=holder,
        clock=clock or cluster.clock,
        emit=ignore,
    ) as held:
        yield held


def silent_holder(cluster: Cluster, holder: str, *, command: str = "apply") -> Held:
    """Someone who has taken the lease and whose heart does not beat any more."""
    manager = holding(cluster, holder, command=command)
    held = manager.__enter__()
    held.release = lambda *_: None  # type: ignore[method-assign]  # a collected generator would, and hang at exit
    held._over.set()
    assert all(not state.released for state in states(cluster))
    return held


def write(host: Host, held: Held, name: str) -> None:
    host.act("file.write", {"path": name, "content": "eA==", "mode": 0o644}, held.fences[host.name])


class OnSleep(SimulatedClock):
    """A clock that lets something happen whenever somebody sleeps."""

    def __init__(self, then: object) -> None:
        super().__init__()
        self.then = then

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.then()  # type: ignore[operator]


def states(cluster: Cluster) -> list[LeaseState]:
    found = show_lease(cluster.spec, cluster.hosts()).values()
    assert all(isinstance(state, LeaseState) for state in found)
    return [state for state in found if isinstance(state, LeaseState)]


def test_it_is_held_on_every_node_and_given_back() -> None:
    """With one epoch; released at the end, its epoch kept."""
    cluster = Cluster.make()
    with holding(cluster, "ada"):
        assert {(s.holder, s.released, s.token) for s in states(cluster)} == {("ada", False, 1)}
    assert {(s.released, s.token) for s in states(cluster)} == {(True, 1)}
    with holding(cluster, "eve"):
        assert {(s.holder, s.token) for s in states(cluster)} == {("eve", 2)}


def test_it_is_given_back_when_the_work_fails() -> None:
    """Ctrl-C included: a lock left behind makes the next apply wait."""
    cluster = Cluster.make()
    for error in (RuntimeError, KeyboardInterrupt):
        with pytest.raises(error), holding(cluster, "ada"):
            raise error
        assert all(state.released for state in states(cluster))


def test_a_living_holder_is_not_disturbed() -> None:
    """Its heartbeat moves while we watch: exit code 5, who has it, and its writes go on."""
    cluster = Cluster.make()
    with holding(cluster, "ada") as first:
        with pytest.raises(LeaseHeldError) as caught, holding(cluster, "eve", clock=OnSleep(first.renew)):
            pytest.fail("two writers")
        assert "apply" in (caught.value.cause or "")
        told = str(caught.value.remedy)
        assert "run the same command again" in told, "this one has left: it takes over nothing"
        assert "this command takes over" not in told
        write(cluster.hosts()["spark-1"], first, "x")


def test_a_cancel_says_how_to_end_a_transfer_that_another_command_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C over there leaves it running; the advice was to wait, and Ctrl-C here went unheard."""
    monkeypatch.setattr(transfers, "WeightFiles", PlayedWeights)
    cluster = Cluster.make()
    with holding(cluster, "ada", command="download") as first:
        with pytest.raises(LeaseHeldError) as caught:
            transfers.cancel_all(cluster.spec, cluster.hosts(), clock=OnSleep(first.renew))
        assert "Ctrl-C leaves its transfers running" in str(caught.value.remedy)
        stop = threading.Event()
        stop.set()
        with pytest.raises(WaitInterruptedError):
            download._cancel(cluster.spec, cluster.hosts(), ignore, stop)


def test_a_dead_holder_is_taken_over_after_its_heartbeat_stood_still() -> None:
    """Judged by our own monotonic clock, watched without a break."""
    cluster = Cluster.make()
    first = silent_holder(cluster, "ada")
    before = cluster.clock.monotonic()
    with holding(cluster, "eve") as second:
        waited = cluster.clock.monotonic() - before
        assert EXPIRY <= waited <= EXPIRY + 4 * LOOK_EVERY, "all nodes are watched at once"
        assert {s.holder for s in states(cluster)} == {"eve"}
        write(cluster.hosts()["spark-2"], second, "x")
        with pytest.raises(LeaseHeldError):
            write(cluster.hosts()["spark-2"], first, "y")


def test_a_paused_writer_that_wakes_up_writes_nothing() -> None:
    """A laptop that slept for an hour: every node refuses its token, its own beat tells it."""
    cluster = Cluster.make()
    first = silent_holder(cluster, "ada")
    with holding(cluster, "eve"):
        pass
    for host in cluster.hosts().values():
        with pytest.raises(LeaseHeldError):
            write(host, first, "late")
        assert not any(path.endswith("late") for path in cluster.node(host.name).files)
    first.renew()
    assert first.lost.is_set()
    with pytest.raises(LeaseHeldError) as caught:
        first.check()
    assert "lease break" not in str(caught.value.cause), "no human has broken it"
    assert "(apply), token 2, because nothing was heard of the holder before for 30 s" in str(
        caught.value.cause
    )


def test_who_takes_a_lease_that_was_free_took_it_over_from_nobody() -> None:
    cluster = Cluster.make()
    silent_holder(cluster, "ada")
    break_lease(cluster.spec, cluster.hosts())
    with holding(cluster, "eve"):
        assert not any("silent" in state.info for state in states(cluster))


def test_jumping_wall_clocks_change_nothing() -> None:
    """Neither the contender's nor the node's wall clock is asked."""
    cluster = Cluster.make()
    with holding(cluster, "ada") as first:

        def jump() -> None:
            cluster.clock.skew += 86_400
            first.renew()

        with pytest.raises(LeaseHeldError), holding(cluster, "eve", clock=OnSleep(jump)):
            pytest.fail("two writers")


def test_a_watch_is_asked_and_yields() -> None:
    """`apply` asks `watch`; that gives the lease back at its next beat, and apply has it at once."""
    cluster = Cluster.make()
    first = silent_holder(cluster, "watch", command="watch")

    def beat() -> None:
        first.renew()
        if first.wanted.is_set():
            Held.release(first)

    clock = OnSleep(beat)
    before = clock.monotonic()
    with holding(cluster, "ada", clock=clock):
        assert clock.monotonic() - before < 5
        assert {s.holder for s in states(cluster)} == {"ada"}


def test_a_lease_that_changes_hands_while_it_is_waited_for_is_asked_for_again() -> None:
    """A watch gave it back and had it anew before the contender looked; nobody asked it a second time."""
    cluster = Cluster.make()
    holders = [silent_holder(cluster, "watch", command="watch")]

    def beat() -> None:
        holders[-1].renew()
        if holders[-1].wanted.is_set():
            Held.release(holders[-1])
            if len(holders) == 1:
                holders.append(silent_holder(cluster, "another", command="watch"))

    with holding(cluster, "ada", clock=OnSleep(beat)):
        assert len(holders) == 2
        assert {(s.holder, s.token) for s in states(cluster)} == {("ada", 3)}


def test_a_contender_that_gets_one_node_gives_it_back() -> None:
    """Two that start at once must not hold half of the cluster each. Whom the other left before it could say
    who it was is told that the lease is free: it was told who held it, and to wait."""
    cluster = Cluster.make()
    second_node = SimulatedHost(cluster.node("spark-2"))
    documents = cluster.observe(canary=False).observed.documents
    with holding(cluster, "ada"):
        pass
    with (
        pytest.raises(LeaseHeldError, match="it is free again") as caught,
        hold(
            cluster.spec,
            cluster.hosts(),
            documents,  # read before ada: eve thinks that nobody ever had it
            command="apply",
            holder="eve",
            clock=cluster.clock,
            emit=ignore,
        ),
    ):
        pytest.fail("an epoch was given twice")
    assert caught.value.remedy == "run the same command again"
    assert all(state.released for state in states(cluster))
    assert second_node.name == "spark-2"


def test_two_applies_at_once_end_with_one_writer_at_a_time() -> None:
    """Real threads: tokens of writes never go back, and both end well or as held."""
    cluster = Cluster.make()
    results: list[str] = []

    def run(holder: str) -> None:
        try:
            cluster.apply(holder=holder, emit=ignore)
            results.append("converged")
        except LeaseHeldError:
            results.append("held")

    threads = [threading.Thread(target=run, args=(f"writer-{n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if "converged" not in results:  # the clock runs ahead of the hearts: each can fence one out of one node
        cluster.apply(holder="next", emit=ignore)
    assert cluster.plan().converged
    for name in cluster.world.nodes:
        # A wish for the lease names the epoch that its writer will have: it is no writer's yet.
        tokens = [w.token for w in cluster.world.writes if w.node == name and w.action != "lease.ask"]
        assert tokens == sorted(tokens)
    assert len(cluster.started) == 2 or "converged" not in results, "ranks were started once"


def test_show_tells_what_can_be_read() -> None:
    """None where there was never one; the error where the node does not answer."""
    cluster = Cluster.make()
    cluster.node("spark-2").answer = Answer.SILENT
    found = show_lease(cluster.spec, cluster.hosts())
    assert found["spark-1"] is None
    assert isinstance(found["spark-2"], UnreachableError)


def test_what_another_command_does_just_now_is_not_told_as_drift_alone() -> None:
    """diff beside a live apply said "rank/0 container: missing", and nothing of who had taken it down
    (issue 4). Where nothing differs there is nothing to explain."""
    cluster = Cluster.make(spec_of(1))
    with holding(cluster, "ada"):
        reading = cluster.observe()
        plan = cluster.plan()
        (told,) = beside_a_writer(plan, reading.observed.documents).warnings
        assert "(apply), token 1, holds the lease, so that what differs may be its work; " in told
        assert beside_a_writer(Plan(), reading.observed.documents).warnings == ()
    assert beside_a_writer(plan, cluster.observe().observed.documents).warnings == ()


@pytest.mark.parametrize(
    ("info", "renewed_ago", "told"),
    [
        ({}, 4, "what differs may be its work; renewed 4 s ago"),
        ({}, 42, "has not renewed it for 42 s, so that it may be gone: then the next command"),
        (
            {"pid": "ended", "place": place()},
            4,
            "its process is gone: the next command that writes takes the lease over",
        ),
        ({"pid": "ended", "place": "another boot"}, 4, "may be its work; renewed 4 s ago"),
    ],
)
def test_status_tells_a_holder_that_was_killed_from_one_that_works(
    info: dict[str, Any], renewed_ago: float, told: str
) -> None:
    """A killed watch was warned of as of a living one, for good (issue 5)."""
    cluster = Cluster.make(spec_of(1))
    ended = subprocess.Popen(["true"])  # not waited for: a process that is left as a zombie is gone, too
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    known = {"who": "ada@desk", "command": "watch", **info, **({"pid": ended.pid} if "pid" in info else {})}
    with holding(cluster, "ada"):
        plan = cluster.plan()
        [(name, document)] = cluster.observe().observed.documents.items()
    assert document.state is not None
    assert document.machine is not None
    changes = {"released": False, "info": known, "renewed": document.machine.time_s - renewed_ago}
    state = {**document.state, "lease.json": {**document.state["lease.json"], **changes}}
    (warning,) = beside_a_writer(plan, {name: replace(document, state=state)}).warnings
    ended.wait()
    assert warning.startswith("ada@desk (watch), token 1, holds the lease")
    assert told in warning


@pytest.mark.parametrize(
    ("info", "renewed_ago", "told"),
    [
        ({}, 4, "renewed 4 s ago"),
        (
            {},
            42,
            "it has not renewed it for 42 s, so that it may be gone: then the next command that writes "
            "takes the lease over",
        ),
        (
            {"place": place(), "pid": "ended"},
            4,
            "its process is gone: the next command that writes takes the lease over",
        ),
    ],
)
def test_lease_show_tells_whether_the_holder_lives(
    info: dict[str, Any], renewed_ago: float, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """After SIGKILL it said only who held it, while a human asks it whether to wait or to break it."""
    cluster = Cluster.make(spec_of(1))
    ended = subprocess.Popen(["true"])
    ended.wait()
    with holding(cluster, "ada"):
        node = cluster.node("spark-1")
        path = next(path for path in node.files if path.endswith("lease.json"))
        lease = json.loads(node.files[path][0])
        [document] = cluster.observe().observed.documents.values()
        assert document.machine is not None
        known = {"who": "ada@desk", "command": "apply", **info, **({"pid": ended.pid} if info else {})}
        changed = {**lease, "info": known, "renewed": document.machine.time_s - renewed_ago}
        node.files[path] = (json.dumps(changed).encode(), node.files[path][1])
        shown = show_lease(cluster.spec, cluster.hosts())
        node.files[path] = (json.dumps(lease).encode(), node.files[path][1])
    show_leases(shown)
    assert "".join(capsys.readouterr().out.split()) == "".join(
        f"spark-1: held by ada@desk (apply), token 1; {told}".split()
    )
    show_leases(shown, "json")
    document_ = json.loads(capsys.readouterr().out)["spark-1"]
    assert (document_["life"], document_["unrenewed"]) == (told, renewed_ago)
    assert document_["gone"] == bool(info)


def test_a_watch_that_lets_its_own_lease_expire_does_not_run() -> None:
    """Killed within a restart, on another machine: status said for 90 s that it runs."""
    cluster = Cluster.make(spec_of(1))
    with holding(cluster, "ada"):
        [document] = cluster.observe().observed.documents.values()
    assert document.state is not None
    assert document.machine is not None
    lease, now = document.state["lease.json"], document.machine.time_s
    lease = {**lease, "released": False, "watches": {lease["holder"]: {"info": {}, "at": now - 40}}}
    for ago, alive in ((10, True), (EXPIRY + 1, False)):
        state = {**document.state, "lease.json": {**lease, "renewed": now - ago}}
        [sign] = signs_in(replace(document, state=state))
        assert sign.alive is alive


def test_break_fences_the_old_holder_out() -> None:
    """A human's decision; the epoch goes up, so the old one can't come back."""
    cluster = Cluster.make()
    first = silent_holder(cluster, "ada")
    had = states(cluster)[0].told
    broken = break_lease(cluster.spec, cluster.hosts())
    assert list(broken) == ["spark-1", "spark-2"]
    assert set(broken.values()) == {had}, "a human is told from whom"
    assert all(state.released and state.token == 2 for state in states(cluster))
    with pytest.raises(LeaseHeldError, match="does not have the lease any more") as caught:
        write(cluster.hosts()["spark-1"], first, "x")
    first.renew()
    with pytest.raises(LeaseHeldError) as lost:
        first.check()
    for told in (caught.value.cause, lost.value.cause):
        assert "ran sparkop lease break" in str(told)
        assert "taken over" not in str(told)
    assert set(break_lease(cluster.spec, cluster.hosts()).values()) == {None}


def test_break_tells_of_every_node(capsys: pytest.CaptureFixture[str]) -> None:
    """A silent one was all that was told, and the holder kept the lease of the others."""
    cluster = Cluster.make(spec_of(3))
    silent_holder(cluster, "ada")
    cluster.node("spark-2").answer = Answer.SILENT
    broken = break_lease(cluster.spec, cluster.hosts())
    assert isinstance(broken["spark-2"], UnreachableError)
    show_broken(broken)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("spark-1, spark-3: taken from ")
    assert lines[1].startswith("spark-2: not taken: ")
    assert "sparkop lease break again when it answers" in lines[1]
    cluster.node("spark-2").answer = Answer.WHOLE
    assert [state.token for state in states(cluster)] == [2, 1, 2]


def test_a_node_that_is_silent_for_a_beat_does_not_cost_the_lease() -> None:
    """The next beat reaches it again."""
    cluster = Cluster.make()
    with holding(cluster, "ada") as held:
        cluster.node("spark-2").answer = Answer.SILENT
        held.renew()
        assert not held.lost.is_set()
        cluster.node("spark-2").answer = Answer.WHOLE
        held.renew()
        assert {s.heartbeat for s in states(cluster)} == {1, 2}


def test_a_black_hole_does_not_starve_the_other_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that swallows everything held every beat up for a minute, twice the time to a takeover."""
    monkeypatch.setattr(lease, "HEARTBEAT", 0.01)
    cluster = Cluster.make(spec_of(3))
    released = threading.Event()
    timeouts: list[float] = []

    class BlackHole(SimulatedHost):
        def act(
            self, action: str, arguments: Mapping[str, Any], fence: Fence, *, timeout: float = 60.0
        ) -> dict[str, Any]:
            if action == "lease.renew":
                timeouts.append(timeout)
                released.wait(30)
                raise UnreachableError("no answer", node=self.name)
            return super().act(action, arguments, fence, timeout=timeout)

    hosts = {**cluster.hosts(), "spark-1": BlackHole(cluster.node("spark-1"))}
    documents = cluster.observe(canary=False).observed.documents
    options = {"command": "apply", "holder": "ada", "clock": cluster.clock, "emit": ignore}
    with hold(cluster.spec, hosts, documents, **options) as held:  # type: ignore[arg-type]
        until = time.monotonic() + 20
        while time.monotonic() < until and min(s.heartbeat for s in states(cluster)[1:]) < 3:
            time.sleep(0.005)
        beats = [state.heartbeat for state in states(cluster)]
        assert beats[0] == 0
        assert min(beats[1:]) >= 3
        assert not held.lost.is_set()
        released.set()
    assert set(timeouts) == {0.01}, "a beat may take no longer than the pause between two"
    assert all(state.released for state in states(cluster))


@pytest.mark.parametrize("leaving", [KeyboardInterrupt, None])
def test_a_node_that_hangs_does_not_hold_up_who_was_asked_to_stop(
    leaving: type[BaseException] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second Ctrl-C took 26 s: the lease was given back to a frozen node. The others have it back."""
    monkeypatch.setattr(lease, "STOPPED_DEADLINE", 0.2)
    monkeypatch.setattr(lease, "LEAVING_DEADLINE", 0.2)
    cluster = Cluster.make()
    thawed = threading.Event()

    class Frozen(SimulatedHost):
        def act(
            self, action: str, arguments: Mapping[str, Any], fence: Fence, *, timeout: float = 60.0
        ) -> dict[str, Any]:
            if action == "lease.release":
                thawed.wait(30)
                raise UnreachableError("no answer", node=self.name)
            return super().act(action, arguments, fence, timeout=timeout)

    hosts = {**cluster.hosts(), "spark-1": Frozen(cluster.node("spark-1"))}
    documents = cluster.observe(canary=False).observed.documents
    stop = threading.Event()
    options = {"command": "apply", "holder": "ada", "clock": cluster.clock, "emit": ignore, "stop": stop}
    began = time.monotonic()
    with (
        suppress(KeyboardInterrupt),
        hold(cluster.spec, hosts, documents, **options),  # type: ignore[arg-type]
    ):
        if leaving is not None:
            raise leaving
        stop.set()
    assert time.monotonic() - began < 10
    assert [state.released for state in states(cluster)] == [False, True]
    thawed.set()


def test_who_leaves_gives_the_lease_back_although_a_beat_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's start held the node's lock, a beat waited for it, and giving back waited for the beat:
    after a second Ctrl-C one's own next command waited half a minute (issue 4)."""
    monkeypatch.setattr(lease, "HEARTBEAT", 0.01)
    monkeypatch.setattr(lease, "LEAVING_DEADLINE", 5.0)
    cluster = Cluster.make()
    beats, released = threading.Event(), threading.Event()

    class Busy(SimulatedHost):
        def act(
            self, action: str, arguments: Mapping[str, Any], fence: Fence, *, timeout: float = 60.0
        ) -> dict[str, Any]:
            if action == "lease.renew":
                beats.set()
                released.wait(30)
            return super().act(action, arguments, fence, timeout=timeout)

    hosts = {**cluster.hosts(), "spark-1": Busy(cluster.node("spark-1"))}
    documents = cluster.observe(canary=False).observed.documents
    options = {"command": "apply", "holder": "ada", "clock": cluster.clock, "emit": ignore}
    with (
        suppress(KeyboardInterrupt),
        hold(cluster.spec, hosts, documents, **options),  # type: ignore[arg-type]
    ):
        assert beats.wait(10)
        monkeypatch.setattr(lease, "HEARTBEAT", 5.0)
        raise KeyboardInterrupt
    assert all(state.released for state in states(cluster))
    released.set()


def test_a_node_that_does_not_take_the_lease_is_left_when_the_user_asks_to_stop() -> None:
    """It held the first Ctrl-C up for 65 s; the node that took it before has it back."""
    cluster = Cluster.make()
    stop, thawed = threading.Event(), threading.Event()

    class Frozen(SimulatedHost):
        def act(
            self, action: str, arguments: Mapping[str, Any], fence: Fence, *, timeout: float = 60.0
        ) -> dict[str, Any]:
            if action == "lease.acquire":
                stop.set()
                thawed.wait(30)
            return super().act(action, arguments, fence, timeout=timeout)

    hosts = {**cluster.hosts(), "spark-2": Frozen(cluster.node("spark-2"))}
    documents = cluster.observe(canary=False).observed.documents
    options = {"command": "apply", "holder": "ada", "clock": cluster.clock, "emit": ignore, "stop": stop}
    began = time.monotonic()
    with (
        pytest.raises(WaitInterruptedError, match="spark-2 has not taken the lease"),
        hold(cluster.spec, hosts, documents, **options),  # type: ignore[arg-type]
    ):
        pytest.fail("it was not taken")
    assert time.monotonic() - began < 10
    thawed.set()
    first = show_lease(cluster.spec, cluster.hosts())["spark-1"]
    assert isinstance(first, LeaseState)
    assert first.released


@pytest.mark.parametrize("command", [transfers.follow_all, transfers.cancel_all, transfers.verify_all])
def test_a_download_that_reads_a_hanging_node_ends_when_it_is_asked_to(
    command: Callable[..., Any],
) -> None:
    """Ctrl-C waited until the node was given up, as no other command does."""
    cluster = Cluster.make()
    stop, thawed = threading.Event(), threading.Event()

    class Frozen(SimulatedHost):
        def probe(self, request: Mapping[str, Any], *, timeout: float = 30.0) -> dict[str, Any]:
            stop.set()
            thawed.wait(30)
            return super().probe(request, timeout=timeout)

    hosts = {**cluster.hosts(), "spark-2": Frozen(cluster.node("spark-2"))}
    began = time.monotonic()
    with pytest.raises(WaitInterruptedError, match="spark-2 has not answered"):
        command(cluster.spec, hosts, clock=cluster.clock, stop=stop)
    assert time.monotonic() - began < 10
    thawed.set()


def test_a_lost_lease_starts_nothing_more() -> None:
    """The nodes would refuse each write one by one; reads, pulls and waits would go on."""
    cluster = Cluster.make()

    def emit(event: Event) -> None:
        started.append(event) if event.phase is Phase.STARTED else None
        if len(started) == 1:
            break_lease(cluster.spec, cluster.hosts())
            until = time.monotonic() + 20
            while not any(held.lost.is_set() for held in holders) and time.monotonic() < until:
                for held in holders:
                    held.renew()

    holders: list[Held] = []
    started: list[Event] = []
    start = Held.start

    def remember(held: Held) -> None:
        holders.append(held)
        start(held)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Held, "start", remember)
        with pytest.raises(LeaseHeldError, match="taken the lease"):
            cluster.apply(emit=emit)
    assert not any(event.operation.needs for event in started if event.operation), "only the first batch"


def test_another_writers_ranks_are_not_told_as_those_that_have_to_go() -> None:
    """A writer that slept in its wait for the ranks to go said "still there" of the new ranks of whoever had
    taken over (issue 4); its own heart had not told it yet."""
    cluster = Cluster.make()
    cluster.apply()
    ranks = dict(cluster.node("spark-1").containers)
    events: list[Event] = []

    def emit(event: Event) -> None:
        events.append(event)
        waits = event.operation is not None and event.operation.key.startswith("wait:rank/all")
        if waits and event.phase is Phase.STARTED:
            break_lease(cluster.spec, cluster.hosts())
            cluster.node("spark-1").containers.update(ranks)

    with pytest.raises(LeaseHeldError):
        cluster.stop(emit=emit)
    assert not any("waiting for" in event.text for event in events)


def test_a_look_ends_when_the_lease_is_lost() -> None:
    """A node that hangs holds a look up for half a minute; what it finds then is another's work."""
    cluster = Cluster.make()
    holders: list[Held] = []
    thawed, start = threading.Event(), Held.start

    class Frozen(SimulatedHost):
        def probe(self, request: Mapping[str, Any], *, timeout: float = 60.0) -> dict[str, Any]:
            if holders:
                holders[0].lost.set()
                thawed.wait(30)
            return super().probe(request, timeout=timeout)

    def remember(held: Held) -> None:
        start(held)
        holders.append(held)

    hosts = {**cluster.hosts(), "spark-2": Frozen(cluster.node("spark-2"))}
    began = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Held, "start", remember)
        with pytest.raises(LeaseHeldError, match="taken the lease"):
            cluster.apply(hosts)
    assert time.monotonic() - began < 10
    thawed.set()


def test_no_two_runs_have_the_same_name() -> None:
    """The fence is told apart by it."""
    assert new_holder() != new_holder()


def test_waiting_for_the_lease_is_said() -> None:
    """Nobody wonders why nothing happens for half a minute."""
    cluster = Cluster.make(spec_of(1))
    silent_holder(cluster, "ada")
    events: list[Event] = []
    cluster.apply(emit=events.append, holder="eve")
    assert any("lease is held by" in event.text for event in events)


def test_a_damaged_lease_is_not_free_and_breaking_it_mends_it() -> None:
    """Once shown as free, while every write was refused for ever: `lease break` found nobody to break."""
    cluster = Cluster.make()
    cluster.apply(emit=ignore)
    node = cluster.node("spark-2")
    path = next(path for path in node.files if path.endswith("/lease.json"))
    node.files[path] = (b"[]", 0o600)
    assert isinstance(show_lease(cluster.spec, cluster.hosts())["spark-2"], DamagedLeaseError)
    cluster.node("spark-1").containers.clear()
    with pytest.raises(DamagedLeaseError) as caught:
        cluster.apply(emit=ignore)
    assert (caught.value.node, caught.value.remedy) == ("spark-2", "sparkop lease break")
    assert break_lease(cluster.spec, cluster.hosts()) == {
        "spark-1": None,
        "spark-2": "a damaged lease",
    }
    cluster.apply(emit=ignore)
    assert all(state.released for state in states(cluster))
