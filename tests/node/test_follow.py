"""A rank's log outlives its container: kept by a process that ends with it."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sparkop.node import follow, units, wire

DAY = "2026-11-30T17:00:%02d.%09dZ"


def living(pid: int) -> int | None:
    """The moment of its start while it lives."""
    try:
        found = units.process(pid)
    except OSError:
        return None
    return found["started"] if units.state_of(found) != "exited" else None


def line(second: int, text: str) -> bytes:
    return f"{DAY % (second, 0)} {text}\n".encode()


class Docker:
    """A Docker engine with one container's log; ``more`` wakes those who follow it."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "docker.sock")
        self.lines: list[bytes] = []
        self.status = "running"
        self.refuses = ""
        self.cut = False
        """Break off what is followed, once."""
        self.asked: list[str] = []
        self.changed = threading.Condition()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def say(self, *lines: bytes, status: str = "", cut: bool = False) -> None:
        with self.changed:
            self.lines += lines
            self.status = status or self.status
            self.cut = cut
            self.changed.notify_all()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(BrokenPipeError):
            path = connection.recv(65536).decode().split(" ")[1]
            self.asked.append(path)
            if self.status == "gone":
                connection.sendall(b'HTTP/1.0 404 Not Found\r\n\r\n{"message": "No such container"}')
            elif path.endswith("/json"):
                body = json.dumps({"State": {"Status": self.status}})
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + body.encode())
            elif self.refuses:
                body = json.dumps({"message": self.refuses})
                connection.sendall(b"HTTP/1.0 501 Not Implemented\r\n\r\n" + body.encode())
            else:
                connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: application/octet-stream\r\n\r\n")
                if "follow=1" in path:
                    self._follow(connection)

    def _follow(self, connection: socket.socket) -> None:
        sent = 0
        while True:
            with self.changed:
                while len(self.lines) == sent and self.status == "running" and not self.cut:
                    self.changed.wait(20)
                if self.cut:
                    self.cut = False
                    return
                parts, ended = self.lines[sent:], self.status != "running"
            for part in parts:
                connection.sendall(b"\1\0\0\0" + struct.pack(">I", len(part)) + part)
            sent += len(parts)
            if ended:
                return


@pytest.fixture
def docker(tmp_path: Path) -> Iterator[Docker]:
    made = Docker(tmp_path)
    yield made
    record = follow.read(str(tmp_path / "state"))
    if follow.lives(record):
        os.kill(record["pid"], 9)
    made.say(status="gone")
    made.listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "AGAIN", 0.02)


def start(docker: Docker, folder: Path, identity: str = "abc") -> dict[str, Any]:
    container = {"Id": identity, "Name": "/x-r0", "Config": {}}
    engine = wire.Engine(docker.path)
    return follow.start(str(folder / "state"), engine, container, "logs/rank-0.log", hidden)


def hidden(part: bytes) -> bytes:
    return part.replace(b"secret", b"****")


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


def text(state: Path, name: str = "rank-0.log") -> bytes:
    path = state / "logs" / name
    return path.read_bytes() if path.exists() else b""


def pid(state: Path) -> int:
    return int(json.loads((state / "logs.json").read_text())["pid"])


def test_lines_are_kept_for_the_owner_only_until_the_container_ends(docker: Docker, state: Path) -> None:
    docker.say(line(1, "loading"))
    assert start(docker, state.parent) == {"changed": True}
    until(lambda: b"loading" in text(state))
    docker.say(line(2, "serving, api_key=secret"))
    until(lambda: b"serving" in text(state))
    assert stat.S_IMODE((state / "logs" / "rank-0.log").stat().st_mode) == 0o600
    assert stat.S_IMODE((state / "logs").stat().st_mode) == 0o700
    follower = pid(state)
    assert living(follower) is not None
    docker.say(line(3, "bye"), status="exited")
    until(lambda: living(follower) is None)
    assert text(state) == b"-- x-r0 abc --\n" + hidden(b"".join(docker.lines))
    assert b"secret" not in text(state)


def test_a_folder_in_place_of_the_log_is_told_at_the_start(docker: Docker, state: Path) -> None:
    """A follower that can't write has nobody to say so to: it was started again at every apply."""
    (state / "logs" / "rank-0.log").mkdir(parents=True)
    with pytest.raises(IsADirectoryError) as told:
        start(docker, state.parent)
    assert wire.describe(told.value) == f"IsADirectoryError: Is a directory: {state}/logs/rank-0.log"
    assert not follow.read(str(state))


