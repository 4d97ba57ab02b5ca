"""State that is damaged, places that are shared, disks that do not take it, clocks that jump."""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkop.node.transfer.place import Place
from tests.node.hub_standin import Hub, running
from tests.node.transfer_world import Node

MIB = 1 << 20
DATA = random.Random(9).randbytes(24 * MIB + 3)
FILES = {"config.json": b"{}", "model.bin": DATA}


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running(Hub("org/name", "c" * 40, dict(FILES))) as hub:
        yield hub


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "n")


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    "ledger",
    [
        "",
        '{"version": 1, "files": {"/x": {"dev',
        "\x00\x00garbage",
        "[1]",
        '{"version": 1, "files": [1]}',
        '{"version": 1, "files": {"PATH": "other"}}',
        '{"version": 2, "files": {"PATH": ENTRY}}',
    ],
    ids=["empty", "torn", "garbage", "a list", "files in a list", "an entry of text", "newer"],
)
def test_a_damaged_ledger_costs_a_hash_and_no_download(node: Node, hub: Hub, ledger: str) -> None:
    job = node.job(hub.job_files("model.bin"), hub)
    node.run(job)
    path = str((node.weights / "model.bin").resolve())
    text = ledger.replace("PATH", path).replace("ENTRY", json.dumps(node.ledger()[path]))
    (node.state / "ledger" / "weights.json").write_text(text)
    hub.log.clear()
    status = node.run(job)
    assert (status["phase"], status["bytes"]["hashed"], hub.log) == ("done", len(DATA), [])
    assert node.run(job)["bytes"]["hashed"] == 0, "it is whole again"


def test_two_clusters_fetch_into_one_folder_and_neither_harms_the_other(
    node: Node, hub: Hub, tmp_path: Path
) -> None:
    """Their states and locks differ; the staging file is one."""
    hub.faults.rate = 8 * MIB
    job = node.job(hub.job_files("model.bin"), hub)
    first = threading.Thread(target=node.run, args=(job,))
    first.start()
    wait_for(lambda: list(node.weights.glob(".sparkop-*.blocks")))
    other = Node(tmp_path / "other")
    status = other.run(job)
    assert (status["phase"], status["error"]["kind"]) == ("failed", "busy")
    assert "run the same command again" in status["error"]["remedy"]
    assert other.run({**job, "files": hub.job_files("config.json")})["phase"] == "done"
    assert node.leftovers(), "what the first one works on was not tidied away"
    first.join()
    assert node.status()["phase"] == "done"
    assert (node.weights / "model.bin").read_bytes() == DATA
    status = other.run(job)
    assert (status["phase"], status["bytes"]["received"]) == ("done", 0)


def test_the_last_word_is_told_on_a_full_disk_too(
    node: Node, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State and weights share a disk as a rule: who follows must not take a full one for a vanished job."""
    real, full, left = open, threading.Event(), 16 * MIB
    written = os.pwrite

    def pwrite(handle: int, data: Any, offset: int) -> int:
        nonlocal left
        left -= len(data)
        if left < 0:
            full.set()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written(handle, data, offset)

    def opened(path: Any, mode: str = "r", *more: Any, **named: Any) -> Any:
        if full.is_set() and "w" in mode:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return real(path, mode, *more, **named)

    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr("builtins.open", opened)
    status = node.run(node.job(hub.job_files("model.bin"), hub))
    assert (status["phase"], status["error"]["kind"]) == ("failed", "space")
    assert "free space" in status["error"]["remedy"]
    assert 0 < status["bytes"]["staged"] <= 16 * MIB, "who frees room is asked only for what is still to come"


def test_a_read_only_file_system_is_called_that(
    node: Node, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.weights.mkdir(parents=True)
    real = os.statvfs

    def statvfs(path: str) -> os.statvfs_result:
        figures = real(path)
        return os.statvfs_result([*figures[:8], figures[8] | os.ST_RDONLY, *figures[9:]])

    monkeypatch.setattr(os, "statvfs", statvfs)
    status = node.run(node.job(hub.job_files(), hub))
    assert status["error"]["kind"] == "place"
    assert "mounted read-only" in status["error"]["message"]
    assert "dmesg" in status["error"]["remedy"]
    assert hub.log == []


def test_complete_weights_on_a_read_only_file_system_are_verified_and_left_as_they_are(
    node: Node, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A share that is mounted read-only serves as well: nothing has to be written to it."""
    assert node.run(node.job(hub.job_files(), hub))["phase"] == "done"
    (node.state / "ledger" / "weights.json").unlink()
    (node.weights / ".sparkop-0123456789abcdef0123.partial").write_bytes(b"of an unfinished run")
    real, before = os.statvfs, _names_and_dates(node.weights)
    hub.log.clear()

    def statvfs(path: str) -> os.statvfs_result:
        figures = real(path)
        return os.statvfs_result([*figures[:8], figures[8] | os.ST_RDONLY, *figures[9:]])

    monkeypatch.setattr(os, "statvfs", statvfs)
    status = node.run(node.job(hub.job_files(), hub))
    assert (status["phase"], status["error"]) == ("done", None)
    assert len(node.ledger()) == len(hub.job_files()), "hashed, each of them"
    assert _names_and_dates(node.weights) == before
    assert hub.log == []

    path = node.weights / "model.bin"
    path.write_bytes(b"!" + path.read_bytes()[1:])
    status = node.run(node.job(hub.job_files(), hub))
    assert status["error"]["kind"] == "place", "what is wrong can't be mended there"
    assert "mounted read-only" in status["error"]["message"]


def _names_and_dates(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in (folder, *folder.rglob("*"))}


def test_a_folder_of_another_user_is_named_with_what_to_do(
    node: Node, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    status = node.run(node.job(hub.job_files(), hub))
    assert status["error"]["kind"] == "place"
    assert f"belongs to user {os.getuid()}" in status["error"]["message"]
    assert "chown" in status["error"]["remedy"]


def test_too_few_inodes_are_told_before_anything_is_fetched(
    node: Node, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Place, "free", lambda _: (1 << 50, 2))
    status = node.run(node.job(hub.job_files(), hub))
    assert status["error"]["kind"] == "space"
    assert "inodes" in status["error"]["message"]
    assert hub.log == []


def test_a_clock_that_jumps_harms_nothing(node: Node, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits and rates go by a clock that does not jump; the ledger compares times, it does not order them."""
    real = time.time
    jumps = itertools.cycle([0.0, 1e9, -1e9, 3600.0])
    monkeypatch.setattr(time, "time", lambda: real() + next(jumps))
    hub.faults.statuses = [(503, "0")]
    job = node.job(hub.job_files(), hub)
    assert node.run(job)["phase"] == "done"
    status = node.run(job)
    assert (status["phase"], status["bytes"]["hashed"]) == ("done", 0)
