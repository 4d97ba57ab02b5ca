"""A lab that is up, for a program that goes inside; without all that makes labs, which is slow to load."""

from __future__ import annotations

import json
import os

from sparkop.inside import mark
from sparkop.lab.layout import LabError, LabPaths, not_up
from sparkop.lab.processes import recall
from sparkop.records import dataclass


@dataclass(frozen=True)
class Present:
    """``pid``: process 1 of the lab. ``token``: tells this lab from another of its name, before or after."""

    paths: LabPaths
    pid: int
    token: str

    @property
    def inside(self) -> str:
        """Value of SPARKOP_LAB_INSIDE for processes that enter the lab's network namespace."""
        return mark(self.paths.name, self.token)


def present(name: str | None = None) -> Present:
    """The lab of that name (SPARKOP_LAB, else "default"). Raises LabNameError when it is not up."""
    if os.geteuid() != 0:
        raise LabError("the lab needs root", remedy="run the same command with sudo")
    paths = LabPaths.of(name)
    try:
        token = str(json.loads(paths.config.read_text())["token"])
    except (OSError, ValueError, KeyError, TypeError):
        token = ""
    pid = recall(paths.pids / "lab")
    if pid is None or not token:
        raise not_up(paths.name)
    return Present(paths, pid, token)
