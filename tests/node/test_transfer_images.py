"""An image counts only when its engine has it whole, whatever the way does to its bytes."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from sparkop.errors import UnreachableError
from sparkop.node.transfer import images, main
from sparkop.node.transfer.files import parse_job
from sparkop.node.transfer.images import ImageRun
from sparkop.node.transfer.serve import write_chunk
from sparkop.resources.transfer_program import failure

DATA = os.urandom(3 << 20)
TAG = "registry.example/engine:sparkop-1"


def identity(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Quiet(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass

    def say(self, status: int, document: Any = None) -> None:
        text = b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if text:
            self.wfile.write(text)


class Engine(Quiet):
    """As much of Docker as loads an image: its id is the hash of what it was given."""

    present: dict[str, bytes] = {}  # noqa: RUF012 - a fresh one for each engine
    tags: dict[str, str] = {}  # noqa: RUF012
    refuses = ""

    def do_GET(self) -> None:
        name = self.path.removeprefix("/images/").removesuffix("/json")
        if self.path == "/info":
            self.say(200, {"DockerRootDir": "/"})
        elif name in self.present:
            tags = [tag for tag, tagged in self.tags.items() if tagged == name]
            self.say(200, {"Id": name, "RepoTags": tags})
        else:
            self.say(404, {"message": "no such image"})

    def do_DELETE(self) -> None:
        self.present.pop(self.path.removeprefix("/images/"), None)
        self.say(200, [])

    def do_POST(self) -> None:
        if self.path.startswith("/images/load"):
            body = self.chunks()
            if body is None:
                self.close_connection = True
                return
            if self.refuses:
                self.say(200, {"error": self.refuses})
                return
            self.present[identity(body)] = body
            self.say(200, {"stream": f"Loaded image ID: {identity(body)}\n"})
        else:
            asked = parse_qs(urlsplit(self.path).query)
            self.tags[f"{asked['repo'][0]}:{asked['tag'][0]}"] = self.path.split("/")[2]
            self.say(201)

    def chunks(self) -> bytes | None:
        body = b""
        while True:
            line = self.rfile.readline().strip()
            if not line:
                return None  # broken off
            count = int(line, 16)
            part = self.rfile.read(count)
            self.rfile.readline()
            if not count:
                return body
            body += part


class Unix(ThreadingHTTPServer):
    address_family = socket.AF_UNIX
    daemon_threads = True

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)

    def get_request(self) -> tuple[Any, Any]:
        connection, _ = self.socket.accept()
        return connection, ("docker", 0)


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Engine]]:
    path = str(tmp_path / "docker.sock")
    monkeypatch.setattr(images, "DOCKER_SOCKET", path)
    found = type("Own", (Engine,), {"present": {}, "tags": {}})
    with serving(Unix(path, found)):  # type: ignore[arg-type]
        yield found


@contextmanager
def peer(*tries: tuple[bytes, bool]) -> Iterator[str]:
    """A node that sends these bytes, one try after the other; False: it goes away before the end is told."""
    left = list(tries)

    class Peer(Quiet):
        def do_GET(self) -> None:
            if not left:
                return self.say(404)
            data, whole = left.pop(0)
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for start in range(0, len(data), 1 << 20):
                write_chunk(self.wfile.write, memoryview(data)[start : start + (1 << 20)])
            if whole:
                write_chunk(self.wfile.write, memoryview(b""))
            self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Peer)
    with serving(server):
        yield f"http://127.0.0.1:{server.server_address[1]}/"


def job_from(base: str) -> dict[str, Any]:
    """It wants DATA."""
    return {
        "kind": "image",
        "directory": "",
        "files": [{"path": "registry.example/engine", "size": len(DATA), "sha256": identity(DATA)[7:]}],
        "tag": TAG,
        "sources": [{"kind": "peer", "base": base}],
    }


def run(folder: Path, base: str) -> dict[str, Any]:
    """The last status of that job."""
    (folder / "transfer").mkdir(exist_ok=True)
    ImageRun(str(folder), parse_job(job_from(base)), threading.Event()).run()
    document: dict[str, Any] = json.loads((folder / "image.json").read_text())
    return document


def test_a_whole_image_gets_its_name(tmp_path: Path, engine: type[Engine]) -> None:
    with peer((DATA, True)) as base:
        status = run(tmp_path, base)
    assert status["phase"] == "done"
    assert status["bytes"]["received"] == len(DATA)
    assert engine.tags == {TAG: identity(DATA)}


@pytest.mark.parametrize(
    ("listens", "told"), [(False, "sudo systemctl start docker"), (True, "sudo systemctl restart docker")]
)
def test_an_engine_that_does_not_answer_is_named_with_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listens: bool, told: str
) -> None:
    """A copy to a node whose Docker was stopped ended with "No such file", and to see to the permissions."""
    monkeypatch.setattr(images, "DOCKER_SOCKET", str(tmp_path / "docker.sock"))
    monkeypatch.setattr(images.Engine.__init__, "__defaults__", (0.2,))
    with socket.socket(socket.AF_UNIX) as engine:
        if listens:
            engine.bind(str(tmp_path / "docker.sock"))
            engine.listen()
        error = failure(run(tmp_path, "http://127.0.0.1:9/")["error"], "spark-2")
    assert isinstance(error, UnreachableError)
    assert error.node == "spark-2"
    assert str(error.remedy).startswith(told)


def test_half_an_image_is_never_loaded_and_it_comes_again(tmp_path: Path, engine: type[Engine]) -> None:
    """The sender is killed in the middle: the engine must not take what came for all."""
    with peer((DATA[: 2 << 20], False), (DATA, True)) as base:
        assert run(tmp_path, base)["phase"] == "done"
    assert list(engine.present) == [identity(DATA)]


def test_other_bytes_never_count(tmp_path: Path, engine: type[Engine]) -> None:
    """They get no name, and do not stay."""
    with peer((b"!" + DATA[1:], True)) as base:
        status = run(tmp_path, base)
    assert (status["phase"], status["error"]["kind"]) == ("failed", "content")
    assert engine.tags == {}
    assert engine.present == {}


def test_an_image_that_is_here_is_only_named(tmp_path: Path, engine: type[Engine]) -> None:
    """A run was killed between the load and the name: nothing is sent again."""
    engine.present[identity(DATA)] = DATA
    with peer() as base:
        assert run(tmp_path, base)["phase"] == "done"
    assert engine.tags == {TAG: identity(DATA)}


@pytest.mark.parametrize("name", ["", TAG, "somebody/engine:1"])
def test_an_image_without_its_name_goes_when_all_is_withdrawn(
    name: str, tmp_path: Path, engine: type[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run was killed between the load and the name: destroy did not know of what it had brought."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "transfer").mkdir()
    monkeypatch.setattr(main, "_detach", lambda _state, _log, lock, _work: lock.close())  # killed at once
    main._start(str(tmp_path), job_from("http://peer/"))
    engine.present[identity(DATA)] = DATA
    if name:
        engine.tags[name] = identity(DATA)
    main._withdraw(str(tmp_path), {"prefix": "sparkop:test"})
    assert bool(engine.present) == bool(name)


def test_a_full_disk_of_the_engine_is_told_with_what_to_do(tmp_path: Path, engine: type[Engine]) -> None:
    engine.refuses = "write /var/lib/docker/tmp/x: no space left on device"
    with peer((DATA, True)) as base:
        status = run(tmp_path, base)
    assert (status["error"]["kind"], "prune" in status["error"]["remedy"]) == ("space", True)


def test_what_is_not_offered_ends_the_job(tmp_path: Path, engine: type[Engine]) -> None:
    with peer() as base:
        assert run(tmp_path, base)["error"]["kind"] == "missing"
    assert engine.tags == {}
