"""The memory guard: the record first, then the kill, whatever else fails (row A12)."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import pytest

from sparkop.node import memguard
from sparkop.node.memguard import Docker, Guard

MIB = 1 << 20
FLOOR, SOFT = 1024 * MIB, 10 * 1024 * MIB


@dataclass
class Engine:
    """A Docker engine on a socket: lists ranks, takes kills, and looks what was on the disk by then."""

    path: Path
    state: Path
    ranks: list[dict[str, object]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    recorded: list[bool] = field(default_factory=list)

    def answer(self, request: str) -> bytes:
        method, path = request.split(" ")[:2]
        self.asked.append(f"{method} {unquote(path)}")
        if method == "GET":
            body = json.dumps(self.ranks).encode()
            return b"HTTP/1.0 200 OK\r\n\r\n" + body
        self.recorded.append((self.state / "trip.json").exists())
        return b"HTTP/1.0 204 No Content\r\n\r\n"

    @property
    def kills(self) -> list[str]:
        return [line for line in self.asked if line.startswith("POST")]


@contextmanager
def engine(folder: Path) -> Iterator[Engine]:
    """A running one with one rank."""
    made = Engine(folder / "docker.sock", folder / "state")
    made.ranks = [{"Id": "abc", "Names": ["/x-r0"], "Labels": {"sparkop.hash": "v1:77"}}]
    made.state.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(made.path))
        listener.listen()
        listener.settimeout(10)

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(made.answer(connection.recv(65536).decode()))

        threading.Thread(target=serve, daemon=True).start()
        yield made


def guard_of(made: Engine, free: int, **options: object) -> Guard:
    """A guard that always reads ``free`` bytes."""
    return Guard(
        "x", FLOOR, SOFT, 1.0, Docker(str(made.path), timeout=2.0), str(made.state), available=lambda: free
    )


def log_of(made: Engine) -> str:
    return (made.state / "memguard.log").read_text(encoding="utf-8")


def test_above_the_floor_nothing_is_killed(tmp_path: Path) -> None:
    """And it sleeps its whole interval while memory is far."""
    with engine(tmp_path) as made:
        assert guard_of(made, 64 * 1024 * MIB).tick() == 1.0
        assert made.kills == []
        assert not (made.state / "trip.json").exists()


def test_the_nearer_the_floor_the_sooner_the_next_look(tmp_path: Path) -> None:
    """At 6 GB/s of growth, a second of sleep would be six gigabytes too late."""
    with engine(tmp_path) as made:
        pauses = [guard_of(made, FLOOR + free * MIB).tick() for free in (20_000, 4_000, 500, 0)]
    assert pauses == sorted(pauses, reverse=True)
    assert pauses[0] == 1.0
    assert pauses[-1] == memguard.FASTEST
    assert pauses[1] <= 4_000 * MIB / memguard.FALL_RATE


def test_the_record_is_on_the_disk_before_the_kill(tmp_path: Path) -> None:
    """What is done next may be the last thing that this machine does."""
    with engine(tmp_path) as made:
        guard_of(made, 900 * MIB).tick()
    assert made.kills == ["POST /containers/abc/kill?signal=KILL"]
    assert made.recorded == [True]
    record = json.loads((made.state / "trip.json").read_bytes())
    assert record["hashes"] == ["v1:77"]
    assert (record["available"], record["floor"]) == (900 * MIB, FLOOR)
    assert "killed x-r0" in log_of(made)


def test_it_asks_for_the_ranks_of_its_cluster_only(tmp_path: Path) -> None:
    """Not for another cluster's, and not for itself."""
    with engine(tmp_path) as made:
        guard_of(made, 900 * MIB).tick()
    filters = json.loads(made.asked[0].partition("filters=")[2])
    assert filters["label"] == ["sparkop.cluster=x", "sparkop.role=rank"]


def test_with_nothing_to_kill_there_is_no_record(tmp_path: Path) -> None:
    """A foreign program took the memory: told, but the ranks' numbers are not to blame."""
    with engine(tmp_path) as made:
        made.ranks = []
        guard_of(made, 900 * MIB).tick()
    assert not (made.state / "trip.json").exists()
    assert "no rank runs" in log_of(made)


def test_a_disk_that_can_not_be_written_does_not_stop_the_kill(tmp_path: Path) -> None:
    """Killing matters more than telling."""
    with engine(tmp_path) as made:
        guard = guard_of(made, 900 * MIB)
        guard.state = str(made.state / "gone")
        guard.tick()
    assert len(made.kills) == 1


def test_the_ranks_are_known_beforehand(tmp_path: Path) -> None:
    """When Docker does not answer the list any more, those that were known are killed."""
    with engine(tmp_path) as made:
        readings = iter([20 * 1024 * MIB, 900 * MIB])
        guard = guard_of(made, 0)
        guard.available = lambda: next(readings)
        guard.tick()

        def silent(_cluster: str) -> list[dict[str, object]]:
            raise OSError("timed out")

        guard.docker.ranks = silent  # type: ignore[assignment,method-assign]
        guard.tick()
    assert len(made.kills) == 1


def test_an_engine_that_is_away_is_told_and_survived(tmp_path: Path) -> None:
    """It goes on; the engine may come back."""
    state = tmp_path / "state"
    state.mkdir()
    guard = Guard(
        "x", FLOOR, SOFT, 1.0, Docker(str(tmp_path / "none")), str(state), available=lambda: SOFT * 2
    )
    assert guard.tick() == 1.0
    assert "Docker does not answer" in (state / "memguard.log").read_text(encoding="utf-8")


def test_under_the_soft_floor_the_largest_processes_are_logged_once_in_a_while(tmp_path: Path) -> None:
    """So that a human sees afterwards who took it; not every tick."""
    with engine(tmp_path) as made:
        guard = guard_of(made, 5 * 1024 * MIB)
        guard.told = -1e9
        for _ in range(5):
            guard.tick()
    assert log_of(made).count("under the soft floor") == 1


def test_mem_available_is_read_from_meminfo(tmp_path: Path) -> None:
    """In bytes; a file without it is an error, not zero: zero would kill."""
    path = tmp_path / "meminfo"
    path.write_text("MemTotal:       127600748 kB\nMemFree: 1 kB\nMemAvailable:   112503684 kB\n")
    assert memguard.mem_available(str(path)) == 112503684 * 1024
    path.write_text("MemTotal:       127600748 kB\n")
    with pytest.raises(ValueError, match="MemAvailable"):
        memguard.mem_available(str(path))


def test_the_log_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old one is kept once."""
    monkeypatch.setattr(memguard, "LOG_LIMIT", 200)
    with engine(tmp_path) as made:
        guard = guard_of(made, 0)
        for number in range(20):
            guard.log(f"line {number}")
    assert (made.state / "memguard.log").stat().st_size < 400
    assert (made.state / "memguard.log.1").exists()
