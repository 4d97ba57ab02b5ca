"""A node on this machine: the real programs of ``sparkop.node``, in processes and a home of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparkop.hosts import programs
from sparkop.hosts.base import Fence


class LocalNode:
    """As much of ``Host`` as the weights need. ``home`` takes the place of the user's."""

    def __init__(self, name: str, home: Path, cluster: str = "test") -> None:
        self.name = name
        self.home = home
        self.state = home / ".sparkop" / cluster
        self.fence = Fence(cluster, "tester", 1, str(self.state))
        self.acts: list[tuple[str, Mapping[str, Any]]] = []
        home.mkdir(parents=True, exist_ok=True)
        self._run(
            programs.act_program(), {"action": "lease.acquire", "arguments": {}, "fence": vars(self.fence)}
        )

    def _run(self, program: programs.Program, request: Mapping[str, Any]) -> dict[str, Any]:
        nonce = programs.new_nonce()
        data = json.dumps({"version": 1, "nonce": nonce, **request}).encode()
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", program.statement],
            input=program.source + data,
            capture_output=True,
            env={**os.environ, "HOME": str(self.home)},
            timeout=120,
        )
        return programs.parse_answer(done.stdout, nonce, node=self.name, said=done.stderr)

    def act(
        self, action: str, arguments: Mapping[str, Any], fence: Fence, *, timeout: float = 60.0
    ) -> dict[str, Any]:
        self.acts.append((action, arguments))
        answer = self._run(
            programs.act_program(), {"action": action, "arguments": arguments, "fence": vars(fence)}
        )
        programs.raise_act_error(answer, node=self.name)
        result: dict[str, Any] = answer["result"]
        return result

    def probe(self, request: Mapping[str, Any], *, timeout: float = 30.0) -> dict[str, Any]:
        return self._run(programs.probe_program(), request)

    def read_file(self, path: str) -> bytes | None:
        try:
            return Path(path).read_bytes()
        except FileNotFoundError:
            return None
