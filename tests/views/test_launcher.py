"""The launcher's log: what was told on this machine, kept for its owner."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from sparkop.errors import BlockedError
from sparkop.reconcile import launcher
from sparkop.reconcile.launcher import LauncherLog, launcher_file, launcher_lines
from sparkop.resources.events import Event, Phase
from sparkop.views.progress import logged_progress
from sparkop.views.watch import logged


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_what_is_told_is_kept_masked_and_for_the_owner_only() -> None:
    with logged_progress("c") as emit:
        emit(Event(Phase.NOTE, text="warning: the engine was given --api-key secret"))
        emit(Event(Phase.PROGRESS, text="a percentage is no line"))
    assert [line.partition(" ")[2] for line in launcher_lines("c", 9)] == [
        "warning: the engine was given --api-key ********"
    ]
    assert stat.S_IMODE(launcher_file("c").stat().st_mode) == 0o600


def test_a_failure_is_its_last_line() -> None:
    with pytest.raises(BlockedError), logged_progress("c"):
        raise BlockedError("rank/1 exited (1)", node="spark-2", remedy="sparkop logs")
    assert launcher_lines("c", 2)[-1].endswith("do: sparkop logs")
    assert "spark-2: rank/1 exited (1)" in launcher_lines("c", 2)[0]


def test_watch_writes_the_same_file() -> None:
    said: list[str] = []
    logged(lambda event, **fields: said.append(event), "c")("healed", rank=1, why=None)
    assert said == ["healed"]
    assert launcher_lines("c", 1)[0].endswith("watch: healed rank=1")


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "LARGEST", 1000)
    log = LauncherLog("c")
    for number in range(200):
        log.write(f"line {number}")
    files = sorted(launcher_file("c").parent.iterdir())
    assert [file.name for file in files] == ["c.log", "c.log.1"]
    assert all(file.stat().st_size <= 1000 for file in files)
    assert launcher_lines("c", 30)[0].endswith("line 170")


def test_a_place_that_can_not_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "sparkop").write_text("a file where the folder should be")
    LauncherLog("c").write("lost")
    assert launcher_lines("c", 9) == []
