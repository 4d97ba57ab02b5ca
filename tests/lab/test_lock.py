"""Only one up or down of a lab at a time, and no lock file stays."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from sparkop.lab import lock
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
