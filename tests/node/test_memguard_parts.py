"""The guard's hands: files, real processes, a Docker socket that answers, freezes or is away."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparkop.node.memguard import engine, main, reading, record, watcher
from sparkop.node.memguard.engine import Docker, Rank
from sparkop.node.memguard.guard import Guard
from sparkop.node.memguard.outside import Outside
from sparkop.resources.guard import program
from tests.labkit import until
from tests.node.memguard_docker import Engine, docker
from tests.node.memguard_world import FLOORS, GIB, MIB, FakeRank, World, line

MEMINFO = "MemTotal:       127600748 kB\nMemFree:  {free} kB\nMemAvailable:   {available} kB\nCached: 4 kB\n"


@contextmanager
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A program that only waits."""
    child = subprocess.Popen([sys.executable, "-IS", "-c", "import signal; signal.pause()"])
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def watcher_of(folder: Path, made: Engine, world: World) -> watcher.Watcher:
    return watcher.Watcher(
        "x", world.guard, Docker(str(made.path), timeout=0.2), record.TripFile(str(folder)), str(folder)
    )


def log_of(folder: Path) -> str:
    return (folder / "memguard.log").read_text(encoding="utf-8")


def test_figures_are_read_from_meminfo_again_and_again(tmp_path: Path) -> None:
    """In bytes, from one open file; a file without a figure is an error, not zero: zero would kill."""
    path = tmp_path / "meminfo"
    path.write_text(MEMINFO.format(free=1, available=112503684))
    meminfo = reading.Meminfo(str(path))
    assert meminfo.read() == (112503684 * 1024, 1024, 4096)
    path.write_text(MEMINFO.format(free=2, available=7))
    assert meminfo.read() == (7 * 1024, 2048, 4096)
    path.write_text("MemTotal:       127600748 kB\n")
    with pytest.raises(ValueError, match="MemAvailable"):
        meminfo.read()


def test_the_kernels_own_files_are_understood() -> None:
    """On this machine: what is available is not more than there is, and pressure has its figures."""
    memory = reading.Meminfo("/proc/meminfo").read()
    assert 0 < memory.free <= main.total_memory()
    assert 0 < memory.available <= main.total_memory()
    assert reading.large_blocks() is not None


def test_free_blocks_of_large_orders(tmp_path: Path) -> None:
    """Two blocks of order 9 and one of order 10, whatever lies about in small ones."""
    (tmp_path / "buddyinfo").write_text("Node 0, zone   Normal  9 9 9 9 9 9 9 9 9 2 1\n")
    assert reading.large_blocks(str(tmp_path)) == (2 * 512 + 1024) * reading.PAGE
    assert reading.large_blocks(str(tmp_path / "none")) is None


def test_the_largest_processes_and_what_containers_hold() -> None:
    """By the group of each process; this one is among all."""
    own = reading.cgroup(os.getpid()).split(":")[-1].strip() or "/"
    found = reading.processes({"mine": own})
    assert len(found.largest) == 3
    assert found.containers["mine"] > 0
    assert os.getpid() not in found.outside
    assert os.getpid() in reading.processes({}).outside


def test_a_rank_is_killed_by_the_kernel() -> None:
    """Through a descriptor that was opened before; afterwards it is known to be gone."""
    with process() as child:
        rank = Rank("abc", "x-r0", "v1:77", os.pidfd_open(child.pid))
        assert not rank.ended
        assert rank.kill()
        assert child.wait(10) == -signal.SIGKILL
        assert rank.ended
        assert rank.kill(), "gone is as good as killed"
        rank.close()
        assert not rank.kill()


def test_only_a_process_of_that_container_is_held() -> None:
    """A number that now belongs to something else must never be killed."""
    with process() as child:
        assert engine.hold("no-such-container", child.pid) is None
        for number in (0, -1, 2**31 - 1, 2**31, 10**30):
            assert engine.hold("abc", number) is None


