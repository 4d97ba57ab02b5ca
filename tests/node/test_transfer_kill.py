"""The transfer as the processes that a node runs: detached, killed at any moment, found again."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkop.resources.transfer_program import program
from tests.node.hub_standin import Hub, running, sha256
from tests.node.transfer_world import Node

MIB = 1 << 20
DATA = random.Random(3).randbytes(96 * MIB + 7)
STREAMS = 2
KILLS = 20
BOUND = 64 * MIB
"""Bytes that one stream may receive again after a kill."""


@pytest.fixture
def hub() -> Iterator[Hub]:
    files = {"a.bin": DATA, "b.bin": DATA[: 5 * MIB], "c.json": b"{}"}
    with running(Hub("org/name", "c" * 40, files)) as hub:
        yield hub


class Program:
    """The packed program, as a node's Python runs it."""

    def __init__(self, node: Node) -> None:
        self.state = node.state
        self.path = self.state / "transfer" / "transfer.pyz"
        self.path.write_bytes(program())

    def __call__(self, command: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(self.path), command, str(self.state)],
            input=json.dumps(request or {}).encode(),
            stdout=subprocess.PIPE,
            timeout=60,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def pid(self) -> int:
        """Of the process that works on the job; it writes its number once it is on its own."""
        deadline = time.monotonic() + 20
        while not (text := (self.state / "transfer" / "lock").read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        return int(text)

    def wait(self, seconds: float = 60.0) -> dict[str, Any]:
        """Until no process works on the job; the last status."""
        deadline = time.monotonic() + seconds
        while True:
            answer = self("status")
            if not answer["running"]:
                status: dict[str, Any] = answer["status"]
                return status
            assert time.monotonic() < deadline, answer
            time.sleep(0.1)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def transfer(node: Node) -> Iterator[Program]:
    transfer = Program(node)
    yield transfer
    transfer("cancel")


def wait_gone(pid: int) -> None:
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_kill_9_at_random_moments_costs_little_and_ends_verified(
    node: Node, hub: Hub, transfer: Program
) -> None:
    job = node.job(hub.job_files(), hub, streams=STREAMS)
    hub.faults.rate = 40 * MIB
    dice = random.Random(int(os.environ.get("SPARKOP_SEED", "7")))
    for _ in range(KILLS):
        if not transfer("start", job)["started"]:
            raise AssertionError("the killed process still holds the lock")
        time.sleep(dice.uniform(0.0, 0.35))
        pid = transfer.pid()
        if not transfer("status")["running"]:
            break
        os.kill(pid, signal.SIGKILL)
        wait_gone(pid)
    hub.faults.rate = 0
    transfer("start", job)
    status = transfer.wait()
    assert status["phase"] == "done", status["error"]
    for name, data in hub.files.items():
        assert (node.weights / name).read_bytes() == data
    assert node.leftovers() == []
    size = sum(map(len, hub.files.values()))
    assert hub.sent - size <= KILLS * STREAMS * BOUND
    again = (hub.sent - size) / KILLS / STREAMS / MIB
    print(f"sent again after {KILLS} kills: {again:.1f} MiB a stream and kill")


def test_one_kill_costs_at_most_the_bound_per_stream(node: Node, hub: Hub, transfer: Program) -> None:
    job = node.job(hub.job_files("a.bin"), hub, streams=STREAMS)
    hub.faults.rate = 30 * MIB
    transfer("start", job)
    deadline = time.monotonic() + 60
    while hub.sent < 70 * MIB:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    pid = transfer.pid()
    os.kill(pid, signal.SIGKILL)
    wait_gone(pid)
    hub.faults.rate = 0
    transfer("start", job)
    assert transfer.wait()["phase"] == "done"
    assert hub.sent - len(DATA) <= STREAMS * BOUND
    assert (node.weights / "a.bin").read_bytes() == DATA


@pytest.mark.parametrize(
    "name", ["transfer.json", "transfer/job.json", "transfer/lock", "transfer/transfer.log"]
)
def test_a_folder_in_place_of_what_a_job_tells_by_is_told_at_its_start(
    node: Node, hub: Hub, name: str
) -> None:
    """The job itself could not say so."""
    program = Program(node)
    (node.state / name).mkdir()
    answer = program("start", node.job(hub.job_files("c.json"), hub))
    assert answer["error"]["message"] == f"{node.state}/{name} is a folder, it should be a file"


def test_it_outlives_its_starter_is_found_again_and_can_be_cancelled(
    node: Node, hub: Hub, transfer: Program
) -> None:
    job = node.job(hub.job_files("a.bin"), hub, streams=1, rate=4 * MIB)
    assert transfer("start", job)["started"]
    again = transfer("start", job)
    assert not again["started"]
    assert again["id"] == transfer("status")["status"]["id"]
    pid = transfer.pid()
    assert os.getsid(pid) not in (os.getsid(0), 0)
    assert transfer("cancel") == {"cancelled": True}
    status = transfer("status")
    assert (status["running"], status["status"]["phase"]) == (False, "cancelled")
    assert transfer("cancel") == {"cancelled": False}


def test_no_secret_is_in_argv_environment_or_state(node: Node, hub: Hub, transfer: Program) -> None:
    hub.token = "hf_sentinel"
    job = node.job(hub.job_files("a.bin"), hub, rate=8 * MIB, secrets={"hub": "hf_sentinel"})
    transfer("start", job)
    pid = transfer.pid()
    for name in ("cmdline", "environ"):
        assert b"hf_sentinel" not in Path(f"/proc/{pid}/{name}").read_bytes()
    for path in node.state.rglob("*"):
        assert not path.is_file() or b"hf_sentinel" not in path.read_bytes(), path
    transfer("cancel")


def test_the_packed_program_is_the_same_bytes_in_every_process() -> None:
    code = (
        "import hashlib; from sparkop.resources.transfer_program import program;"
        "print(hashlib.sha256(program()).hexdigest())"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.strip() == sha256(program())


def test_the_number_of_a_killed_process_is_forgotten(node: Node, hub: Hub, transfer: Program) -> None:
    """It may be another program's by now: cancel must not signal it."""
    with subprocess.Popen(["sleep", "600"]) as bystander:
        lock = node.state / "transfer" / "lock"
        lock.write_text(str(bystander.pid))
        hub.faults.rate = MIB
        with lock.open() as held:
            assert not transfer("status")["running"]
            fcntl.flock(held, fcntl.LOCK_EX)  # a holder that has not written its number yet
            releasing = threading.Timer(1.0, lambda: fcntl.flock(held, fcntl.LOCK_UN))
            releasing.start()
            transfer("cancel")
            releasing.join()
        assert bystander.poll() is None
        bystander.kill()
