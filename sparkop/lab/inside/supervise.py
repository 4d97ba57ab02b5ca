"""Keep services running, as systemd does with Restart=always and RestartSec=1.

Usage: supervise.py CONFIG. CONFIG is JSON: "run" (folder for pid files and holds), "logs" (folder),
"services": name -> argv. A file hold-NAME in "run" keeps a service down once it has ended.
On SIGTERM the services get SIGTERM, last one first, and this program ends with them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

RESTART_SECONDS = 1.0
STOP_SECONDS = 20.0

_stopping = threading.Event()


class Service(threading.Thread):
    """One program that is started again when it ends."""

    def __init__(self, name: str, argv: list[str], run: Path, logs: Path) -> None:
        super().__init__(daemon=True)
        self.service, self.argv = name, argv
        self.hold, self.pid_file, self.log = run / f"hold-{name}", run / f"{name}.pid", logs / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        while not _stopping.is_set():
            if self.hold.exists():
                time.sleep(0.1)
                continue
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    self.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
                self.pid_file.write_text(f"{self.process.pid}\n")
                code = self.process.wait()
                self.pid_file.unlink(missing_ok=True)
                log.write(f"-- {self.service} ended with {code}\n".encode())
            _stopping.wait(RESTART_SECONDS)

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()


def main() -> None:
    config = json.loads(Path(sys.argv[1]).read_text())
    run, logs = Path(config["run"]), Path(config["logs"])
    for folder in (run, logs):
        folder.mkdir(parents=True, exist_ok=True)
    for leftover in (*run.glob("*.pid"), Path("/var/run/docker.pid")):  # of the boot before
        leftover.unlink(missing_ok=True)
    services = [Service(name, argv, run, logs) for name, argv in config["services"].items()]

    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        _stopping.set()
        for service in reversed(services):
            service.stop()
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    for service in services:
        service.start()
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
