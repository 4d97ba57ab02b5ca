"""Only one up or down of a lab at a time, and no lock file stays."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkop.lab import engines, lock
from sparkop.lab.cgroups import CgroupV2
from sparkop.lab.lab import Lab, LabConfig
from sparkop.lab.layout import LabError, LabPaths


def test_holders_follow_each_other_though_each_removes_the_file(tmp_path: Path) -> None:
    """A lock on a file that was removed meanwhile protects nothing: two would hold it at once."""
    paths = LabPaths("x", tmp_path)
    inside, most, turns = 0, 0, 0
    guard = threading.Lock()

    def work() -> None:
        nonlocal inside, most, turns
        for _ in range(20):
            with lock.locked(paths):
                with guard:
                    inside += 1
                    most = max(most, inside)
                with guard:
                    inside -= 1
                    turns += 1

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, turns) == (1, 60)
    assert list(tmp_path.iterdir()) == []


def test_file_stays_while_the_lab_does(tmp_path: Path) -> None:
    paths = LabPaths("x", tmp_path)
    with lock.locked(paths):
        paths.root.mkdir()
    assert paths.lock.exists()


def test_waiting_ends_with_the_holders_pid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "LOCK_SECONDS", 0.2)
    paths = LabPaths("x", tmp_path)
    with (
        lock.locked(paths),
        pytest.raises(LabError, match=f"pid {os.getpid()}"),
        lock.locked(paths),
    ):
        pass


def test_an_unwritable_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LabError, match="cannot write"), lock.locked(LabPaths("x", tmp_path / "file")):
        pass


def _provide(lab: Lab) -> None:
    engines.provide(lab, lambda _line: None, vllm=False)


def _boot(lab: Lab) -> None:
    lab.boot("spark-1")


@pytest.mark.parametrize("change", [_provide, _boot])
def test_what_changes_a_lab_waits_for_another_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Lab], None]
) -> None:
    """Two `lab up` at once put the same models into one hub: the second found the first one's folders."""
    monkeypatch.setattr(lock, "LOCK_SECONDS", 0.2)
    lab = Lab(LabPaths("x", tmp_path), LabConfig(), CgroupV2(tmp_path / "groups"))
    with lock.locked(lab.paths), pytest.raises(LabError, match=f"pid {os.getpid()}"):
        change(lab)


@pytest.mark.parametrize("change", [_provide, _boot])
def test_a_lab_that_was_removed_meanwhile_gets_nothing(tmp_path: Path, change: Callable[[Lab], None]) -> None:
    with pytest.raises(LabError, match="not up"):
        change(Lab(LabPaths("x", tmp_path), LabConfig(), CgroupV2(tmp_path / "groups")))
    assert list(tmp_path.iterdir()) == []
