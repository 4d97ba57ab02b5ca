"""The guard on a disk that is full, read-only or slow: it kills all the same, and tells as soon as it can."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkop.hosts.obstacle import obstacle
from sparkop.node import probe
from sparkop.node.memguard import record
from sparkop.node.memguard.engine import Docker
from sparkop.node.memguard.reading import Meminfo
from sparkop.node.memguard.watcher import Watcher
from sparkop.resources.memguard import NEEDED, USEFUL
from sparkop.resources.trip import FILE as TRIP
from tests.labkit import until
from tests.node.memguard_docker import docker
from tests.node.memguard_world import GIB, MIB, World, line


class Disk:
    """Takes writes, or none: `full`."""

    def __init__(self) -> None:
        self.full = False
        self._pwrite = os.pwrite

    def pwrite(self, descriptor: int, content: bytes, offset: int) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._pwrite(descriptor, content, offset)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk()
    monkeypatch.setattr(record.os, "pwrite", made.pwrite)
    yield made
    made.full = False


def test_it_kills_when_the_record_can_not_be_written_and_writes_it_when_it_can(
    tmp_path: Path, disk: Disk
) -> None:
    """The disk was full already when the guard started, so not even the record's space was there."""
    disk.full = True
    trip = record.TripFile(str(tmp_path))
    with pytest.raises(OSError, match="No space"):
        trip.prepare()
    trip.start()
    world = World(line((0, 900 * MIB)))
    world.guard.write = trip.write
    rank = world.rank()
    world.guard.tick()
    assert len(rank.killed) == 1
    assert any("was not on the disk by then" in text for text in world.said())
    with docker(tmp_path) as made:
        watching = Watcher("x", world.guard, Docker(str(made.path)), trip, str(tmp_path))
        for second in range(0, 30, 6):
            watching.turn(float(second))
        assert not (tmp_path / "trip.json").exists()
        disk.full = False
        clock = itertools.count(100, 6)

        def turned() -> bool:
            watching.turn(float(next(clock)))
            return (tmp_path / "trip.json").exists()

        until(turned)
    found = json.loads((tmp_path / "trip.json").read_text())
    assert found["containers"] == ["x-r0"]
    log = (tmp_path / "memguard.log").read_text()
    assert log.count("the record of the trip") == 1, "told once, not each time that it is tried"
    assert log.count("the heartbeat") == 1


def test_space_for_the_record_is_taken_as_soon_as_there_is_some(tmp_path: Path, disk: Disk) -> None:
    """A guard that was started on a full disk is as good as any when the disk has room again."""
    disk.full = True
    trip = record.TripFile(str(tmp_path))
    with pytest.raises(OSError, match="No space"):
        trip.prepare()
    with pytest.raises(OSError, match="No space"):
        trip.retry()
    disk.full = False
    assert trip.retry()
    assert not trip.retry(), "nothing is due"
    assert (tmp_path / "trip.draft").stat().st_blocks * 512 >= record.TRIP_BYTES


def test_a_heartbeat_needs_no_new_space(tmp_path: Path) -> None:
    """Two files take turns: else a full disk makes a good guard look silent, and it is replaced for ever."""
    for number in (1, 2):
        record.write_heartbeat(str(tmp_path), {"at": number})
    files = (tmp_path / "memguard.json", tmp_path / "memguard.json.draft")
    before = {path.stat().st_ino: path.stat().st_blocks for path in files}
    for number in (3, 4, 5):
        record.write_heartbeat(str(tmp_path), {"at": number, "samples": list(range(150))})
        assert json.loads(files[0].read_text())["at"] == number
        assert {path.stat().st_ino: path.stat().st_blocks for path in files} == before


def test_a_heartbeat_is_written_where_files_can_not_change_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old C library, or a file system that can't: one replaces the other."""
    monkeypatch.setattr(record.ctypes, "CDLL", lambda _name: object())
    for number in (1, 2, 3):
        record.write_heartbeat(str(tmp_path), {"at": number})
        assert json.loads((tmp_path / "memguard.json").read_text()) == {"at": number}


