"""A plan carried out under the lease: what apply, stop, destroy and watch share."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from sparkop.errors import LeaseHeldError
from sparkop.reconcile.execute import Outcome, execute
from sparkop.reconcile.lease import Held
from sparkop.reconcile.observe import Reading
from sparkop.reconcile.plan import Plan
from sparkop.resources.base import Clock, Context, Resource
from sparkop.resources.events import Listener
from sparkop.threads import AnyOf


def carry_out(
    plan: Plan,
    reading: Reading,
    held: Held,
    resources: Sequence[Resource],
    *,
    emit: Listener,
    stop: threading.Event,
    clock: Clock,
) -> Outcome:
    """Execute a plan that was made of the reading. Raises LeaseHeldError when the lease is lost meanwhile."""
    return carry_out_in(context_of(reading, held, emit=emit, stop=stop, clock=clock), plan, held, resources)


def context_of(
    reading: Reading, held: Held, *, emit: Listener, stop: threading.Event, clock: Clock
) -> Context:
    """For writing under the lease; ends at ``stop``, and when the lease is lost."""
    return Context(
        desired=reading.desired,
        observed=reading.observed,
        hosts=held.hosts,
        fences=held.fences,
        emit=emit,
        stop=AnyOf(stop, held.lost),
        lost=held.lost,
        clock=clock,
    )


def carry_out_in(context: Context, plan: Plan, held: Held, resources: Sequence[Resource]) -> Outcome:
    """The same, in a context that was made before."""
    outcome = execute(plan, context, resources)
    held.check()
    refused = next((e for e in outcome.failed.values() if isinstance(e, LeaseHeldError)), None)
    if refused is not None:
        raise refused
    return outcome
