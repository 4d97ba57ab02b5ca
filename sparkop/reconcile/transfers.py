"""Transfers of weights that run on the nodes: followed without writing, or ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sparkop.errors import BlockedError, ExitCode, LeaseHeldError, SparkopError, UnreachableError
from sparkop.hosts.base import Host, ReadableHost
from sparkop.reconcile.carry_out import context_of
from sparkop.reconcile.lease import Held, hold, new_holder
from sparkop.reconcile.lease_seen import EXPIRY, DamagedLeaseError
from sparkop.reconcile.observe import Reading, observe
from sparkop.resources.base import Clock, RealClock
from sparkop.resources.events import Event, Listener, Phase, ignore
from sparkop.resources.operations import Action, Cause, Operation
from sparkop.resources.transfer_job import end_of
from sparkop.resources.transfer_program import call
from sparkop.resources.weights.follow import Tell, action_of, follow, progress_text, running
from sparkop.resources.weights.job import run_job
from sparkop.resources.weights.resource import KIND, WeightFiles
from sparkop.spec.models import ClusterSpec
from sparkop.threads import side_by_side


def follow_all(
    spec: ClusterSpec,
    hosts: Mapping[str, ReadableHost],
    *,
    emit: Listener = ignore,
    stop: threading.Event | None = None,
    clock: Clock | None = None,
) -> tuple[str, ...]:
    """Tell how the transfers go, until they end; returns the nodes on which one ran.

    Raises what the first one that failed ended with, UnreachableError.
    """
    clock, stop = clock or RealClock(), stop or threading.Event()
    reading = _look(spec, hosts, clock, emit, stop)
    at_work = running(reading.observed.documents)

    def one(name: str) -> None:
        operation = Operation(action_of(at_work[name]), name, KIND, Cause(KIND, "running", "complete"))

        def tell(status: Mapping[str, Any]) -> None:
            done = status.get("bytes") or {}
            emit(
                Event(
                    Phase.PROGRESS,
                    operation,
                    name,
                    progress_text(status),
                    done_bytes=int(done.get("done", 0)),
                    total_bytes=int(done.get("total", 0)),
                    rate=float(status.get("rate", 0.0)),
                )
            )

        emit(Event(Phase.STARTED, operation, name))
        try:
            to_its_end(name, operation, tell)
        except SparkopError as error:  # told at once: the others may take hours
            emit(Event(Phase.FAILED, operation, name, error.message, error=error))
            raise

    def to_its_end(name: str, operation: Operation, tell: Tell) -> None:
        begun = clock.monotonic()
        last = follow(
            hosts[name],
            reading.desired.nodes[name].state,
            str(at_work[name].get("id")),
            clock=clock,
            stopped=stop.is_set,
            tell=tell,
        )
        if not stop.is_set():
            end_of(name, last)
            size = int((last.get("bytes") or {}).get("total", 0))
            took = clock.monotonic() - begun
            emit(Event(Phase.DONE, operation, name, total_bytes=size, seconds=took))

    try:
        side_by_side(one, at_work, "follow")
    except SparkopError as error:
        if error.exit_code is not ExitCode.UNEXPECTED:
            raise
        raise BlockedError(
            error.message, node=error.node, cause=error.cause, remedy=error.remedy, detail=error.detail
        ) from None  # nothing unexpected about a transfer that was cancelled or killed
    return tuple(at_work)


def cancel_all(
    spec: ClusterSpec,
    hosts: Mapping[str, Host],
    *,
    emit: Listener = ignore,
    stop: threading.Event | None = None,
    clock: Clock | None = None,
) -> tuple[str, ...]:
    """End the transfers, keep what they have; returns the nodes on which one ran.

    Under the lease like every write: who follows a transfer starts one again that has ended. Raises
    LeaseHeldError, and WaitInterruptedError when ``stop`` is set while another holds it.
    """
    clock, stop = clock or RealClock(), stop or threading.Event()
    try:
        with _under_lease("download --cancel", spec, hosts, emit, stop, clock) as (reading, held):
            return tuple(
                name
                for name in reading.observed.documents
                if call(hosts[name], held.fences[name], "cancel")["cancelled"]
            )
    except DamagedLeaseError:
        raise
    except LeaseHeldError as error:
        error.remedy = (
            "end that command first (Ctrl-C leaves its transfers running), then run this one again: "
            f"it takes over after {EXPIRY:.0f} s from one that is gone for good"
        )
        raise


def verify_all(
    spec: ClusterSpec,
    hosts: Mapping[str, Host],
    *,
    emit: Listener = ignore,
    stop: threading.Event | None = None,
    clock: Clock | None = None,
) -> None:
    """Hash what lies on every node, whatever the ledger says; files that are bad lose their place in it.

    Raises UnreachableError, LeaseHeldError.
    """
    clock, stop = clock or RealClock(), stop or threading.Event()
    cause = Cause(KIND, "verified by the ledger", "hashed again")
    with _under_lease("download --deep", spec, hosts, emit, stop, clock) as (reading, held):
        documents = reading.observed.documents
        present = [name for name, each in documents.items() if each.weights and each.weights.exists]
        context = context_of(reading, held, emit=emit, stop=stop, clock=clock)

        def one(name: str) -> None:
            operation = Operation(Action.RECORD, name, KIND, cause, parameters={"deep": True})
            emit(Event(Phase.STARTED, operation, name))
            try:
                run_job(operation, context.of(operation))
                emit(Event(Phase.DONE, operation, name))
            except BlockedError as error:
                emit(Event(Phase.FAILED, operation, name, error.message, error=error))

        side_by_side(one, present, "hash")


@contextmanager
def _under_lease(
    command: str,
    spec: ClusterSpec,
    hosts: Mapping[str, Host],
    emit: Listener,
    stop: threading.Event,
    clock: Clock,
) -> Iterator[tuple[Reading, Held]]:
    """Look, then hold the lease of every node."""
    reading = _look(spec, hosts, clock, emit, stop)
    documents, holder = reading.observed.documents, new_holder()
    with hold(
        spec, hosts, documents, command=command, holder=holder, clock=clock, emit=emit, stop=stop
    ) as held:
        yield reading, held


def _look(
    spec: ClusterSpec,
    hosts: Mapping[str, ReadableHost],
    clock: Clock,
    emit: Listener,
    stop: threading.Event,
) -> Reading:
    resources = (WeightFiles(),)
    reading = observe(spec, hosts, canary=False, clock=clock, resources=resources, emit=emit, stop=stop)
    if reading.observed.unknown:
        first = next(iter(reading.observed.unknown.values()))
        raise UnreachableError("could not be read", node=first.node, cause=first.reason, remedy=first.remedy)
    return reading
