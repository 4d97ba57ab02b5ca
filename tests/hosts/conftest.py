"""Hosts of every kind for the tests of this folder."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from sparkop.lab.lab import Lab
from tests.hosts.services import running_api
from tests.hosts.sshd import Sshd, running_sshd
from tests.labkit import inside


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a path short enough for unix sockets."""
    folder = Path(tempfile.mkdtemp(prefix="sparkop-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def start_sshd(short_folder: Path) -> Iterator[Callable[[Sequence[str]], Sshd]]:
    """Starts servers with extra settings."""
    with ExitStack() as stack:
        count = iter(range(100))

        def start(settings: Sequence[str] = ()) -> Sshd:
            return stack.enter_context(running_sshd(short_folder / f"sshd{next(count)}", settings))

        yield start


@pytest.fixture(scope="session")
def shared_sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A server with usual settings that no test changes."""
    with running_sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def sshd(start_sshd: Callable[[Sequence[str]], Sshd]) -> Sshd:
    """A server with usual settings."""
    return start_sshd(())


@pytest.fixture
def api() -> Iterator[int]:
    """Port of a small HTTP service."""
    with running_api() as port:
        yield port


@pytest.fixture
def inside_lab(lab: Lab) -> Iterator[Lab]:
    """The lab, with this test's thread, and what it starts, inside."""
    with inside(lab):
        yield lab
