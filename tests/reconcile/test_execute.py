"""The executor: order, parallel work, and what a failure or a stop leaves."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from sparkop.errors import BlockedError, LeaseHeldError, UnreachableError, WaitInterruptedError
from sparkop.hosts.base import Fence, Host
from sparkop.reconcile import execute as executor
from sparkop.reconcile.execute import Outcome, execute
from sparkop.reconcile.plan import Plan
from sparkop.resources.base import Context, Difference
from sparkop.resources.events import Event, Phase
from sparkop.resources.operations import Action, Cause, Operation

CAUSE = Cause("x", "a", "b")


class Played:
    """A resource whose operations do what the test says."""

    def __init__(self, kind: str, does: Callable[[Operation, Context], None]) -> None:
        self.kind = kind
        self.perform = does

    def prepare(self, spec: Any) -> Any:
        return None

    def request(self, spec: Any, node: Any, outside: Any) -> Mapping[str, Any]:
        return {}

    def diff(self, desired: Any, observed: Any, history: Any) -> Difference:
        return Difference()


class Node:
    """Answers, or hangs until it is thawed."""

    def __init__(self, thawed: threading.Event | None = None) -> None:
        self.thawed = thawed

    def probe(self, _request: object, *, timeout: float) -> dict[str, Any]:
        if self.thawed is not None and not self.thawed.wait(timeout):
            raise UnreachableError("no answer", node="n1")
        return {}


def operation(resource: str, node: str = "n1", *needs: str) -> Operation:
    return Operation(Action.CREATE, node, resource, CAUSE, needs=needs)


def run(
    operations: list[Operation],
    does: Callable[[Operation, Context], None],
    stop: threading.Event | None = None,
    events: list[Event] | None = None,
    nodes: Mapping[str, Node] | None = None,
    lost: threading.Event | None = None,
    fences: Mapping[str, Fence] | None = None,
) -> Outcome:
    """Execute with nothing but events."""
    context = Context(
        desired=None,  # type: ignore[arg-type]
        observed=None,  # type: ignore[arg-type]
        hosts=cast("Mapping[str, Host]", nodes or {"n1": Node()}),
        fences=fences or {},
        emit=(events if events is not None else []).append,
        stop=stop or threading.Event(),
        lost=lost or threading.Event(),
    )
    kinds = {o.resource.partition("/")[0] for o in operations}
    return execute(Plan(tuple(operations)), context, [Played(kind, does) for kind in kinds])


def test_needs_are_done_before() -> None:
    """An operation never begins before everything it needs has ended."""
    order: list[str] = []
    plan = [operation("c", "n1", "create:b@n1"), operation("b", "n1", "create:a@n1"), operation("a")]
    outcome = run(plan, lambda o, _: order.append(o.resource))
    assert order == ["a", "b", "c"]
    assert outcome.done == ("create:a@n1", "create:b@n1", "create:c@n1")


def test_nodes_and_kinds_run_side_by_side() -> None:
    """Two nodes that wait for each other, and two kinds of one node, can only end when they run together."""
    barrier = threading.Barrier(3, timeout=10)
    plan = [operation("a", "n1"), operation("a", "n2"), operation("b", "n1")]

    def does(_: Operation, __: Context) -> None:
        barrier.wait()

    assert len(run(plan, does).done) == 3


def test_one_kind_on_one_node_goes_one_after_the_other() -> None:
    """Two operations of one kind on a node could trip over each other."""
    inside = threading.Semaphore(1)

    def does(_: Operation, __: Context) -> None:
        assert inside.acquire(blocking=False)
        threading.Event().wait(0.02)
        inside.release()

    assert not run([operation(f"a/{n}") for n in range(4)], does).failed


def test_a_failure_starts_nothing_new_and_lets_running_work_end() -> None:
    """What runs is finished (half a write is worse than one more); the rest is reported as not started."""
    failed = threading.Event()
    finished: list[str] = []

    def does(o: Operation, _: Context) -> None:
        if o.resource == "bad":
            failed.set()
            raise BlockedError("no", node="n1")
        if o.resource == "slow":
            assert failed.wait(10)
            finished.append(o.resource)

    events: list[Event] = []
    plan = [operation("bad"), operation("slow", "n2"), operation("next", "n2", "create:slow@n2")]
    outcome = run(plan, does, events=events)
    assert finished == ["slow"]
    assert outcome.done == ("create:slow@n2",)
    assert list(outcome.failed) == ["create:bad@n1"]
    assert [o.key for o in outcome.skipped] == ["create:next@n2"]
    assert isinstance(outcome.error, BlockedError)
    phases = {(e.phase, e.operation.resource) for e in events if e.operation}
    assert {(Phase.FAILED, "bad"), (Phase.DONE, "slow"), (Phase.SKIPPED, "next")} <= phases


def test_a_stop_request_starts_nothing_new() -> None:
    """The first Ctrl-C."""
    stop = threading.Event()

    def does(_: Operation, __: Context) -> None:
        stop.set()

    outcome = run([operation("a"), operation("b", "n1", "create:a@n1")], does, stop)
    assert outcome.done == ("create:a@n1",)
    assert [o.key for o in outcome.skipped] == ["create:b@n1"]
    assert outcome.error is None


@pytest.mark.parametrize("nodes", [None, ["n2", "n1"]])
def test_a_stop_request_does_not_wait_for_a_node_that_hangs(
    nodes: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while a node was frozen took 95 s. What it held up tells nothing more when it ends at last."""
    monkeypatch.setattr(executor, "ANSWERS_WITHIN", 0.2)
    stop, thawed, ended = threading.Event(), threading.Event(), threading.Event()
    hung = replace(operation("a", "n1"), parameters={"nodes": nodes} if nodes else {})
    events: list[Event] = []

    def does(_: Operation, context: Context) -> None:
        stop.set()
        thawed.wait(30)
        context.progress("it goes on")
        ended.set()

    outcome = run(
        [hung, operation("b", "n2", hung.key)], does, stop, events, {"n1": Node(thawed), "n2": Node()}
    )
    assert isinstance(outcome.error, WaitInterruptedError)
    assert [o.resource for o in outcome.skipped] == ["b"]
    assert [(e.phase, e.text) for e in events if e.phase is Phase.FAILED] == [
        (Phase.FAILED, "n1 does not answer; not waited for")
    ]
    told = len(events)
    thawed.set()
    assert ended.wait(10)
    assert len(events) == told


