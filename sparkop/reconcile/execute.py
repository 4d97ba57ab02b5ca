"""Carry out a plan. Decides nothing."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial

from sparkop.errors import BlockedError, LeaseHeldError, SparkopError, UnreachableError, WaitInterruptedError
from sparkop.hosts.base import ReadableHost
from sparkop.reconcile.lease_seen import LOST
from sparkop.reconcile.plan import Plan
from sparkop.records import dataclass
from sparkop.resources.base import Context, Resource
from sparkop.resources.compare import human_seconds
from sparkop.resources.events import Event, Listener, Phase
from sparkop.resources.operations import Operation, kind_of
from sparkop.resources.registry import RESOURCES
from sparkop.threads import MOST, Later

LOOK_EVERY = 0.2
"""Seconds between two looks at the stop request while operations run."""
ANSWERS_WITHIN = 5.0
"""Seconds that a node gets to show that it answers, once it was asked to stop."""
ANSWERS_AGAIN = 1.0
"""Seconds between an answer and the next question."""
SILENT_AFTER = 20.0
"""Seconds without a word of an operation before that is told, and between two tellings."""
LEFT = "left; what it has begun on the node goes on there"


@dataclass(frozen=True)
class Outcome:
    """What became of a plan's operations."""

    done: tuple[str, ...] = ()
    """Keys, in the order in which they ended."""
    failed: Mapping[str, BaseException] = field(default_factory=dict)
    skipped: tuple[Operation, ...] = ()
    """Not started."""

    def done_nodes(self, operations: Sequence[Operation]) -> tuple[str, ...]:
        """Nodes of those operations that were done."""
        return tuple(operation.node for operation in operations if operation.key in self.done)

    @property
    def error(self) -> BaseException | None:
        """The first failure."""
        return next(iter(self.failed.values()), None)


def execute(plan: Plan, context: Context, resources: Sequence[Resource] = RESOURCES) -> Outcome:
    """Run operations as their ``needs`` allow: nodes and kinds side by side, one of a kind a node at a time.

    An exception in the calling thread (a second Ctrl-C) leaves at once; what runs ends with the process.
    Starts nothing new after the first failure or once ``context.stop`` is set, waits for what runs, and
    says what is left; once ``stop`` is set it waits for no node that does not answer (the node's own fence
    tells its step what may still be written), and for nothing once the lease is lost. Tells ``context.emit``
    of every step, one event at a time.
    """
    context = replace(context, emit=_one_at_a_time(context.emit))
    run = _Run(plan, context, {resource.kind: resource for resource in resources})
    try:
        run.until_done()
    except BaseException:
        run.leave_all(WaitInterruptedError(LEFT))
        run.outcome()  # says what is left
        raise
    return run.outcome()


