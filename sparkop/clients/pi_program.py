"""Pi itself: found, installed with npm, asked whether it takes a file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from sparkop.clients.pi_files import MODELS
from sparkop.errors import BlockedError
from sparkop.records import dataclass

PACKAGE = "@earendil-works/pi-coding-agent"
LAST_FOR_NODE_20 = "0.74.2"
"""Later versions end at import below Node 22.19; npm only warns."""
OLDEST_NODE, CURRENT_NODE = (20, 6, 0), (22, 19, 0)
_VERSION = re.compile(r"^v?(\d+)\.(\d+)\.(\d+)", re.MULTILINE)

Version = tuple[int, int, int]


@dataclass(frozen=True)
class Pi:
    """The program and its version."""

    path: str
    version: str


@dataclass(frozen=True)
class Installation:
    """How Pi would be installed. ``prefix``: None for npm's own, which this user can write."""

    npm: str
    package: str
    prefix: Path | None
    node: str

    @property
    def words(self) -> str:
        """One line for people."""
        where = f" below {self.prefix}" if self.prefix else ""
        return f"npm install --global {self.package}{where} (about 200 MB, for Node {self.node})"


def find_pi(path: str | None = None) -> Pi | None:
    """Pi on PATH; None when it is not there. Raises BlockedError for another program of that name."""
    found = path or shutil.which("pi")
    if found is None:
        return None
    done = _run([found, "--version"])
    text = done.stdout + done.stderr  # 0.74.2 says it on stderr
    version = _VERSION.search(text)
    if done.returncode or version is None:
        raise BlockedError(
            f"{found} does not work, or is another program",
            detail="\n".join(text.strip().splitlines()[-3:]) or None,
            cause="Pi from 0.75 on needs Node 22.19 or newer",
            remedy=f"put a newer Node first on PATH, or: npm install --global {PACKAGE}@{LAST_FOR_NODE_20}",
        )
    return Pi(found, version[0])


def plan_installation() -> Installation:
    """Decide version and place. Raises BlockedError without Node and npm."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise BlockedError(
            "Pi is not installed, and it needs Node.js with npm, which are not here",
            remedy="install Node.js 22.19 or newer (20.6 does for an older Pi), then run this again",
        )
    found = _VERSION.search(_run([node, "--version"]).stdout)
    version: Version = (int(found[1]), int(found[2]), int(found[3])) if found else (0, 0, 0)
    text = ".".join(map(str, version))
    if version < OLDEST_NODE:
        raise BlockedError(
            f"Pi needs Node.js 20.6 or newer, and {node} is {text}", remedy="install Node.js 22.19 or newer"
        )
    package = PACKAGE if version >= CURRENT_NODE else f"{PACKAGE}@{LAST_FOR_NODE_20}"
    own = Path(_run([npm, "config", "get", "prefix"]).stdout.strip() or "/usr")
    prefix = None if _writable(own) else Path.home() / ".local"
    return Installation(npm, package, prefix, text)


def install(plan: Installation, say: Callable[[str], None]) -> Pi:
    """Install Pi and look whether it starts. Raises BlockedError with npm's last lines."""
    place = ["--prefix", str(plan.prefix)] if plan.prefix else []
    done = _run(
        [plan.npm, "install", "--global", *place, "--no-audit", "--no-fund", plan.package], seconds=900
    )
    if done.returncode:
        raise BlockedError(
            f"npm could not install {plan.package}",
            detail="\n".join((done.stdout + done.stderr).strip().splitlines()[-8:]),
            remedy="run it by hand: " + plan.words.partition(" (")[0],
        )
    prefix = plan.prefix or Path(_run([plan.npm, "config", "get", "prefix"]).stdout.strip())
    path = prefix / "bin" / "pi"
    if shutil.which("pi") is None:
        say(f"add {path.parent} to PATH: pi lies there")
    pi = find_pi(str(path))
    if pi is None:
        raise BlockedError(f"npm has installed {plan.package}, but {path} is not there")
    return pi


def refuses(pi: Pi, models: bytes, full_name: str) -> str | None:
    """What Pi has against this models.json; None when it lists the model. Asks it in an empty agent folder,
    so that nothing of the user's is written. Needs no network and no key."""
    with tempfile.TemporaryDirectory(prefix="sparkop-pi-") as name:
        (Path(name) / MODELS).write_bytes(models)
        provider, _, model = full_name.partition("/")
        done = _run([pi.path, "--list-models", provider], agent=name)
    text = done.stdout + done.stderr
    errors = text.partition("errors loading models.json:")[2]
    if errors:
        kept = errors.partition("File:")[0].strip()
        return " ".join(kept.split())
    listed = any(line.split()[:2] == [provider, model] for line in text.splitlines())
    return None if done.returncode == 0 and listed else "it does not list the model"


def _writable(prefix: Path) -> bool:
    """Whether npm can install globally there as this user."""
    for part in ("lib/node_modules", "bin"):
        folder = prefix / part
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        if not (folder.is_dir() and os.access(folder, os.W_OK)):
            return False
    return True


def _run(
    argv: list[str], *, agent: str | None = None, seconds: float = 60
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PI_OFFLINE": "1"}
    if agent is not None:
        environment["PI_CODING_AGENT_DIR"] = agent
    try:
        return subprocess.run(
            argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            cwd=agent,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BlockedError(f"{argv[0]} does not run: {error}") from None
