"""Nothing that the guard meets ends one of its threads: it tells it once, goes on, and still kills."""

from __future__ import annotations

import errno
import itertools
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest

from sparkop.node.memguard import main, reading, record, watcher
from sparkop.node.memguard.engine import Docker
from sparkop.node.memguard.reading import Memory
from tests.labkit import until
from tests.node.memguard_docker import Engine, docker
from tests.node.memguard_world import GIB, MIB, World, line


class _Over(BaseException):
    """Ends the thread, which nothing else does."""


class Guarding:
    """A guard whose threads run; the loop that reads memory is turned by the test. A context manager: no
    thread writes on beside other tests."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        self.folder = folder
        self.engine = engine
        self.world = World(line((0, 64 * GIB)))
        self.trip = record.TripFile(str(folder))
        self.watching = watcher.Watcher(
            "x", self.world.guard, Docker(str(engine.path), timeout=0.5), self.trip, str(folder)
        )
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.world.guard.write = self.trip.write
        self.world.guard.tick()

    def start(self) -> None:
        self.trip.prepare()
        self.trip.start()
        self.thread.start()

    def _watch(self) -> None:
        with suppress(_Over):
            self.watching._run()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.watching.turn = raising(_Over())  # type: ignore[method-assign]
        self.thread.join(10)
        assert not self.thread.is_alive()

    def log(self) -> str:
        path = self.folder / "memguard.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def still_kills(self) -> bool:
        """A rank that starts only now is found; under the floor it is killed, and the record is published."""
        self.engine.says = None
        self.engine.ranks = [{"Id": "late", "Names": ["/x-late"], "Labels": {"sparkop.hash": "v1:9"}}]
        until(lambda: [rank.name for rank in self.world.guard.ranks] == ["x-late"])
        self.world.trace = line((0, 900 * MIB))
        self.world.guard.tick()
        until(lambda: any("/containers/late/kill" in asked for asked in self.engine.kills))
        until(lambda: self.told().get("containers") == ["x-late"])
        return True

    def told(self) -> dict[str, Any]:
        """The record, as it is published."""
        path = self.folder / "trip.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each turn does everything."""
    for name, seconds in (("LOOK_EVERY", 0.05), ("BEAT_EVERY", 0.05), ("REST", 0.02), ("AFTER", 0.05)):
        monkeypatch.setattr(watcher, name, seconds)


ANSWERS = [
    b"",
    b"HTTP/1.0",
    b"HTTP/1.0 many OK\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n\r\n\xff",
    b"HTTP/1.0 200 OK\r\n\r\n[3]",
    b'HTTP/1.0 200 OK\r\n\r\n[{"Id": "a", "Names": 3}]',
    b'HTTP/1.0 200 OK\r\n\r\n[{"Id": "a", "Labels": [1]}]',
]


@pytest.mark.parametrize("says", ANSWERS)
@pytest.mark.usefixtures("quick")
def test_no_answer_of_docker_makes_the_guard_blind(tmp_path: Path, says: bytes) -> None:
    """The engine ended with a request open; something else sits on its socket."""
    with docker(tmp_path) as engine, Guarding(tmp_path, engine) as guarding:
        engine.says = says
        guarding.start()
        until(lambda: "Docker does not answer" in guarding.log())
        assert guarding.still_kills()
        until(lambda: "Docker answers again" in guarding.log())
        assert guarding.log().count("Docker does not answer") == 1


@pytest.mark.parametrize("says", ANSWERS[:3])
def test_an_answer_without_a_status_is_an_engine_that_does_not_answer(tmp_path: Path, says: bytes) -> None:
    """At its source: whoever asks the engine expects an OSError."""
    with docker(tmp_path) as engine:
        engine.says = says
        with pytest.raises(OSError, match="no status"):
            Docker(str(engine.path)).kill("abc")


def raising(error: BaseException) -> Callable[..., Any]:
    def part(*_: Any, **__: Any) -> Any:
        raise error

    return part


@pytest.mark.parametrize(
    "content", ["Node 0, zone\n", "Node 0, zone   Normal " + "many " * 11, "\x00\xff", "-" * 99]
)
def test_free_blocks_that_can_not_be_understood_are_not_known(tmp_path: Path, content: str) -> None:
    """The kernel's format is not ours."""
    (tmp_path / "buddyinfo").write_text(content, encoding="latin-1")
    assert reading.large_blocks(str(tmp_path)) in (None, 0)


