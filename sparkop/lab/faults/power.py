"""Faults of a whole host."""

from __future__ import annotations

from sparkop.lab.faults.base import Fault, Target
from sparkop.lab.layout import LabError


def _cut(target: Target) -> str:
    target.host.running()
    target.lab.power_cut(target.host.name)
    return "without power"


def _boot(target: Target) -> str:
    if target.host.pid is not None:
        return "it is on"
    target.lab.boot(target.host.name)
    return "booted"


def _freeze(target: Target) -> str:
    target.host.running()
    target.host.groups.freeze(target.host.name, True)
    return "it hangs: it takes connections and answers nothing"


def _thaw(target: Target) -> str:
    target.host.running()
    target.host.groups.freeze(target.host.name, False)
    if target.host.groups.frozen(target.host.name):
        raise LabError(f"{target.host.name} is still frozen")
    return "it goes on"


FAULTS = (
    Fault(
        "power-cut",
        "Cut the power: all at once, no good-bye. `sparkop lab boot` (or mend) boots.",
        _cut,
        _boot,
    ),
    Fault("freeze", "Hang the whole host: TCP connects, nothing answers.", _freeze, _thaw),
)
