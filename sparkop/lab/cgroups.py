"""Control groups of a lab, on cgroup v1 and v2.

Every process of a lab is in a group of the lab from before it does anything. So the groups tell what is
still running, whatever crashed: ``down`` empties and removes them.

v1: ``<hierarchy>/<own group>/sparkop-lab/LAB/HOST`` in each hierarchy. v2: ``sparkop-lab/LAB/HOST`` at the
top of the mounted tree, because a group that holds processes cannot hand controllers to its children.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from sparkop.lab.layout import LabError
from sparkop.records import dataclass

ROOT = Path("/sys/fs/cgroup")
FOLDER = "sparkop-lab"
SERVICES = "services"
"""Group of the lab's own processes, beside the hosts."""

_V1_WANTED = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd")
_V1_NEEDED = frozenset({"memory", "devices", "freezer", "pids"})
_V2_NEEDED = ("memory", "pids")
_V2_WANTED = ("cpu", "cpuset", "io", *_V2_NEEDED)


class Cgroups(Protocol):
    """The groups of one lab. ``group`` is a host's name or SERVICES."""

    def create(self, group: str, memory_bytes: int | None) -> None:
        """Make the group; ``memory_bytes`` limits it."""

    def placed(self, group: str, argv: Sequence[str]) -> list[str]:
        """``argv`` wrapped so that the process enters the group before it starts."""

    def settle(self, group: str, outer: int, init: int) -> None:
        """After a host's pid 1 (``init``) has its cgroup namespace: let the host's Docker make groups."""

    def processes(self, group: str | None = None) -> list[int]:
        """Pids in the group and below; of the whole lab without ``group``."""

    def freeze(self, group: str, frozen: bool) -> None:
        """Stop or continue all processes of the group. Returns when the kernel says it is so."""

    def frozen(self, group: str) -> bool:
        """Whether the group is frozen."""

    def memory(self, group: str) -> tuple[int, int]:
        """Bytes used, and the limit."""

    def remove(self, group: str | None = None) -> None:
        """Remove the group, or all of the lab's. Nothing happens when it is not there."""


def detect(lab: str) -> Cgroups:
    """The kind of groups this machine has. Raises LabError when a needed controller is missing."""
    if (ROOT / "cgroup.controllers").exists():
        return CgroupV2(ROOT / FOLDER / lab)
    return CgroupV1({name: path / FOLDER / lab for name, path in _v1_bases().items()})


def find(lab: str) -> Cgroups | None:
    """Groups of a lab that are there, wherever the process that made them had its own group."""
    if (ROOT / "cgroup.controllers").exists():
        return CgroupV2(ROOT / FOLDER / lab) if (ROOT / FOLDER / lab).is_dir() else None
    hierarchies = {}
    for name in _V1_WANTED:
        for directory, folders, _ in os.walk(ROOT / name):
            if Path(directory).name == FOLDER and lab in folders:
                hierarchies[name] = Path(directory, lab)
                break
    return CgroupV1(hierarchies) if hierarchies else None


def to_json(groups: Cgroups) -> dict[str, object]:
    """What ``from_json`` needs to find the same groups from another process."""
    if isinstance(groups, CgroupV1):
        return {"version": 1, "hierarchies": {name: str(path) for name, path in groups.hierarchies.items()}}
    assert isinstance(groups, CgroupV2)
    return {"version": 2, "top": str(groups.top)}


def from_json(data: Mapping[str, object]) -> Cgroups:
    """What ``to_json`` wrote, read again."""
    if data["version"] == 1:
        hierarchies = data["hierarchies"]
        assert isinstance(hierarchies, dict)
        return CgroupV1({name: Path(path) for name, path in hierarchies.items()})
    return CgroupV2(Path(str(data["top"])))


@dataclass(frozen=True)
class CgroupV1:
    """One directory of the lab in each v1 hierarchy."""

    hierarchies: Mapping[str, Path]

    def create(self, group: str, memory_bytes: int | None) -> None:
        for name, top in self.hierarchies.items():
            for path in (top.parent, top, top / group):
                if path.is_dir():
                    continue
                path.mkdir()
                if name == "cpuset":
                    for file in ("cpuset.cpus", "cpuset.mems"):
                        (path / file).write_text((path.parent / file).read_text())
        if memory_bytes is not None:
            memory = self.hierarchies["memory"] / group
            (memory / "memory.limit_in_bytes").write_text(str(memory_bytes))
            with contextlib.suppress(OSError):  # absent where the kernel does not count swap
                (memory / "memory.memsw.limit_in_bytes").write_text(str(memory_bytes))

    def placed(self, group: str, argv: Sequence[str]) -> list[str]:
        return _entering([top / group / "cgroup.procs" for top in self.hierarchies.values()], argv)

    def settle(self, group: str, outer: int, init: int) -> None:
        """Nothing: a v1 group may hold processes and groups."""

    def processes(self, group: str | None = None) -> list[int]:
        top = self.hierarchies.get("pids")  # some are missing when a removal was interrupted
        return _processes(top / group if group else top) if top else []

    def freeze(self, group: str, frozen: bool) -> None:
        state = self._freezer(group)
        wanted = "FROZEN" if frozen else "THAWED"

        def reached() -> bool:
            state.write_text(wanted)  # again: a v1 freezer can stay FREEZING until it is asked once more
            return state.read_text().strip() == wanted

        _until(reached, f"{group} {wanted}")

    def frozen(self, group: str) -> bool:
        return _text(self._freezer(group)) in ("FROZEN", "FREEZING")

    def _freezer(self, group: str) -> Path:
        return self.hierarchies.get("freezer", Path("/nonexistent")) / group / "freezer.state"

    def memory(self, group: str) -> tuple[int, int]:
        path = self.hierarchies["memory"] / group
        return int(_text(path / "memory.usage_in_bytes")), int(_text(path / "memory.limit_in_bytes"))

    def remove(self, group: str | None = None) -> None:
        for top in self.hierarchies.values():
            _remove(top / group if group else top)
            if group is None:
                with contextlib.suppress(OSError):  # another lab is still in it
                    top.parent.rmdir()


