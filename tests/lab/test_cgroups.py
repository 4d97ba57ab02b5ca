"""Control groups: what is placed is found, frozen and removed. v2 too, on the kernel's own unified tree."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparkop.lab import cgroups
from sparkop.lab.cgroups import SERVICES, Cgroups, CgroupV2
from sparkop.lab.layout import LabError


@pytest.fixture(params=["detected", "unified"])
def groups(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cgroups]:
    """The kind that the machine has, and v2 (without controllers where the tree is mounted beside v1)."""
    name = f"pytest-{os.getpid()}"
    if request.param == "detected":
        found = cgroups.detect(name)
    else:
        unified = cgroups.ROOT / "unified"
        top = unified if (unified / "cgroup.controllers").exists() else cgroups.ROOT
        if top == unified:
            monkeypatch.setattr(cgroups, "_V2_NEEDED", ())
        assert (top / "cgroup.controllers").exists(), (
            "no unified tree: mount -t cgroup2 none /sys/fs/cgroup/unified"
        )
        found = CgroupV2(top / cgroups.FOLDER / name)
    yield found
    for pid in found.processes():
        os.kill(pid, 9)
    found.remove()


def _sleeper(groups: Cgroups, group: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(groups.placed(group, ["sleep", "60"]))
    _until(lambda: process.pid in groups.processes(group))
    return process


def _until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 5
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.lab
def test_a_process_is_found_where_it_was_placed(groups: Cgroups) -> None:
    groups.create(SERVICES, None)
    groups.create("spark-1", None)
    with _sleeper(groups, "spark-1") as process:
        assert groups.processes("spark-1") == [process.pid]
        assert groups.processes(SERVICES) == []
        assert groups.processes() == [process.pid]
        again = cgroups.from_json(cgroups.to_json(groups))
        assert again.processes("spark-1") == [process.pid]
        process.kill()
    groups.remove("spark-1")
    assert groups.processes("spark-1") == []


@pytest.mark.lab
def test_freeze_stops_and_a_frozen_process_dies_when_it_thaws(groups: Cgroups) -> None:
    groups.create("spark-1", None)
    with _sleeper(groups, "spark-1") as process:
        groups.freeze("spark-1", True)
        assert groups.frozen("spark-1")
        process.kill()
        groups.freeze("spark-1", False)
        assert not groups.frozen("spark-1")
        assert process.wait(5) == -9


@pytest.mark.lab
def test_a_settled_host_can_make_groups_of_its_own(groups: Cgroups) -> None:
    """On v2 a group with processes cannot hand controllers down: Docker in the host would fail."""
    groups.create(SERVICES, None)
    groups.create("spark-1", None)
    with _sleeper(groups, "spark-1") as outer, _sleeper(groups, "spark-1") as init:
        groups.settle("spark-1", outer.pid, init.pid)
        assert init.pid in groups.processes("spark-1")
        if isinstance(groups, CgroupV2):
            assert (groups.top / "spark-1/cgroup.procs").read_text() == ""
            assert groups.processes(SERVICES) == [outer.pid]
            with subprocess.Popen(groups.placed("spark-1", ["sleep", "60"])) as late:
                _until(lambda: late.pid in groups.processes("spark-1"))
                assert (groups.top / "spark-1/cgroup.procs").read_text() == ""
                late.kill()
        outer.kill()
        init.kill()


@pytest.mark.lab
def test_memory_limit_is_told(groups: Cgroups, request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["groups"] == "unified" and not cgroups._V2_NEEDED:
        groups.create("spark-1", None)
        return
    groups.create("spark-1", 64 << 20)
    assert groups.memory("spark-1")[1] == 64 << 20


def test_a_v2_machine_without_the_memory_controller_is_refused(tmp_path: Path) -> None:
    """Hosts without a limit would eat the machine."""
    top = tmp_path / "sparkop-lab" / "default"
    top.mkdir(parents=True)
    for path in (tmp_path, top.parent, top):
        (path / "cgroup.controllers").write_text("cpu io pids\n")
        (path / "cgroup.subtree_control").write_text("")
    with pytest.raises(LabError, match="memory"):
        CgroupV2(top).create("spark-1", 1)


def test_a_v2_machine_delegates_every_controller_on_the_way_down(tmp_path: Path) -> None:
    top = tmp_path / "sparkop-lab" / "default"
    top.mkdir(parents=True)
    written: dict[Path, list[str]] = {}
    for path in (tmp_path, top.parent, top):
        (path / "cgroup.controllers").write_text("cpu io memory pids\n")
        written[path] = []
        (path / "cgroup.subtree_control").write_text("")
    CgroupV2(top).create("spark-1", 1 << 30)
    for path in written:
        assert (
            path / "cgroup.subtree_control"
        ).read_text() == "+pids"  # a plain file keeps the last write only
    assert (top / "spark-1/memory.max").read_text() == str(1 << 30)
