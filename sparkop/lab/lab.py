"""A lab: ``up.up`` makes it, ``Lab.load`` finds it, ``down.down`` removes it without a trace.

What is up is read from the processes and control groups themselves. The files tell where to look, and are
written before what they tell of is made; so ``down`` works after a crash at any point.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from sparkop.inside import mark
from sparkop.lab import cgroups
from sparkop.lab.cgroups import Cgroups
from sparkop.lab.host import Host
from sparkop.lab.layout import LabError, LabNameError, LabPaths, host_names, not_up
from sparkop.lab.lock import locked
from sparkop.lab.processes import recall
from sparkop.records import dataclass

GIB = 1 << 30
DEFAULT_MEMORY_BYTES = 4 * GIB
DEFAULT_DISK_BYTES = 24 * GIB
LEAST_BYTES = GIB // 2
"""Of a host's memory: with less its budget refuses the stand-in's spec. Of its disk: images and model fit."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class LabConfig:
    """What ``up`` was asked for, and where to find what it makes. Kept in lab.json."""

    hosts: int = 2
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    disk_bytes: int = DEFAULT_DISK_BYTES
    """Size of each host's disk; the file is sparse."""
    shares: tuple[str, ...] = ()
    """Folders of this machine that hosts see read-only at the same path."""
    token: str = ""
    cgroups: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Lab:
    """A lab that was brought up; its hosts may be on or off."""

    paths: LabPaths
    config: LabConfig
    groups: Cgroups

    @classmethod
    def find(cls, name: str | None = None) -> Lab:
        """The lab of that name (SPARKOP_LAB, else "default"), crashed or not. Raises LabNameError."""
        if os.geteuid() != 0:
            raise LabError("the lab needs root", remedy="use sudo")
        paths = LabPaths.of(name)
        lab = lab_at(paths)
        if lab is None:
            raise not_up(paths.name)
        return lab

    @classmethod
    def load(cls, name: str | None = None) -> Lab:
        """The lab of that name, running. Raises LabNameError when it is not up."""
        lab = cls.find(name)
        lab.running()
        return lab

    @property
    def name(self) -> str:
        return self.paths.name

    @property
    def pid(self) -> int | None:
        """Process 1 of the lab; None when it is not up."""
        return recall(self.paths.pids / "lab")

    def running(self) -> int:
        """Process 1 of the lab. Raises LabNameError when it is not up."""
        if (pid := self.pid) is None:
            raise not_up(self.name)
        return pid

    @property
    def hosts(self) -> tuple[Host, ...]:
        return tuple(self.host(name) for name in host_names(self.config.hosts))

    def host(self, name: str) -> Host:
        """The host called ``name`` (or NAME.lab). Raises LabNameError when the lab has none of that name."""
        plain, names = name.removesuffix(".lab"), host_names(self.config.hosts)
        if plain not in names:
            raise LabNameError(
                f"lab {self.name!r} has no host {name!r}", remedy=f"name one of {', '.join(names)}"
            )
        return Host(
            plain, self.paths.host(plain), self.paths.pids / plain, self.groups, self.config.memory_bytes
        )

    def boot(self, name: str) -> None:
        """Power a host on and wait until it is ready."""
        with locked(self.paths):
            self.boot_locked(self.host(name))

    def boot_locked(self, host: Host) -> None:
        """The same under the lab's lock, which the caller holds."""
        try:
            host.boot(self.running(), self.config.shares)
            host.wait_ready()
        except LabError as error:
            # Here the logs stay; an ``up`` that fails removes them.
            error.remedy = error.remedy or f"sparkop lab logs {host.name}"
            raise

    def power_cut(self, name: str) -> None:
        """End a host without notice; its disk stays."""
        self.host(name).power_cut(self.running())

    @property
    def inside(self) -> str:
        """Value of SPARKOP_LAB_INSIDE for processes that enter the lab's network namespace."""
        return mark(self.name, self.config.token)


def lab_at(paths: LabPaths) -> Lab | None:
    """The lab that was brought up there, crashed or not; None when there is none, or only its remains."""
    try:
        data = json.loads(paths.config.read_text())
        config = LabConfig(**{**data, "shares": tuple(data["shares"])})
        return Lab(paths, config, cgroups.from_json(config.cgroups))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def parse_size(text: str) -> int:
    """Bytes of a size as specs write it ("256 KiB"), of Docker's short form of one ("4g", "512m"), or of a
    plain number. Raises ValueError."""
    from sparkop.spec.quantities import ByteSize  # with pydantic: a tenth of a second for each other command

    number, unit = text[:-1], text[-1:].upper()
    if unit in ("K", "M", "G"):
        return int(ByteSize.parse(f"{number} {unit}iB"))
    return int(ByteSize.parse(f"{text} B" if text.isdecimal() else text))


def engine_shares(paths: Sequence[str]) -> tuple[str, ...]:
    """Absolute, existing folders to show to the hosts. Raises LabNameError for one that is not there."""
    for path in paths:
        if not Path(path).is_dir():
            raise LabNameError(f"{path}: no such folder to share with the hosts")
    return tuple(str(Path(path).absolute()) for path in paths)
