"""The one list of faults that a lab can be broken with."""

from __future__ import annotations

from sparkop.lab.faults import containers, engine, files, links, power, services
from sparkop.lab.faults.base import Fault, Target

FAULTS: dict[str, Fault] = {
    fault.name: fault
    for module in (containers, links, power, services, files, engine)
    for fault in module.FAULTS
}
"""Name -> fault, in the order of ``sparkop lab break --help``."""

__all__ = ["FAULTS", "Fault", "Target"]