@pytest.mark.usefixtures("quick")
def test_a_heartbeat_is_written_whatever_proc_is_like(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process can be listed, and the counts of free blocks are words: the rest is known, also after the
    kill."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "buddyinfo").write_text("Node 0, zone   Normal " + "many " * 11)
    real = reading.large_blocks
    monkeypatch.setattr(reading, "large_blocks", lambda: real(str(tmp_path / "proc")))
    monkeypatch.setattr(reading.os, "listdir", raising(OSError(errno.EMFILE, "Too many open files")))
    with docker(tmp_path) as engine, Guarding(tmp_path, engine) as guarding:
        guarding.start()
        until((tmp_path / "memguard.json").exists)
        assert json.loads((tmp_path / "memguard.json").read_text())["large_blocks"] is None
        assert guarding.still_kills()
        until(lambda: "after" in guarding.told())


PARTS = ("_retry", "_speak", "look", "heartbeat", "_tell_after", "_published", "_kill", "turn", "carry_out")
ONCE_A_KILL = ("_tell_after", "_published", "_kill")


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.usefixtures("quick")
def test_a_turn_that_raises_is_told_once_and_the_next_one_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Whatever part it is and whatever it raises."""
    times: list[str] = []
    mended: list[bool] = []
    monkeypatch.setattr(record, "RETRY_EVERY", 0.0)
    with docker(tmp_path) as engine, Guarding(tmp_path, engine) as guarding:
        real = getattr(guarding.watching, part)

        def at_first(*given: Any) -> Any:
            if mended:
                return real(*given)
            times.append(part)
            raise RuntimeError("nobody has foreseen this")

        monkeypatch.setattr(guarding.watching, part, at_first)
        guarding.start()
        rank = guarding.world.rank("x-r0")
        guarding.world.trace = line((0, 900 * MIB))
        guarding.world.guard.tick()
        assert len(rank.killed) == 1, "no thread but the guard's own is needed for that"
        until(lambda: len(times) > (0 if part in ONCE_A_KILL else 3))
        until(lambda: "nobody has foreseen this" in guarding.log())
        assert guarding.log().count("nobody has foreseen this") == 1
        mended.append(True)
        assert guarding.still_kills()


@pytest.mark.usefixtures("quick")
def test_the_thread_of_the_record_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that did not come to the disk, for whatever reason, is no reason for the next not to."""
    monkeypatch.setattr(record, "RETRY_EVERY", 0.05)
    with docker(tmp_path) as engine, Guarding(tmp_path, engine) as guarding:
        guarding.start()
        with monkeypatch.context() as broken:
            broken.setattr(record.os, "fdatasync", raising(RuntimeError("")))
            rank = guarding.world.rank("x-r0")
            guarding.world.trace = line((0, 900 * MIB))
            guarding.world.guard.tick()
            assert len(rank.killed) == 1
            until(lambda: "the record of the trip: RuntimeError" in guarding.log())
        until(lambda: guarding.told() != {})
        assert guarding.still_kills()


def test_a_record_that_can_not_be_made_does_not_keep_the_guard_from_killing() -> None:
    """The kill follows, and the log says why there is no record."""
    world = World(line((0, 900 * MIB)))
    world.guard.write = raising(RuntimeError("no record"))
    rank = world.rank()
    world.guard.tick()
    assert len(rank.killed) == 1
    assert any("no record" in text for text in world.said())


def test_the_release_of_page_cache_goes_on(tmp_path: Path) -> None:
    """Told once, in the guard's log."""
    world = World(line((0, GIB)))
    releaser = watcher.Releaser(world.guard, str(tmp_path), 128 * GIB)
    for _ in range(3):
        assert not releaser.troubles.attempt("release", raising(TypeError("odd")))
    assert len(world.said()) == 1


@pytest.mark.parametrize("error", [OSError("gone"), ValueError("none"), OverflowError("large"), TypeError()])
def test_a_reading_that_fails_kills_nothing_is_told_once_a_minute_and_made_again_at_once(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Where memory is is not known meanwhile: it may be near the floor."""
    world = World(line((0, 64 * GIB)))
    rank = world.rank()
    world.guard.tick()
    good = world.guard.read
    readings = itertools.chain([error] * 100, itertools.repeat(None))

    def read() -> Memory:
        found = next(readings)
        if found is not None:
            raise found
        return good()

    class Over(BaseException):
        """Ends the loop."""

    def sleep(seconds: float) -> None:
        if rank.killed:
            raise Over
        world.now += seconds

    world.guard.read = read
    world.trace = line((0, 900 * MIB))
    monkeypatch.setattr(main.time, "sleep", sleep)
    with pytest.raises(Over):
        main.guard_for_ever(world.guard)
    assert sum("could not be read" in text for text in world.said()) == 1
    assert world.now < 100 * 0.05, "a hundred bad readings are no minute without one"
