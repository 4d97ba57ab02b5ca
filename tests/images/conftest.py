"""Ranks of the stand-in engine as plain processes on this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

STANDIN = Path(__file__).parents[2] / "images/lab-standin"
READY_SECONDS = 15.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(check: Callable[[], Any], seconds: float = READY_SECONDS, what: str = "") -> Any:
    """The first true result of ``check``; fails the test when there is none in time."""
    end = time.monotonic() + seconds
    while True:
        result = check()
        if result:
            return result
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.02)


@dataclass
class Reply:
    status: int
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def events(self) -> list[Any]:
        """Bodies of a stream, the closing [DONE] left out (and asserted)."""
        lines = [line[6:] for line in self.text.splitlines() if line.startswith("data: ")]
        assert lines[-1] == "[DONE]"
        return [json.loads(line) for line in lines[:-1]]


@dataclass
class Process:
    """One rank."""

    popen: subprocess.Popen[str]
    log: Path
    control: Path
    port: int = 0
    key: str | None = None

    @property
    def output(self) -> str:
        return self.log.read_text()

    def fault(self, name: str, value: str = "") -> None:
        (self.control / name).write_text(value)

    def mend(self, name: str) -> None:
        (self.control / name).unlink()

    def ask(
        self, path: str, body: dict[str, Any] | None = None, *, seconds: float = 10, key: str = ""
    ) -> Reply:
        """One request; status 0 when nothing answers. ``body`` makes it a POST."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}")
        request.data = json.dumps(body).encode() if body is not None else None
        if key or self.key:
            request.add_header("Authorization", f"Bearer {key or self.key}")
        try:
            with urllib.request.urlopen(request, timeout=seconds) as answer:
                return Reply(answer.status, answer.read().decode())
        except urllib.error.HTTPError as error:
            return Reply(error.code, error.read().decode())
        except OSError as error:
            return Reply(0, str(error))

    def chat(self, text: str, **more: Any) -> Reply:
        return self.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **more})

    def wait(self, seconds: float = 10) -> int:
        return self.popen.wait(seconds)

    def ready(self) -> Process:
        def answers() -> bool:
            assert self.popen.poll() is None, self.output
            return self.ask("/v1/models").status == 200

        eventually(answers, what=self.output)
        return self


@dataclass
class Stage:
    """Starts ranks and ends them after the test."""

    folder: Path
    started: list[Process] = field(default_factory=list)

    @property
    def model(self) -> Path:
        """A checkpoint as the stand-in wants it: a configuration and something as weights."""
        folder = self.folder / "model"
        if not folder.exists():
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 32768}))
            (folder / "model.safetensors").write_bytes(b"weights")
        return folder

    def run(
        self, arguments: list[str], *, port: int = 0, key: str | None = None, **environment: str
    ) -> Process:
        """``arguments`` after ``python3 -m``."""
        number = len(self.started)
        control, log = self.folder / f"control{number}", self.folder / f"log{number}"
        control.mkdir()
        variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(STANDIN), "PYTHONDONTWRITEBYTECODE": "1",
                     "LAB_STANDIN_CONTROL": str(control), **environment}  # fmt: skip
        with log.open("w") as output:
            popen = subprocess.Popen(
                [sys.executable, "-m", *arguments], env=variables, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
        process = Process(popen, log, control, port, key)
        self.started.append(process)
        return process

    def vllm(self, *arguments: str, port: int = 0, key: str | None = None, **environment: str) -> Process:
        port = port or free_port()
        head = ["standin", "vllm", "serve", str(self.model), "--host", "127.0.0.1", "--port", str(port)]
        return self.run([*head, *arguments], port=port, key=key, **environment)

    def vllm_pair(self, *arguments: str, **environment: str) -> tuple[Process, Process]:
        """Rank 0, ready, and rank 1."""
        master, port = free_port(), free_port()
        both = ["--tensor-parallel-size", "2", "--nnodes", "2", "--master-addr", "127.0.0.1",
                "--master-port", str(master), *arguments]  # fmt: skip
        worker = self.run(
            ["standin", "vllm", "serve", str(self.model), *both, "--node-rank", "1", "--headless"],
            **environment,
        )
        head = self.vllm(*both, "--node-rank", "0", port=port, **environment)
        return head.ready(), worker

    def sglang(self, *arguments: str, port: int = 0, key: str | None = None, **environment: str) -> Process:
        port = port or free_port()
        head = ["sglang.launch_server", "--model-path", str(self.model), "--port", str(port)]
        return self.run([*head, *arguments], port=port, key=key, **environment)

    def sglang_pair(self, *arguments: str, **environment: str) -> tuple[Process, Process]:
        master = free_port()
        both = ["--tp-size", "2", "--nnodes", "2", "--dist-init-addr", f"127.0.0.1:{master}", *arguments]
        worker = self.sglang(*both, "--node-rank", "1", **environment)
        head = self.sglang(*both, "--node-rank", "0", **environment)
        return head.ready(), worker


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    for process in stage.started:
        if process.popen.poll() is None:
            process.popen.send_signal(signal.SIGKILL)
        process.popen.wait()