def children() -> set[int]:
    """Processes whose parent is this one; other tests may have some, too."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            if f"\nPPid:\t{os.getpid()}\n" in status.read_text():
                found.add(int(status.parent.name))
    return found


def test_a_kill_is_rehearsed() -> None:
    """The child is gone, and nothing of it is left, not even a zombie."""
    before = children()
    assert 0 < engine.rehearse() < 5
    assert children() <= before


def test_the_record_survives_a_power_cut_before_its_rename(tmp_path: Path) -> None:
    """The draft that was synced is found at the next start."""
    first = record.TripFile(str(tmp_path))
    first.prepare()
    first.start()
    assert first.write({"at": 1.0}, 10)
    assert not (tmp_path / "trip.json").exists()
    record.TripFile(str(tmp_path)).prepare()
    assert json.loads((tmp_path / "trip.json").read_bytes()) == {"at": 1.0}
    record.TripFile(str(tmp_path)).prepare()
    assert json.loads((tmp_path / "trip.json").read_bytes()) == {"at": 1.0}


def test_the_record_tells_who_has_the_memory_after_the_kill(tmp_path: Path) -> None:
    """Three seconds later, when killed ranks have given theirs back: a foreign program still has it."""
    world = World(line((0, 900 * MIB)))
    world.rank()
    with docker(tmp_path) as made:
        watching = watcher_of(tmp_path, made, world)
        trip = watching.trip
        trip.prepare()
        trip.start()
        world.guard.write = trip.write
        world.guard.tick()
        assert trip.written.wait(10)
        watching.turn(1.0)
        assert "after" not in json.loads((tmp_path / "trip.json").read_bytes())
        watching.turn(1.0 + watcher.AFTER)
    found = json.loads((tmp_path / "trip.json").read_bytes())
    assert found["available_after"] == 900 * MIB
    assert found["after"][0]["rss"] > 0
    assert found["containers"] == ["x-r0"]


def test_the_watcher_rests_until_a_kill_has_something_to_follow(tmp_path: Path) -> None:
    """Far from the floor it turns seldom; from the kill to the last word of the record it does not dawdle."""
    world = World(line((0, 64 * GIB)))
    with docker(tmp_path) as made:
        watching = watcher_of(tmp_path, made, world)
        trip = watching.trip
        trip.prepare()
        trip.start()
        world.guard.write = trip.write
        watching.look()
        world.guard.tick()
        assert not watching.busy
        world.rank()
        world.trace = line((0, 900 * MIB))
        world.guard.tick()
        assert watching.busy, "a rank was killed"
        world.guard.ranks = ()
        assert trip.written.wait(10)
        assert watching.busy, "the record is not published"
        watching.turn(1.0)
        assert (tmp_path / "trip.json").exists()
        assert watching.busy, "what the kill brought is not told"
        watching.turn(1.0 + watcher.AFTER)
        assert not watching.busy


def test_far_from_the_floor_a_look_at_all_processes_opens_one_file_of_most(tmp_path: Path) -> None:
    """Hundreds of small ones: their control groups and names are no business of the guard."""
    for pid, pages in ((1, 10), (2, 0), (3, 5000), (4, 4000), (5, 3000), (6, 2000)):
        place = tmp_path / str(pid)
        place.mkdir()
        (place / "statm").write_text(f"9999 {pages} 1 1 0 1 0\n")
        if pages >= 2000:
            (place / "comm").write_text(f"p{pid}\n")
            (place / "cgroup").write_text("0::/docker/abc\n" if pid in (3, 6) else "0::/\n")
    (tmp_path / "3" / "comm").unlink()  # it ended meanwhile
    found = reading.processes({"mine": "abc"}, str(tmp_path))
    assert [(each["pid"], each["name"]) for each in found.largest] == [(4, "p4"), (5, "p5"), (6, "p6")]
    assert found.containers == {"mine": 7000 * reading.PAGE}
    assert found.outside == {4: 3999 * reading.PAGE, 5: 2999 * reading.PAGE}


def test_what_processes_outside_have_taken_is_told_with_who_took_most(tmp_path: Path) -> None:
    """Since the oldest look that is kept: one that ended has given back, one that is new has taken all."""
    for pid in (4, 5, 6, 7):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(f"p{pid}\n")
    looks = Outside(2)
    proc = str(tmp_path)
    assert looks.look({4: 90 * MIB, 5: 10 * MIB, 6: MIB}, proc) == {"grew": 0, "most": None}
    told = looks.look({4: 90 * MIB, 5: 40 * MIB, 7: 20 * MIB}, proc)
    assert told == {"grew": 49 * MIB, "most": {"pid": 5, "name": "p5", "rss": 40 * MIB}}
    told = looks.look({4: 90 * MIB, 5: 40 * MIB, 7: 25 * MIB}, proc)
    assert told == {"grew": 54 * MIB, "most": {"pid": 5, "name": "p5", "rss": 40 * MIB}}
    told = looks.look({4: 90 * MIB, 5: 40 * MIB, 7: 26 * MIB}, proc)
    assert told == {"grew": 6 * MIB, "most": {"pid": 7, "name": "p7", "rss": 26 * MIB}}


def test_a_full_disk_has_room_for_the_record(tmp_path: Path) -> None:
    """Its space was taken at the start: writing needs no new block."""
    trip = record.TripFile(str(tmp_path))
    trip.prepare()
    before = (tmp_path / "trip.draft").stat()
    trip.start()
    assert trip.write({"at": 1.0}, 10)
    after = (tmp_path / "trip.draft").stat()
    assert (after.st_ino, after.st_size, after.st_blocks) == (before.st_ino, before.st_size, before.st_blocks)
    assert before.st_blocks * 512 >= record.TRIP_BYTES


def test_a_log_that_can_not_be_written_hurts_nobody(tmp_path: Path) -> None:
    """Nor does a heartbeat."""
    world = World(line((0, GIB)))
    with docker(tmp_path) as made:
        watching = watcher_of(tmp_path / "gone", made, world)
        watching.turn(0.0)
    assert [rank.name for rank in world.guard.ranks] == ["x-r0"]


def test_the_log_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old one is kept once."""
    monkeypatch.setattr(record, "LOG_LIMIT", 200)
    log = record.Log(str(tmp_path))
    for number in range(20):
        log.write(f"line {number}")
    assert (tmp_path / "memguard.log").stat().st_size < 400
    assert (tmp_path / "memguard.log.1").exists()