def test_a_second_start_finds_the_first(docker: Docker, state: Path) -> None:
    start(docker, state.parent)
    first = pid(state)
    assert start(docker, state.parent) == {"changed": False}
    assert pid(state) == first


def test_one_that_was_killed_goes_on_where_it_was(docker: Docker, state: Path) -> None:
    """No line twice, none lost: a person reads the file to find what happened."""
    docker.say(line(1, "one"), line(2, "two"))
    start(docker, state.parent)
    until(lambda: b"two" in text(state))
    killed = pid(state)
    os.kill(killed, 9)
    until(lambda: living(killed) is None)
    docker.say(line(3, "three"))
    assert start(docker, state.parent) == {"changed": True}
    until(lambda: b"three" in text(state))
    assert text(state) == b"-- x-r0 abc --\n" + b"".join(docker.lines)


def test_one_that_was_paused_goes_on_and_ends_with_its_container(docker: Docker, state: Path) -> None:
    """Paused it keeps nothing, is taken for alive, and outlives the container that it follows."""
    start(docker, state.parent)
    process, began = pid(state), living(pid(state))
    os.kill(process, signal.SIGSTOP)
    until(lambda: units.state_of(units.process(process)) == "paused")
    docker.say(line(1, "one"))
    assert start(docker, state.parent) == {"changed": True}
    assert (pid(state), living(process)) == (process, began)
    until(lambda: b"one" in text(state))
    assert start(docker, state.parent) == {"changed": False}
    os.kill(process, signal.SIGSTOP)
    until(lambda: units.state_of(units.process(process)) == "paused")
    docker.say(status="exited")
    assert follow.wake(follow.read(str(state)))
    until(lambda: living(process) is None)
    assert not follow.wake(follow.read(str(state)))


def test_an_engine_that_breaks_off_is_asked_again(docker: Docker, state: Path) -> None:
    docker.say(line(1, "one"))
    start(docker, state.parent)
    until(lambda: b"one" in text(state))
    docker.say(cut=True)
    until(lambda: not docker.cut)
    docker.say(line(2, "two"))
    until(lambda: b"two" in text(state))
    assert text(state).count(b"one") == 1
    assert any("since=1796058001.000000000" in path for path in docker.asked)


def test_the_next_container_goes_into_the_same_file(docker: Docker, state: Path) -> None:
    docker.say(line(1, "one"))
    start(docker, state.parent)
    first = pid(state)
    docker.say(status="exited")
    until(lambda: living(first) is None)
    docker.say(status="running")
    start(docker, state.parent, "def")
    until(lambda: text(state).count(b"one") == 2)
    assert b"-- x-r0 def --\n" in text(state)


def test_an_engine_without_logs_is_no_drift_for_ever(docker: Docker, state: Path) -> None:
    docker.refuses = "configured logging driver does not support reading"
    assert "does not support reading" in start(docker, state.parent)["unreadable"]
    assert start(docker, state.parent) == {"changed": False}


def test_files_are_bounded_and_cut_at_lines(tmp_path: Path) -> None:
    kept = follow.Kept(str(tmp_path / "r.log"), largest=1000, older=2)
    for number in range(200):
        kept.write(b"%04d half" % number)
        kept.write(b" and half\n")
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["r.log", "r.log.1", "r.log.2"]
    assert all(file.stat().st_size < 1100 for file in files)
    lines = b"".join(file.read_bytes() for file in reversed(files)).splitlines()
    assert lines[-1] == b"0199 half and half"
    assert all(each.endswith(b"half and half") for each in lines)


def test_a_full_disk_loses_lines_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = follow.Kept(str(tmp_path / "r.log"))
    with monkeypatch.context() as full:

        def refuse(*_arguments: object) -> int:
            raise OSError(28, "No space left on device")

        full.setattr(os, "write", refuse)
        kept.write(b"lost\n")
    kept.write(b"kept\n")
    assert (tmp_path / "r.log").read_bytes() == b"kept\n"


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"")
    (tmp_path / "r.log").symlink_to(tmp_path / "other")
    follow.Kept(str(tmp_path / "r.log")).write(b"x\n")
    assert (tmp_path / "other").read_bytes() == b""
