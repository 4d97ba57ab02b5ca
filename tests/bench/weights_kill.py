"""What is sent again after a kill -9 in the middle of a download; part of `python -m tests.bench weights`."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

MIB = 1 << 20
SHARE = 0.6
"""Of the file that has been sent when the kill comes."""
BOUND = 64 * MIB
"""Bytes that one stream of sparkop may get again."""
STREAMS = 8
PATIENCE = 120.0


class Server(Protocol):
    """The hub of the benchmark."""

    def sent(self) -> int:
        """Bytes of files that it has sent in all."""


def stopped(
    command: list[str], environment: dict[str, str] | None = None
) -> Callable[[], Callable[[], None]]:
    """A program that is started by a command and dies with its process group."""

    def start() -> Callable[[], None]:
        process = subprocess.Popen(command, env=environment, start_new_session=True)

        def kill() -> None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

        return kill

    return start


def sent_again(
    server: Server, size: int, start: Callable[[], Callable[[], None]], finish: Callable[[], object]
) -> int:
    """Bytes beyond the file's own: start, kill in the middle, run to the end."""
    before = server.sent()
    kill = start()
    deadline = time.monotonic() + PATIENCE
    while server.sent() - before < SHARE * size:
        if time.monotonic() > deadline:
            raise RuntimeError("the download does not move")
        time.sleep(0.01)
    kill()
    finish()
    return server.sent() - before - size


def report_again(results: dict[str, int], size: int) -> bool:
    """Print the table; False when sparkop's figure is over its bound."""
    print(f"\nsent again after kill -9 at {SHARE:.0%} of {size // MIB} MiB")
    for name, count in results.items():
        print(f"  {name:32} {count / MIB:9.1f} MiB")
    kept = results["sparkop, checked"] <= STREAMS * BOUND
    told = "ok" if kept else "MISSED"
    print(f"  sparkop, a stream: {results['sparkop, checked'] / STREAMS / MIB:.1f} MiB (bar 64) {told}")
    return kept


def lock_holder(state: Path) -> int:
    """Process id of the transfer that works for a state folder."""
    return int((state / "transfer" / "lock").read_text())