class _Run:
    def __init__(self, plan: Plan, context: Context, performers: Mapping[str, Resource]) -> None:
        self.context = context
        self.performers = performers
        self.left = {operation.key: operation for operation in plan.operations}
        self.done: list[str] = []
        self.failed: dict[str, BaseException] = {}
        self.running: dict[str, Operation] = {}
        self.begun: dict[str, float] = {}
        self.silent: dict[str, float] = {}
        """When it is told next of each operation that it has said nothing yet."""
        self.answers: dict[str, Later[bool]] = {}
        self.ended: queue.SimpleQueue[tuple[str, BaseException | None]] = queue.SimpleQueue()

    def until_done(self) -> None:
        while True:
            if not self.failed and not self.context.stop.is_set():
                for operation in self.startable()[: MOST - len(self.running)]:
                    del self.left[operation.key]
                    self.running[operation.key] = operation
                    self.begun[operation.key] = began = time.monotonic()
                    self.silent[operation.key] = began + SILENT_AFTER
                    Later(partial(self.perform_one, operation), operation.key)
            if not self.running:
                return
            with suppress(queue.Empty):
                key, error = self.ended.get(timeout=LOOK_EVERY)
                if self.running.pop(key, None) is None:
                    continue  # it was left behind
                if error is None:
                    self.done.append(key)
                else:
                    self.failed[key] = error
            self.tell_silent()
            if self.lost():
                self.leave_all(LeaseHeldError(LOST))
            elif self.context.stop.is_set():
                self.leave_silent()

    def tell_silent(self) -> None:
        """A node's Docker that is frozen holds a step up for two minutes, and says nothing."""
        now = time.monotonic()
        for key, operation in self.running.items():
            if now >= self.silent.get(key, now + 1):
                self.silent[key] = now + SILENT_AFTER
                text = f"nothing heard for {human_seconds(now - self.begun[key])}; still waiting"
                self.context.emit(Event(Phase.PROGRESS, operation, operation.node, text))

    def lost(self) -> bool:
        """The heartbeat has told it, or a node that refused a step."""
        refused = any(isinstance(error, LeaseHeldError) for error in self.failed.values())
        return refused or self.context.lost.is_set()

    def leave_all(self, error: SparkopError) -> None:
        for key in list(self.running):
            self.leave(key, error)

    def leave(self, key: str, error: SparkopError) -> None:
        """Wait no longer for an operation that runs."""
        operation = self.running.pop(key)
        self.failed[key] = error
        self.context.emit(Event(Phase.FAILED, operation, operation.node, error.message))

    def leave_silent(self) -> None:
        """Wait no longer for operations whose node does not answer."""
        for key, operation in list(self.running.items()):
            nodes = operation.parameters.get("nodes", [operation.node])
            silent = next((node for node in nodes if not self.answered(node)), None)
            if silent is not None:
                self.leave(
                    key, WaitInterruptedError(f"{silent} does not answer; not waited for", node=silent)
                )

    def answered(self, node: str) -> bool:
        """Whether it gave its last answer in time; it is asked beside the caller, again and again."""
        asked = self.answers.get(node)
        if asked is None or (asked.ended(0) and asked.result()):
            asked = self.answers[node] = Later(partial(_answers, self.context.hosts[node]), f"ask-{node}")
        return not asked.ended(0) or asked.result()

    def perform_one(self, operation: Operation) -> None:
        error: BaseException | None = None
        try:
            self.perform(operation)
        except BaseException as failure:
            error = failure
        self.ended.put((operation.key, error))

    def startable(self) -> list[Operation]:
        """Operations whose needs are done, one a lane. A need that is not in the plan is done already."""
        open_keys = {*self.left, *self.running, *self.failed}
        lanes = {_lane(operation) for operation in self.running.values()}
        found = []
        for operation in self.left.values():
            lane = _lane(operation)
            if lane not in lanes and not any(need in open_keys for need in operation.needs):
                lanes.add(lane)
                found.append(operation)
        return found

    def perform(self, operation: Operation) -> None:
        own = replace(self.context.of(operation), emit=partial(self.tell, operation.key))
        own.emit(Event(Phase.STARTED, operation, operation.node))
        began = own.clock.monotonic()
        try:
            self.performed(operation, own)
        except BaseException as error:
            told = error if isinstance(error, SparkopError) else None
            own.emit(Event(Phase.FAILED, operation, operation.node, str(error), error=told))
            raise
        own.emit(Event(Phase.DONE, operation, operation.node, seconds=own.clock.monotonic() - began))

    def performed(self, operation: Operation, own: Context) -> None:
        """What fails although the node answers may fail of another writer's work: that is told instead."""
        try:
            self.performers[kind_of(operation.resource)].perform(operation, own)
        except WaitInterruptedError as error:
            if own.lost.is_set():
                raise LeaseHeldError(LOST) from error
            raise
        except (LeaseHeldError, UnreachableError):
            raise
        except SparkopError:
            with suppress(UnreachableError, BlockedError):
                own.confirm(operation.node)
            raise

    def tell(self, key: str, event: Event) -> None:
        """What was left behind says nothing more."""
        if event.phase is not Phase.STARTED:
            self.silent.pop(key, None)
        if key in self.running:
            self.context.emit(event)

    def outcome(self) -> Outcome:
        for operation in self.left.values():
            self.context.emit(Event(Phase.SKIPPED, operation, operation.node))
        return Outcome(tuple(self.done), dict(self.failed), tuple(self.left.values()))


def _lane(operation: Operation) -> tuple[str, str]:
    """Operations of one kind on one node go one after the other."""
    return operation.node, kind_of(operation.resource)


def _answers(host: ReadableHost) -> bool:
    try:
        host.probe({"sections": ["memory"]}, timeout=ANSWERS_WITHIN)
    except (SparkopError, OSError):
        return False
    time.sleep(ANSWERS_AGAIN)
    return True


def _one_at_a_time(emit: Listener) -> Listener:
    lock = threading.Lock()

    def locked(event: Event) -> None:
        with lock:
            emit(event)

    return locked
