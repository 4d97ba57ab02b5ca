"""What a process of its own prints: for what a process that has imported everything can't tell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def python(program: str, *arguments: str) -> list[str]:
    """The lines that a new Python printed, in the root of the project; it must end with 0."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return done.stdout.splitlines()
