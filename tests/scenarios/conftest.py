"""One lab with engines for all scenarios, and the command line as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sparkop.lab.faults import FAULTS, Target
from sparkop.lab.lab import Lab
from tests.labkit import temporary_lab

ROOT = Path(__file__).resolve().parents[2]
STANDIN = "specs/lab-standin.yaml"
VLLM = "specs/lab.yaml"


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class User:
    """Somebody at a shell outside the lab, with a state folder of their own."""

    lab: Lab
    home: Path

    def sparkop(self, *words: str, timeout: float = 240, check: int | None = None) -> Ran:
        """Run sparkop; ``check`` is the exit code that it must have."""
        done = subprocess.run(
            [sys.executable, "-m", "sparkop", *words],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        ran = Ran(done.returncode, done.stdout, done.stderr)
        if check is not None:
            assert ran.code == check, f"sparkop {' '.join(words)} exited {ran.code}\n{ran.out}\n{ran.err}"
        assert "Traceback" not in ran.err, ran.err
        return ran

    @property
    def environment(self) -> dict[str, str]:
        state = {"XDG_STATE_HOME": str(self.home / "state"), "XDG_CACHE_HOME": str(self.home / "cache")}
        return {**os.environ, **state, "SPARKOP_LAB": self.lab.name, "NO_COLOR": "1"}


@pytest.fixture(scope="session")
def engines_lab() -> Iterator[Lab]:
    """Two hosts with registry, hub and all engines; vLLM is installed first when this machine lacks it."""
    with temporary_lab(engines="all") as running:
        yield running


@pytest.fixture
def user(engines_lab: Lab, tmp_path: Path) -> Iterator[User]:
    """A user who leaves the lab without faults and containers, whatever happened."""
    yield User(engines_lab, tmp_path)
    for host in engines_lab.hosts:
        for fault in ("cable", "mgmt-cut", "freeze"):
            FAULTS[fault].mends(Target(engines_lab, host))
        if containers := host.docker("ps", "-aq").split():
            host.docker("rm", "-f", *containers)