def test_ranks_are_those_of_the_cluster_and_are_known_while_docker_is_frozen(tmp_path: Path) -> None:
    """When Docker does not answer the list any more, those that were known stay."""
    world = World(line((0, 64 * GIB)))
    with docker(tmp_path) as made:
        watching = watcher_of(tmp_path, made, world)
        watching.look()
        filters = json.loads(made.asked[0].partition("filters=")[2])
        assert filters["label"] == ["sparkop.cluster=x", "sparkop.role=rank"]
        before = world.guard.ranks
        made.frozen = True
        watching.look()
        watching.look()
        assert world.guard.ranks is before
        made.frozen = False
        watching.look()
        assert world.guard.ranks is before
        made.ranks = []
        watching.look()
        assert world.guard.ranks == ()
    assert log_of(tmp_path).count("Docker does not answer") == 1
    assert "Docker answers again" in log_of(tmp_path)


def test_a_guard_that_starts_while_docker_is_frozen_knows_the_ranks_of_before(tmp_path: Path) -> None:
    """From the last heartbeat, when they still are the same processes of the same containers."""
    own = reading.cgroup(os.getpid()).split(":")[-1].strip() or "/"
    identifier = own if len(own) >= record.SHORTEST_ID else ""
    world = World(line((0, 64 * GIB)))
    with process() as child, docker(tmp_path) as made:
        made.frozen = True
        ranks = [
            {"id": identifier, "name": "x-r0", "stamp": "v1:77", "numbers": "v1:88", "pid": child.pid},
            {"id": "of-another-container", "name": "x-r1", "stamp": "", "numbers": "", "pid": child.pid},
            {"id": identifier, "name": "x-r2", "stamp": "", "numbers": "", "pid": 0},
            {"id": "", "name": "x-r3", "stamp": "", "numbers": "", "pid": child.pid},
        ]
        (tmp_path / "memguard.json").write_text(json.dumps({"ranks": ranks}))
        watching = watcher_of(tmp_path, made, world)
        watching.look()
        assert watching.silent
        watching.recall()
        names = [rank.name for rank in world.guard.ranks]
        assert names == (["x-r0"] if identifier else [])
        for rank in world.guard.ranks:
            assert rank.kill()
            assert child.wait(10) == -signal.SIGKILL
    for damaged in ("", "{", "[]", '{"ranks": 3}', '{"ranks": [{"id": 3}]}'):
        (tmp_path / "memguard.json").write_text(damaged)
        assert record.last_ranks(str(tmp_path)) == []


@pytest.mark.parametrize(
    "groups",
    [
        "12:memory:/docker/{id}\n1:name=systemd:/docker/{id}\n0::/system.slice/containerd.service\n",
        "0::/system.slice/docker-{id}.scope\n",
        "0::/../docker-{id}.scope\n",
        "0::/../../own.slice/docker-{id}.scope/init\n",
    ],
)
def test_a_container_is_known_by_its_control_group_of_either_version(tmp_path: Path, groups: str) -> None:
    """Version 1 and 2, by systemd or cgroupfs, and as seen from the guard's own group namespace."""
    identifier = "4f" * 32
    with process() as child:
        place = tmp_path / str(child.pid)
        place.mkdir()
        (place / "cgroup").write_text(groups.format(id=identifier))
        held = engine.hold(identifier, child.pid, str(tmp_path))
        assert held is not None
        os.close(held)
        assert engine.hold("5e" * 32, child.pid, str(tmp_path)) is None


def test_docker_kills_after_the_kernel(tmp_path: Path) -> None:
    """So that Docker knows of it, and where the kernel could not."""
    world = World(line((0, 900 * MIB)))
    with docker(tmp_path) as made:
        watching = watcher_of(tmp_path, made, world)
        rank = FakeRank(world, "abc")
        world.guard.ranks = (rank,)
        world.guard.tick()
        assert len(rank.killed) == 1
        watching.carry_out(0.0)
        assert made.kills == ["POST /containers/abc/kill?signal=KILL"]


