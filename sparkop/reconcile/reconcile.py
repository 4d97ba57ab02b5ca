"""desired + observed -> Plan. Pure: no I/O, no clock, no randomness; linear in nodes."""

from __future__ import annotations

from sparkop.reconcile.plan import Plan
from sparkop.resources.desired import Desired
from sparkop.resources.observed import History, Observed


def reconcile(desired: Desired, observed: Observed, history: History, now: float) -> Plan:
    """What to do, in an order that respects every ``needs``. Empty when the world is as desired.

    ``now``: seconds since 1970.
    """
    raise NotImplementedError
