"""The lab for tests: one for a session, entered by the test process itself.

``from tests.labkit import lab as lab`` in a conftest.py gives the fixture. A lab whose test process was
killed is removed when its session ends, or else by the next one.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from sparkop.inside import INSIDE_VARIABLE
from sparkop.lab.down import down
from sparkop.lab.enter import CLONE_NEWNET, CLONE_NEWNS, command_inside, environment, join
from sparkop.lab.lab import Lab, LabConfig
from sparkop.lab.layout import LAB_VARIABLE, LabPaths
from sparkop.lab.processes import start_time
from sparkop.lab.up import up

CLONE_FS = 0x00000200

_libc = ctypes.CDLL(None, use_errno=True)
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Two hosts with registry and hub, without engines, for the whole session. SPARKOP_LAB names it."""
    with temporary_lab() as running:
        yield running


@contextlib.contextmanager
def temporary_lab(config: LabConfig | None = None, *, engines: str = "none") -> Iterator[Lab]:
    """A lab of this process, under a name of its own, in SPARKOP_LAB while it is there.

    engines: "none", "standin" or "all", as in ``sparkop lab up --engines``.
    """
    sweep()
    name = f"test-{os.getpid()}-{next(_numbers)}"
    before = os.environ.get(LAB_VARIABLE)
    os.environ[LAB_VARIABLE] = name
    try:
        running = up(name, config or engine_config())
        if engines != "none":
            from sparkop.lab.engines import provide

            provide(running, lambda _line: None, vllm=engines == "all")
        yield running
    finally:
        down(name)
        if before is None:
            del os.environ[LAB_VARIABLE]
        else:
            os.environ[LAB_VARIABLE] = before


def engine_config(hosts: int = 2) -> LabConfig:
    """The default lab, with the folders that engines need."""
    from sparkop.lab.engines import shares

    return LabConfig(hosts=hosts, shares=shares())


def sweep() -> None:
    """Remove labs of test processes that were killed."""
    for folder in LabPaths.of("default").state_root.glob("test-*"):
        match = re.fullmatch(r"test-(\d+)-\d+", folder.name)
        if match and start_time(int(match[1])) is None:
            down(folder.name)


def run_inside(
    lab: Lab, argv: Sequence[str], *, timeout: float = 60, check: bool = True, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program as the lab's controller, as ``sparkop lab run`` does."""
    return subprocess.run(
        command_inside(lab.name, argv),
        env=environment(lab.name),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=check,
    )


def busybox(lab: Lab, host: str) -> str:
    """Make a tiny image on a host, once; returns its name in the lab's registry. It is not pushed."""
    name = "registry.lab:5000/test/busybox"
    target = lab.host(host)
    if name not in target.docker("images", "--format", "{{.Repository}}").split():
        script = (
            "d=$(mktemp -d); mkdir -p $d/bin $d/tmp $d/proc $d/sys $d/dev $d/etc; cp /bin/busybox $d/bin/; "
            "for a in sh cat echo sleep hostname head ls mkdir rm sync; do ln -s busybox $d/bin/$a; done; "
            f"tar -C $d -c . | docker import - {name}; rm -r $d"
        )
        target.exec(["sh", "-ec", script])
    return name


def until(done: Callable[[], bool], seconds: float = 20) -> None:
    """Poll until ``done``; fails the test after ``seconds``."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, f"not within {seconds:g} s"
        time.sleep(0.02)


@contextlib.contextmanager
def inside(lab: Lab) -> Iterator[None]:
    """Bring the calling thread, and threads and processes it starts, into the lab.

    They see the lab's network, ~/.ssh and /etc/hosts. Other threads stay where they are.
    """
    own = [os.open(f"/proc/thread-self/ns/{kind}", os.O_RDONLY) for kind in ("net", "mnt")]
    before = os.environ.get(INSIDE_VARIABLE)
    try:
        join(lab.name)
        yield
    finally:
        folder = Path.cwd()
        _checked(_libc.unshare(CLONE_FS))  # setns refuses while threads share root and folder with this one
        for descriptor, kind in zip(own, (CLONE_NEWNET, CLONE_NEWNS), strict=True):
            _checked(_libc.setns(descriptor, kind))
        os.chdir(folder)
        for descriptor in own:
            os.close(descriptor)
        os.environ.pop(INSIDE_VARIABLE, None)
        if before is not None:
            os.environ[INSIDE_VARIABLE] = before


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
