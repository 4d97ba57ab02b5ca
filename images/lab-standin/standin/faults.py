"""Faults on demand: a file of a control folder, or a word of LAB_STANDIN_FAULTS, names each.

| name | value (the file's text, or after `=`) | what happens |
| --- | --- | --- |
| die | exit code, default 0 | the process ends at once, without a word |
| wedge | | health and model list stay green, requests run and yield nothing, on whichever rank it is set |
| degenerate | | every answer is token 0 (`!`) until its token limit |
| prefill | | no token comes, but the counter of prompt tokens moves: a prompt that takes very long |
| loading | | requests are answered with 503, as by an engine that is not ready |
| broken | | requests are answered with 500 |
| slow | seconds a token, default 0.5 | |
| start-slowly | seconds, default 60 | the weights load that long; counted from the process's start |
| fail-start | exit code, default 1 | loading the weights fails |

A file works from the moment it is there, and no longer than it is there.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

CONTROL_FOLDERS = ("/control", "/run/lab/standin")
DEFAULTS = {
    "die": 0.0,
    "wedge": 1.0,
    "degenerate": 1.0,
    "prefill": 1.0,
    "loading": 1.0,
    "broken": 1.0,
    "slow": 0.5,
    "start-slowly": 60.0,
    "fail-start": 1.0,
}
POLL_SECONDS = 0.1


class Faults:
    """What this process is told to do wrong, read anew at each question."""

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        environment = dict(os.environ) if environment is None else environment
        named = environment.get("LAB_STANDIN_CONTROL")
        self._folders = [Path(folder) for folder in ((named,) if named else CONTROL_FOLDERS)]
        self._fixed: dict[str, float] = {}
        for word in environment.get("LAB_STANDIN_FAULTS", "").replace(",", " ").split():
            name, _, value = word.partition("=")
            if name not in DEFAULTS:
                raise ValueError(f"LAB_STANDIN_FAULTS: unknown fault {name!r}; known: {', '.join(DEFAULTS)}")
            self._fixed[name] = float(value) if value else DEFAULTS[name]

    def value(self, name: str) -> float | None:
        """The fault's value, or None when it is not set."""
        for folder in self._folders:
            try:
                text = (folder / name).read_text(encoding="utf-8").strip()
            except OSError:
                continue
            try:
                return float(text) if text else DEFAULTS[name]
            except ValueError:
                return DEFAULTS[name]
        return self._fixed.get(name)

    def on(self, name: str) -> bool:
        return self.value(name) is not None

    def watch_for_death(self) -> None:
        """End the process, from a thread, as soon as `die` is set."""

        def watch() -> None:
            while True:
                code = self.value("die")
                if code is not None:
                    os._exit(int(code))
                time.sleep(POLL_SECONDS)

        threading.Thread(target=watch, name="die", daemon=True).start()