def test_a_lock_that_can_not_be_made_is_an_error_and_not_another_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read-only after a disk error: one that is there is taken, and without one the guard goes on."""
    real = os.open

    def read_only(path: Any, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_RDWR:
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, flags, mode)

    told: list[int] = []
    monkeypatch.setattr(record.os, "open", read_only)
    with pytest.raises(OSError, match="No such file"):
        record.lock(str(tmp_path), lambda: told.append(1))
    (tmp_path / "memguard.lock").touch()
    os.close(record.lock(str(tmp_path), lambda: told.append(1)))
    assert told == []


def test_a_record_of_very_many_ranks_is_whole(tmp_path: Path) -> None:
    """Cut in the middle it would be damaged, and nobody would know of the trip."""
    record_of_many = {
        "at": 1.0,
        "available": 2,
        "floor": 3,
        "hashes": ["v1:" + "7" * 64] * 200,
        "numbers": ["v1:" + "8" * 64] * 200,
        "containers": ["a-long-name-of-a-rank-" + str(n) for n in range(200)],
        "samples": list(range(100_000, 100_151)),
    }
    content = record.fitting(record_of_many)
    assert len(content) == record.TRIP_BYTES
    found = json.loads(content)
    assert (found["at"], found["hashes"][0]) == (1.0, "v1:" + "7" * 64)
    assert found["samples"][-1] == 100_150, "the last ones"


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\0" * 4096,
        b"MemAvailable: many kB\nMemFree: 1 kB\nCached: 1 kB\n",
        b"MemAvailable: 12",
        b"MemAvailable:  -  kB\nMemFree: 1 kB\n\nCached: 1 kB\n",
        b"MemAvailable: -1 kB\nMemFree: 1 kB\nCached: 1 kB\n",
        b"MemAvailable: 1 kB\nMemFree: -1 kB\nCached: 1 kB\n",
        b"MemAvailable: 0 kB\nMemAvailable: 9999999 kB\nMemFree: 1 kB\nCached: 1 kB\n",
        b"MemAvailable: 9007199254740992 kB\nMemFree: 1 kB\nCached: 1 kB\n",
        b"MemAvailable: 9999999 kB\nMemFree: 1 kB\nCached: %d kB\n" % 10**30,
    ],
)
def test_garbage_is_no_reading(tmp_path: Path, garbage: bytes) -> None:
    """Neither zero, which would kill, nor plenty, which would not; and nothing is killed meanwhile."""
    path = tmp_path / "meminfo"
    path.write_bytes(garbage)
    with pytest.raises(ValueError):  # noqa: PT011 (whatever it says)
        Meminfo(str(path)).read()
    world = World(line((0, 64 * GIB)))
    world.guard.read = Meminfo(str(path)).read
    rank = world.rank()
    with pytest.raises(ValueError):  # noqa: PT011
        world.guard.tick()
    assert rank.killed == []


def write_everything(folder: str) -> None:
    """All that a guard writes into the state folder; what fails is passed over, as the guard does."""
    record_file = record.TripFile(folder)
    with contextlib.suppress(OSError):
        os.close(record.lock(folder, lambda: None))
    with contextlib.suppress(OSError):
        record.write_next(folder)
    with contextlib.suppress(OSError):
        record.write_heartbeat(folder, {})
    record.Log(folder).write("one line")
    with contextlib.suppress(OSError):
        record_file.prepare()
        record_file.publish()
        Path(folder, TRIP).write_text("{}")
        record_file.add({"after": []})


def test_a_folder_in_place_of_any_file_that_the_guard_writes_is_told_by_the_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard goes on and has nobody to tell it to. A file that it learns to write has to be named."""
    monkeypatch.setattr(record, "LOG_LIMIT", 0)  # the log is started anew at its second line
    written = set[str]()
    for name in ("open", "replace"):
        real = getattr(os, name)

        def spying(path: Any, *more: Any, real: Any = real) -> Any:
            written.update(
                Path(each).name for each in (path, *more[:1]) if str(each).startswith(str(tmp_path))
            )
            return real(path, *more)

        monkeypatch.setattr(record.os, name, spying)
    for _ in range(2):
        write_everything(str(tmp_path))
    assert written - {tmp_path.name, TRIP} <= {*NEEDED, *USEFUL}
    assert {*NEEDED, "memguard.lock", "memguard.log.1", "trip.json.draft"} <= written
    for name in (*NEEDED, *USEFUL):
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name).mkdir()
    (tmp_path / "trip.draft.aside").mkdir()
    found = probe.Probe({"nonce": "n", "sections": ["state"], "state": str(tmp_path)}).document()["errors"]
    assert set(found) == {f"state:{name}" for name in (*NEEDED, *USEFUL)}
    assert all(obstacle(text) for text in found.values())


def test_the_record_is_possible_again_when_the_folder_is_moved_away(tmp_path: Path) -> None:
    """What the human is told to do is enough: the guard that runs takes its space without a restart."""
    (tmp_path / "trip.draft").mkdir()
    trip = record.TripFile(str(tmp_path))
    with pytest.raises(IsADirectoryError):
        trip.prepare()
    (tmp_path / "trip.draft").rename(tmp_path / "trip.draft.aside")
    assert trip.retry()
    assert (tmp_path / "trip.draft").stat().st_size == record.TRIP_BYTES


@pytest.mark.parametrize("case", ["removed", "removed, and missed since", "a folder"])
def test_a_draft_that_was_taken_away_from_a_running_guard_costs_no_record(case: str, tmp_path: Path) -> None:
    """It wrote into the file that nobody could find any more; a folder in its place became the record."""
    trip = record.TripFile(str(tmp_path))
    trip.prepare()
    trip.start()
    trip_draft = tmp_path / "trip.draft"
    trip_draft.unlink()
    if case == "a folder":
        trip_draft.mkdir()
        assert not trip.write({"at": 1}, 5.0)
        trip_draft.rename(tmp_path / "trip.draft.aside")
        assert trip.retry(), "by itself, five seconds later"
        assert trip.written.wait(5.0)
    else:
        assert case == "removed" or trip.retry(), "the space is taken again"
        assert trip.write({"at": 1}, 5.0)
    trip.publish()
    assert json.loads((tmp_path / TRIP).read_text())["at"] == 1