def test_a_stop_request_waits_for_what_runs_on_a_node_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes: what is left half done there would only have to be done again."""
    monkeypatch.setattr(executor, "ANSWERS_WITHIN", 0.1)
    monkeypatch.setattr(executor, "ANSWERS_AGAIN", 0.01)
    stop = threading.Event()

    def does(_: Operation, __: Context) -> None:
        stop.set()
        time.sleep(1)

    assert run([operation("a")], does, stop).done == ("create:a@n1",)


@pytest.mark.parametrize("told_by", ["heartbeat", "node"])
def test_a_lost_lease_waits_for_nothing(told_by: str) -> None:
    """A wait went on for minutes over what another writer had made, and told its ranks as those that had to
    go (issue 4). ``node``: it has refused another step."""
    lost, thawed = threading.Event(), threading.Event()
    events: list[Event] = []

    def does(o: Operation, context: Context) -> None:
        if o.resource == "b":
            if told_by == "node":
                raise LeaseHeldError("no more yours", node="n1")
            lost.set()
            return
        assert thawed.wait(30)
        context.progress("still there: another's ranks")

    operations = [operation("a"), operation("b"), operation("c", "n1", "create:a@n1")]
    outcome = run(operations, does, events=events, lost=lost)
    assert isinstance(outcome.failed["create:a@n1"], LeaseHeldError)
    assert [o.resource for o in outcome.skipped] == ["c"]
    told = len(events)
    thawed.set()
    assert not any(event.phase is Phase.PROGRESS for event in events)
    assert len(events) == told


def test_a_wait_that_the_loss_of_the_lease_ends_is_told_as_that() -> None:
    """It said that "the ranks go on loading", which were those of another writer."""
    lost = threading.Event()
    events: list[Event] = []

    def does(_: Operation, __: Context) -> None:
        lost.set()
        raise WaitInterruptedError("stopped waiting; the ranks go on loading")

    run([operation("a")], does, events=events, lost=lost)
    assert [e.text for e in events if e.phase is Phase.FAILED] == [executor.LOST]


def test_what_fails_of_another_writers_work_is_told_as_that() -> None:
    """Its own ranks are gone because another writer has removed them: no rank has died."""

    class Taken(Node):
        def act(self, action: str, *_: object, **__: object) -> dict[str, Any]:
            assert action == "lease.check"
            raise LeaseHeldError("another writes", node="n1")

    def does(_: Operation, __: Context) -> None:
        raise BlockedError("rank 0 is missing before it served", node="n1")

    fences = {"n1": Fence("test", "ada", 1, "/state")}
    assert isinstance(run([operation("a")], does, nodes={"n1": Taken()}, fences=fences).error, LeaseHeldError)
    assert isinstance(run([operation("a")], does, nodes={"n1": Taken()}).error, BlockedError)


def test_a_second_interrupt_leaves_at_once() -> None:
    """It does not wait for an operation that a silent node holds up for an hour."""

    def hang(_: Operation, __: Context) -> None:
        threading.Event().wait(3600)

    threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        run([operation("a")], hang)


@pytest.mark.parametrize("speaks", [False, True])
def test_a_step_of_which_nothing_is_heard_is_told(monkeypatch: pytest.MonkeyPatch, speaks: bool) -> None:
    """A frozen Docker held a step up for two minutes, and nothing was said."""
    monkeypatch.setattr(executor, "SILENT_AFTER", 0.3)
    events: list[Event] = []

    def waits(_: Operation, context: Context) -> None:
        if speaks:
            context.progress("1 of 2")
        threading.Event().wait(1.2)

    run([operation("a")], waits, events=events)
    told = [event.text for event in events if event.phase is Phase.PROGRESS]
    if speaks:
        assert told == ["1 of 2"]
    else:
        assert len(told) >= 2
        assert all(text.startswith("nothing heard for ") for text in told)


def test_who_leaves_is_told_what_is_left_and_of_no_broken_connection() -> None:
    """A second Ctrl-C closes the connections under what runs: that "the connection to the node broke" was the
    last word, as if the node were at fault (issue 4)."""
    left, ended = threading.Event(), threading.Event()
    events: list[Event] = []

    def hang(_: Operation, __: Context) -> None:
        left.wait(30)
        threading.Timer(0, ended.set).start()
        raise UnreachableError("The connection to the node broke.", node="n1")

    threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        run([operation("a"), operation("b", "n1", "create:a@n1")], hang, events=events)
    left.set()
    assert ended.wait(10)
    told = [(e.phase, e.operation.resource, e.text) for e in events if e.operation]
    assert told[1:] == [(Phase.FAILED, "a", executor.LEFT), (Phase.SKIPPED, "b", "")]


def test_a_crash_of_the_writer_is_a_failure_too() -> None:
    """BaseException: the thread that performs must not die silently."""

    def does(_: Operation, __: Context) -> None:
        raise KeyboardInterrupt

    assert isinstance(run([operation("a")], does).error, KeyboardInterrupt)


def test_events_come_one_at_a_time() -> None:
    """Listeners need no lock."""
    inside = threading.Semaphore(1)

    class Picky(list[Event]):
        def append(self, event: Event) -> None:
            assert inside.acquire(blocking=False), "two events at once"
            threading.Event().wait(0.001)
            inside.release()
            super().append(event)

    events = Picky()

    def does(_: Operation, context: Context) -> None:
        for number in range(5):
            context.progress(str(number))

    assert not run([operation("a", f"n{n}") for n in range(8)], does, events=events).failed
    assert len([e for e in events if e.phase is Phase.PROGRESS]) == 40
    assert {e.node for e in events} == {f"n{n}" for n in range(8)}


def test_needs_outside_the_plan_count_as_done() -> None:
    """The group's operations are executed after the preparation that they need, in a plan of their own."""
    assert run([operation("b", "n1", "create:a@n1")], lambda *_: None).done == ("create:b@n1",)


@pytest.mark.parametrize("count", [64])
def test_sixty_four_nodes_end(count: int) -> None:
    """Threads are bounded, work is not lost."""
    plan = [operation("a", f"n{n}") for n in range(count)]
    plan += [operation("b", f"n{n}", f"create:a@n{n}") for n in range(count)]
    assert len(run(plan, lambda *_: None).done) == 2 * count
