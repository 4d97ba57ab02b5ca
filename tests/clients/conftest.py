"""Real Pi of both lines, from npm, in the user's cache folder: the one for Node 20, the one for Node 22."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import npm
from tests.clients.recorder import Recorder, recorder

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk-test-7f3a-sentinel"
NODE_22 = "node@22.23.3"
OLD, NEW = "0.74.2", "1.6.0"
SPEC = """\
apiVersion: sparkop/v1
kind: ClusterSpec
name: sparks
nodes: [{name: one, ssh: someone@one.invalid}]
weights: {repository: some/model, path: ~/models/it}
image: {reference: registry.invalid/engine@sha256:%s}
engine: {kind: vllm, context: 131072}
api: {servedNames: [the-model]}
clients:
  provider: our-sparks
  keyEnvironment: OUR_KEY
  outputCap: remove
  input: [text, image]
  reasoningEffort: {low: low, medium: high, high: high, max: max}
""" % ("0" * 64)


@dataclass
class Machine:
    """A user's machine: a home, Pi on PATH, a spec, and no key unless a test gives one."""

    home: Path
    path: str
    url: str
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def agent(self) -> Path:
        return self.home / ".pi" / "agent"

    def run(
        self, *argv: str, key: str | None = None, check: int | None = 0, timeout: float = 180
    ) -> subprocess.CompletedProcess[str]:
        """Run a program at the user's shell, with no terminal; ``check`` is the exit code it must have."""
        done = subprocess.run(
            argv,
            env=self.variables | ({"OUR_KEY": key} if key else {}),
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert check is None or done.returncode == check, f"{argv} exited {done.returncode}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def connect(self, *words: str, check: int = 0) -> subprocess.CompletedProcess[str]:
        """``sparkop connect pi spec.yaml --base-url <the recorder>``."""
        argv = [sys.executable, "-m", "sparkop", "connect", "pi", "spec.yaml", "--base-url", self.url, *words]
        return self.run(*argv, check=check)

    def pi(
        self, *words: str, key: str | None = KEY, check: int | None = 0
    ) -> subprocess.CompletedProcess[str]:
        """``pi -p``, offline but for the server."""
        return self.run("pi", "-p", *words, key=key, check=check)

    @property
    def variables(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
        own = {"HOME": str(self.home), "PATH": self.path, "PI_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
        return kept | own | self.environment

    def tree(self) -> dict[str, Any]:
        """Every file below Pi's folder: content, or the target of a link."""
        return {
            str(path.relative_to(self.home)): path.readlink() if path.is_symlink() else path.read_bytes()
            for path in sorted((self.home / ".pi").rglob("*"))
            if path.is_symlink() or path.is_file()
        }


@pytest.fixture
def server() -> Iterator[Recorder]:
    with recorder() as found:
        yield found


@pytest.fixture(scope="session")
def programs() -> dict[str, str]:
    """Version of Pi -> PATH with it and its Node. When absent, sparkop itself installs them."""
    nodes = {OLD: _node_20(), NEW: str(npm.package(NODE_22) / "node" / "bin")}
    system = os.pathsep.join(("/usr/local/bin", "/usr/bin", "/bin"))
    paths = {}
    for version, node in nodes.items():
        with npm.alone(f"pi@{version}") as folder:
            paths[version] = os.pathsep.join((str(folder / "bin"), node, system))
            if not (folder / "done").exists():
                _install(version, paths[version], folder)
                (folder / "done").touch()
    return paths


def _node_20() -> str:
    """Folder of a Node that is too old for the new Pi: the system's, else one from npm."""
    found = shutil.which("node")
    assert found is not None, "node is needed: apt-get install nodejs npm"
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    if version.startswith("v20."):
        return str(Path(found).parent)
    return str(npm.package("node@20") / "node" / "bin")


def _install(version: str, path: str, prefix: Path) -> None:
    """``sparkop connect pi`` on a machine without Pi; npm's own prefix is ``prefix``."""
    home = prefix / "home"
    home.mkdir(exist_ok=True)
    (home / "spec.yaml").write_text(SPEC)
    own = {"PATH": path, "NPM_CONFIG_PREFIX": str(prefix), "PI_CODING_AGENT_DIR": str(home / "agent")}
    done = subprocess.run(
        [sys.executable, "-m", "sparkop", "connect", "pi", "spec.yaml", "--base-url", "http://127.0.0.1:9"],
        env={**os.environ, **own, "PYTHONPATH": str(ROOT)},
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, f"Pi {version} could not be installed:\n{done.stderr}"
    assert "Pi is not installed: npm install --global @earendil-works/pi-coding-agent" in done.stderr


@pytest.fixture(params=[OLD, NEW], scope="module")
def path(request: pytest.FixtureRequest, programs: dict[str, str]) -> str:
    """PATH with one of the two lines of Pi."""
    return programs[request.param]


@pytest.fixture
def machine(path: str, server: Recorder, tmp_path: Path) -> Machine:
    """A machine with one of the two lines of Pi, beside a recorder, not connected."""
    return new_machine(path, server.url, tmp_path)


@pytest.fixture(scope="module")
def shared_server() -> Iterator[Recorder]:
    """For the tests that share a connected machine."""
    with recorder() as found:
        yield found


@pytest.fixture(scope="module")
def connected(path: str, shared_server: Recorder, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A machine that is connected already, for tests that only send."""
    machine = new_machine(path, shared_server.url, tmp_path_factory.mktemp("connected"))
    machine.connect()
    return machine


def new_machine(path: str, url: str, folder: Path) -> Machine:
    """A home with a spec in it."""
    home = folder / "home"
    home.mkdir()
    (home / "spec.yaml").write_text(SPEC)
    return Machine(home, path, url)
