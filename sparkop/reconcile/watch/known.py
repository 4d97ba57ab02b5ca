"""What a watch knows of the nodes from its looks before. An edit of the spec does not make it forget that."""

from __future__ import annotations

from dataclasses import field

from sparkop.reconcile.lease import new_holder
from sparkop.reconcile.watch.story import Fault
from sparkop.records import dataclass


@dataclass
class Known:
    """Belongs to one watch at a time: it is handed on to the watch of an edited spec."""

    holder: str = field(default_factory=new_holder)
    before: dict[str, Fault] | None = None
    """The faults of the last look; None before the first."""
    gone: dict[str, float] = field(default_factory=dict)
    """Faults that were told, or are yet to be, and are not found any more -> when the first look in a row
    missed them."""
    boots: dict[str, str] = field(default_factory=dict)
    """Boot ids as they were when all was well last, and those of nodes seen since for the first time; empty
    where a boot that nobody saw has ended a rank."""
    signed_at: float | None = None
    """When the last sign of life was left that has not been taken back."""
