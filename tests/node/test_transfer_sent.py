"""What a node has handed on does not stay in its page cache: on a Spark that is the model's memory."""

from __future__ import annotations

import ctypes
import fcntl
import http.client
import json
import mmap
import os
import subprocess
import sys
import tempfile
import termios
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from sparkop.node.transfer import serve
from sparkop.node.transfer.ledger import write_whole
from sparkop.node.transfer.sent import Sent
from tests.node.hub_standin import Hub, running
from tests.node.transfer_world import Node

MIB = 1 << 20
SIZE = 24 * MIB
NAME = "model.safetensors"


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder on a disk: in memory (tmpfs) nothing can be let go."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def node(disk: Path) -> Node:
    """One that has a file, verified, and offers it."""
    with running(Hub("org/name", "c" * 40, {NAME: os.urandom(SIZE)})) as hub:
        node = Node(disk / "node")
        job = node.job(hub.job_files(NAME), hub)
        assert node.run(job)["phase"] == "done"
    offer = {key: job.get(key) for key in ("directory", "hub", "files")}
    write_whole(str(node.state / "transfer" / "share.json"), json.dumps(offer).encode())
    return node


def resident(path: Path, start: int = 0, end: int = SIZE) -> int:
    """Bytes of a range of a file that are in the page cache (mincore)."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as view:
        pages = (len(view) + mmap.PAGESIZE - 1) // mmap.PAGESIZE
        found = (ctypes.c_ubyte * pages)()
        held = (ctypes.c_char * len(view)).from_buffer(view)
        address = ctypes.c_void_p(ctypes.addressof(held))
        assert ctypes.CDLL(None, use_errno=True).mincore(address, ctypes.c_size_t(len(view)), found) == 0
        del held
    return sum(each & 1 for each in found[start // mmap.PAGESIZE : end // mmap.PAGESIZE]) * mmap.PAGESIZE


def wait(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_was_sent_is_let_go_behind_the_window(disk: Path) -> None:
    path = disk / NAME
    path.write_bytes(os.urandom(SIZE))
    os.sync()
    assert resident(path) == SIZE
    sent = Sent(window=8 * MIB)
    for start in range(0, 16 * MIB, 4 * MIB):
        sent.add(str(path), start, start + 4 * MIB)
    assert resident(path, 0, 8 * MIB) == 0
    assert resident(path, 8 * MIB) == 16 * MIB, "who follows closely finds it, and what comes next"
    sent.let_go()
    assert resident(path) == 0
    path.unlink()
    sent.add(str(path), 0, SIZE)
    sent.let_go()


def over_ssh(node: Node) -> list[str]:
    """What sshd runs there for a peer."""
    program = f"from sparkop.node.transfer.serve import answer_on_stdio; answer_on_stdio({str(node.state)!r})"
    return [sys.executable, "-c", program]


def asked(size: int) -> bytes:
    """A request for the first bytes of the file."""
    return f"GET /{NAME} HTTP/1.1\r\nRange: bytes=0-{size - 1}\r\nConnection: close\r\n\r\n".encode()


def unread(pipe: IO[bytes]) -> int:
    """Bytes that wait in it."""
    waiting = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, waiting)
    return waiting[0]


def test_a_connection_over_ssh_leaves_nothing_in_memory(node: Node) -> None:
    content = (node.weights / NAME).read_bytes()
    done = subprocess.run(over_ssh(node), input=asked(SIZE), capture_output=True, check=True)
    assert done.stdout.endswith(content[-MIB:])
    assert resident(node.weights / NAME) == 0


def test_what_the_reader_is_late_to_take_is_let_go_too(node: Node) -> None:
    """The last megabyte still lies in the pipe, and holds its pages there, when all is written."""
    half = MIB // 2
    content = (node.weights / NAME).read_bytes()
    with subprocess.Popen(over_ssh(node), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(asked(half))
        program.stdin.close()
        pipe = program.stdout
        wait(lambda: unread(pipe) > half)
        assert pipe.read().endswith(content[half - MIB // 4 : half])
    assert resident(node.weights / NAME) == 0


@pytest.mark.parametrize("end", ["quiet", "stop"])
def test_a_share_lets_go_when_nobody_asks_any_more(
    node: Node, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "QUIET", 0.0 if end == "quiet" else 1e9)
    server = serve.bind(str(node.state), "127.0.0.1", "t")
    stop = threading.Event()
    serving = threading.Thread(target=serve.serve_until_idle, args=(server, stop))
    serving.start()
    try:
        asking = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
        headers = {"Range": f"bytes=0-{SIZE - 1}", "Authorization": "Bearer t"}
        asking.request("GET", f"/{NAME}", headers=headers)
        assert len(asking.getresponse().read()) == SIZE
        asking.close()
        if end == "stop":
            wait(lambda: server.RequestHandlerClass.sent._bytes == SIZE)  # type: ignore[attr-defined]
            assert resident(node.weights / NAME) > 0
            stop.set()
            serving.join()
        wait(lambda: resident(node.weights / NAME) == 0)
    finally:
        stop.set()
        serving.join()
        server.server_close()
