"""What is said of a process of the lab that does not start."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkop.lab.cgroups import CgroupV2
from sparkop.lab.host import Host
from sparkop.lab.lab import Lab, LabConfig
from sparkop.lab.layout import LabError, LabPaths
from sparkop.lab.start import start_init


def test_its_last_words_are_told_and_no_file_that_up_removes(tmp_path: Path) -> None:
    with pytest.raises(LabError) as told:
        start_init(["sh", "-c", "echo no room; exit 1", "sh"], tmp_path / "console.log")
    assert told.value.detail == "no room\n"
    assert told.value.remedy is None


def test_a_host_that_does_not_boot_has_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lab stays up, so that there is something to read."""

    def fail(*_words: object) -> None:
        raise LabError("it did not start")

    monkeypatch.setattr(Lab, "running", lambda _lab: 1)
    monkeypatch.setattr(Host, "boot", fail)
    lab = Lab(LabPaths("x", tmp_path), LabConfig(), CgroupV2(tmp_path / "groups"))
    with pytest.raises(LabError) as told:
        lab.boot("spark-1")
    assert told.value.remedy == "sparkop lab logs spark-1"