def test_the_heartbeat_tells_what_the_guard_sees(tmp_path: Path) -> None:
    """Phase, memory, floors, containers; the time is that of the last reading, not of the writing."""
    world = World(line((0, 64 * GIB)))
    with docker(tmp_path) as made:
        watching = watcher_of(tmp_path, made, world)
        watching.look()
        world.guard.tick()
        world.guard.looked_at = 5.0
        watching.heartbeat()
    beat = json.loads((tmp_path / "memguard.json").read_text())
    assert beat["at"] == 5.0
    assert beat["phase"] == "loading"
    assert beat["floors"] == {"action": FLOORS.action, "hard": FLOORS.hard, "soft": FLOORS.soft}
    assert [container["name"] for container in beat["containers"]] == ["x-r0"]


def test_page_cache_of_the_checkpoint_is_released_only_while_a_group_loads_and_memory_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunk by chunk, round and round; small files are left alone."""
    monkeypatch.setattr(watcher, "LARGE_FILE", 4 * MIB)
    monkeypatch.setattr(watcher, "CHUNK", 4 * MIB)
    monkeypatch.setattr(watcher, "WORTH", MIB)
    (tmp_path / "model.safetensors").write_bytes(b"x" * (8 * MIB))
    (tmp_path / "config.json").write_bytes(b"{}")
    world = World(line((0, 8 * GIB)))
    releaser = watcher.Releaser(world.guard, str(tmp_path), 128 * GIB)
    asked: list[int] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _fd, offset, _size, _advice: asked.append(offset))
    world.guard.tick()
    assert not releaser.turn(), "no group"
    world.rank()
    world.guard.tick()
    assert [releaser.turn() for _ in range(3)] == [True, True, True]
    assert asked == [0, 4 * MIB, 0]
    world.trace = line((0, 80 * GIB))
    world.guard.tick()
    assert not releaser.turn(), "memory is free"
    world.guard.ranks = ()
    world.guard.tick()
    assert not releaser.turn()
    assert releaser.files == []


@contextmanager
def running(folder: Path, made: Engine, meminfo: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The whole program, as a container would run it."""
    zipped = folder / "memguard.pyz"
    zipped.write_bytes(program())
    words = (
        f"--cluster x --floor {FLOORS.action} --hard-floor {FLOORS.hard} --soft-floor {FLOORS.soft}".split()
    )
    places = ["--state", str(folder), "--meminfo", str(meminfo), "--docker", str(made.path)]
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", str(zipped), *words, *places], stdout=subprocess.DEVNULL
    )
    try:
        yield child
    finally:
        child.terminate()
        child.wait(10)


def test_the_program_kills_while_docker_is_frozen(tmp_path: Path) -> None:
    """From its zip file, on a real process: found by Docker, killed without it; record and log are there."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(MEMINFO.format(free=1 << 24, available=1 << 24))
    with docker(tmp_path) as made, process() as rank:
        made.pid = rank.pid
        made.ranks[0]["Id"] = reading.cgroup(rank.pid).split(":")[-1].strip() or "/"
        with running(tmp_path, made, meminfo) as guard:
            until(lambda: (tmp_path / "memguard.json").exists())
            made.frozen = True
            with meminfo.open("r+") as stream:
                stream.write(MEMINFO.format(free=1 << 24, available=1 << 19))
            assert rank.wait(10) == -signal.SIGKILL
            until(lambda: (tmp_path / "trip.json").exists() and "killed x-r0" in log_of(tmp_path))
            assert guard.poll() is None
    told = json.loads((tmp_path / "trip.json").read_bytes())
    assert (told["available"], told["hashes"]) == ((1 << 19) * 1024, ["v1:77"])


def test_a_second_guard_waits_and_takes_over(tmp_path: Path) -> None:
    """Two would both write the record; when the first is killed, the second guards."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(MEMINFO.format(free=1 << 24, available=1 << 24))
    with docker(tmp_path) as made, running(tmp_path, made, meminfo) as first:
        until(lambda: "guarding x" in (log_of(tmp_path) if (tmp_path / "memguard.log").exists() else ""))
        with running(tmp_path, made, meminfo):
            until(lambda: "another guard" in log_of(tmp_path))
            assert log_of(tmp_path).count("guarding x") == 1
            first.kill()
            until(lambda: log_of(tmp_path).count("guarding x") == 2)


def test_memory_does_not_grow_and_a_tick_is_cheap() -> None:
    """Ten thousand looks: no more memory, and far under half a percent of a core at one look a second."""
    meminfo = reading.Meminfo("/proc/meminfo")
    guard = Guard(FLOORS._replace(action=2, hard=1, soft=2), 1.0, meminfo.read, lambda _record, _wait: True)
    for _ in range(1000):
        guard.tick()
    before = resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(10_000):
        guard.tick()
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_maxrss - before.ru_maxrss < 512
    assert (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / 10_000 < 0.005
