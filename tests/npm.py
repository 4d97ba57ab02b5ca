"""npm packages that tests run, installed once below the user's cache folder.

Needs Node.js 20 or newer and npm (Debian: apt-get install nodejs npm).
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

CACHE = Path(platformdirs.user_cache_dir("sparkop")) / "tests"


@contextmanager
def alone(name: str) -> Iterator[Path]:
    """The cache's folder of this name; another worker that would install into it waits meanwhile."""
    for program in ("node", "npm"):
        assert shutil.which(program), f"{program} is needed: apt-get install nodejs npm"
    folder = CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def package(name: str, *options: str) -> Path:
    """Install it when it is not there yet whole; its ``node_modules`` folder."""
    with alone(name.replace("/", "-").removeprefix("@")) as folder:
        if not (folder / "done").exists():
            done = subprocess.run(
                ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", *options, name],
                capture_output=True,
                text=True,
                timeout=240,
            )
            assert done.returncode == 0, f"npm could not install {name}:\n{done.stderr}"
            (folder / "done").touch()
    return folder / "node_modules"
