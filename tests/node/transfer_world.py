"""Runs the transfer program inside the test's process: fast, and with its faults near at hand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkop.node.transfer import http
from sparkop.node.transfer.files import parse_job
from sparkop.node.transfer.run import Run
from tests.node.hub_standin import Hub

STALL = 1.0
"""Seconds that stand for `http.TIMEOUT` in tests."""


@dataclass
class Node:
    """A folder for weights and one for state."""

    folder: Path

    @property
    def weights(self) -> Path:
        return self.folder / "weights"

    @property
    def state(self) -> Path:
        path = self.folder / "state"
        (path / "transfer").mkdir(parents=True, exist_ok=True)
        return path

    def job(self, files: Sequence[dict[str, Any]], hub: Hub | None, **more: Any) -> dict[str, Any]:
        sources = [{"kind": "hub", "base": hub.url}] if hub else []
        job = {"kind": "fetch", "directory": str(self.weights), "files": list(files), "sources": sources}
        return {**job, "patience": 5.0, **more}

    def run(self, job: dict[str, Any], stop: threading.Event | None = None) -> dict[str, Any]:
        """The last status."""
        Run(str(self.state), parse_job(job), stop or threading.Event()).run()
        return self.status()

    def status(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.state / "transfer.json").read_text())
        return document

    def wait(self, reached: Callable[[dict[str, Any]], bool]) -> None:
        """Until the status says so."""
        deadline = time.monotonic() + 60
        while not ((self.state / "transfer.json").exists() and reached(self.status())):
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def ledger(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.state / "ledger" / "weights.json").read_text())["files"]
        return document

    def leftovers(self) -> list[str]:
        return [path.name for path in self.weights.rglob(".sparkop-*")]


@contextmanager
def quick_stalls() -> Iterator[None]:
    before, http.TIMEOUT = http.TIMEOUT, STALL
    try:
        yield
    finally:
        http.TIMEOUT = before