@dataclass(frozen=True)
class CgroupV2:
    """One directory of the lab in the unified tree; a host's processes are in its leaf ``init``."""

    top: Path

    def create(self, group: str, memory_bytes: int | None) -> None:
        (self.top / group).mkdir(parents=True, exist_ok=True)
        for path in (self.top.parent.parent, self.top.parent, self.top):
            _delegate(path)
        if memory_bytes is not None:
            (self.top / group / "memory.max").write_text(str(memory_bytes))
            with contextlib.suppress(OSError):  # absent without swap accounting
                (self.top / group / "memory.swap.max").write_text("0")

    def placed(self, group: str, argv: Sequence[str]) -> list[str]:
        leaf = self.top / group / "init"  # there once the host is settled; then the group itself is closed
        return _entering([(leaf if leaf.is_dir() else leaf.parent) / "cgroup.procs"], argv)

    def settle(self, group: str, outer: int, init: int) -> None:
        services = self.top / SERVICES
        leaf = self.top / group / "init"
        services.mkdir(exist_ok=True)
        leaf.mkdir(exist_ok=True)
        (services / "cgroup.procs").write_text(str(outer))
        (leaf / "cgroup.procs").write_text(str(init))
        for pid in _text(self.top / group / "cgroup.procs").split():
            (services / "cgroup.procs").write_text(pid)
        _delegate(self.top / group)

    def processes(self, group: str | None = None) -> list[int]:
        return _processes(self.top / group if group else self.top)

    def freeze(self, group: str, frozen: bool) -> None:
        (self.top / group / "cgroup.freeze").write_text(str(int(frozen)))
        _until(lambda: self.frozen(group) is frozen, f"{group} {'frozen' if frozen else 'thawed'}")

    def frozen(self, group: str) -> bool:
        return "frozen 1" in _text(self.top / group / "cgroup.events").splitlines()

    def memory(self, group: str) -> tuple[int, int]:
        path = self.top / group
        return int(_text(path / "memory.current")), int(_text(path / "memory.max"))

    def remove(self, group: str | None = None) -> None:
        _remove(self.top / group if group else self.top)
        if group is None:
            with contextlib.suppress(OSError):  # another lab is still in it
                self.top.parent.rmdir()


def _v1_bases() -> dict[str, Path]:
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        for name in names.removeprefix("name=").split(","):
            own[name] = path
    bases: dict[str, Path] = {}
    for name in _V1_WANTED:
        mounted = ROOT / name
        if not mounted.is_dir() or name not in own:
            continue
        inside = mounted / own[name].lstrip("/")
        # In a container the mount already is the container's own group, and the path is the machine's.
        base = inside if inside.is_dir() else mounted
        if base.resolve() not in [known.resolve() for known in bases.values()]:  # cpu and cpuacct may be one
            bases[name] = base
    missing = _V1_NEEDED - set(bases)
    if missing:
        raise LabError(f"cgroup v1 without {', '.join(sorted(missing))}: mount the hierarchies below {ROOT}")
    return bases


def _delegate(path: Path) -> None:
    """Let the children of a v2 group use every wanted controller that the group has."""
    available = _text(path / "cgroup.controllers").split()
    enabled = _text(path / "cgroup.subtree_control").split()
    for name in _V2_WANTED:
        if name in enabled:
            continue
        try:
            if name not in available:
                raise OSError("not available here")
            (path / "cgroup.subtree_control").write_text(f"+{name}")
        except OSError as error:
            if name in _V2_NEEDED:
                raise LabError(
                    f"cgroup controller {name} cannot be used below {path}: {error}",
                    remedy="in a container: start it with --privileged --cgroupns=host",
                ) from error


def _entering(files: Sequence[Path], argv: Sequence[str]) -> list[str]:
    writes = "".join(f"echo 0 >{shlex.quote(str(file))} && " for file in files)
    return ["sh", "-c", f'{writes}exec "$@"', "sh", *argv]


def _processes(top: Path) -> list[int]:
    return [int(pid) for path in _below(top) for pid in _text(path / "cgroup.procs").split() if pid != "0"]


def _below(top: Path) -> Iterator[Path]:
    """The group and all groups below, deepest first."""
    for directory, _, _ in os.walk(top, topdown=False):
        yield Path(directory)


def _remove(top: Path) -> None:
    for path in _below(top):
        _until(partial(_removed, path), f"removal of {path}", seconds=10)


def _removed(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:  # a process of it is still on its way out
        return False
    return True


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _until(done: Callable[[], bool], what: str, seconds: float = 5) -> None:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise LabError(f"cgroup: {what}: not within {seconds:g} s")
        time.sleep(0.01)
