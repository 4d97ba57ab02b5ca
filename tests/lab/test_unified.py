"""A whole host on cgroup v2, on this kernel's unified tree, whatever the machine itself uses.

Beside a v1 tree the unified one has no memory controller, so limits and figures are not part of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from sparkop.lab import cgroups
from sparkop.lab.cgroups import CgroupV2
from tests.labkit import busybox, temporary_lab

pytestmark = pytest.mark.lab


class Unlimited(CgroupV2):
    """Without memory limits."""

    def create(self, group: str, memory_bytes: int | None) -> None:
        super().create(group, None)


def _unified() -> Path:
    for path in (cgroups.ROOT / "unified", cgroups.ROOT):
        if (path / "cgroup.controllers").exists():
            return path
    raise AssertionError("no unified tree: mount -t cgroup2 none /sys/fs/cgroup/unified")


def _from_json(data: Mapping[str, object]) -> CgroupV2:
    return Unlimited(Path(str(data["top"])))


def test_docker_runs_in_a_host_of_the_unified_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker hands controllers to its containers, which needs the host's own group free of processes."""
    tree = _unified()
    available = tuple((tree / "cgroup.controllers").read_text().split())
    monkeypatch.setattr(cgroups, "_V2_NEEDED", ())
    monkeypatch.setattr(cgroups, "_V2_WANTED", available)
    monkeypatch.setattr(cgroups, "detect", lambda lab: Unlimited(tree / cgroups.FOLDER / lab))
    monkeypatch.setattr(cgroups, "from_json", _from_json)
    with temporary_lab() as lab:
        host = lab.host("spark-1")
        top = tree / cgroups.FOLDER / lab.paths.cgroup
        image = busybox(lab, "spark-1")
        container = host.docker("run", "-d", "--privileged", image, "sleep", "1000").strip()
        assert json.loads(host.docker("info", "--format", "{{json .CgroupVersion}}")) == "2"
        assert (top / "spark-1/cgroup.procs").read_text() == ""
        own = top / "spark-1/docker" / container
        assert len((own / "cgroup.procs").read_text().split()) == 1
        assert set(available) <= set((own / "cgroup.controllers").read_text().split())
        assert host.exec(["cat", "/sys/fs/cgroup/docker/cgroup.procs"]).stdout == ""
        lab.power_cut("spark-1")
        assert not (top / "spark-1").exists()
        lab.boot("spark-1")
        assert json.loads(host.docker("inspect", container))[0]["State"]["Status"] == "exited"
    assert not top.exists()
