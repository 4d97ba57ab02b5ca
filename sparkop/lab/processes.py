"""Processes of the lab: found again by pid and start time, ended for certain."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from sparkop.lab.layout import LabError

POLL_SECONDS = 0.01


def run(argv: Sequence[str], *, stdin: str | None = None, timeout: float = 120) -> str:
    """Run a command and return what it printed.

    Raises LabError with the command's own words when it fails or takes longer than ``timeout`` seconds.
    """
    try:
        done = finish(argv, stdin, timeout)
    except FileNotFoundError:
        raise LabError(f"{argv[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise LabError(f"{' '.join(argv)}: no end after {timeout:g} s") from None
    if done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip() or "no output")[-2000:]
        raise LabError(f"{' '.join(argv)}: exit {done.returncode}: {words}")
    return done.stdout


def finish(argv: Sequence[str], stdin: str | None, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, whatever that is. Raises OSError, or TimeoutExpired after ``timeout`` s."""
    return subprocess.run(
        list(argv),
        input=stdin,
        stdin=None if stdin is not None else subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
    )


def start_time(pid: int) -> str | None:
    """Start of a process in clock ticks since boot (field 22 of /proc/PID/stat); None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def remember(file: Path, pid: int) -> None:
    """Write pid and start time, so that a recycled pid is not taken for the process."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{pid} {start_time(pid)}\n")


def recall(file: Path) -> int | None:
    """Pid that ``remember`` wrote, when that very process still lives."""
    try:
        pid, _, start = file.read_text().strip().partition(" ")
        return int(pid) if start and start_time(int(pid)) == start else None
    except (OSError, ValueError):
        return None


def kill(pids: Iterable[int], number: signal.Signals = signal.SIGKILL) -> None:
    """Signal each process; one that is gone already is passed over."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def wait_for(ready: Callable[[], bool], seconds: float, what: str) -> None:
    """Poll until ``ready``. Raises LabError, naming ``what``, after ``seconds``."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise LabError(f"{what}: not within {seconds:g} s")
        time.sleep(POLL_SECONDS)


def with_environment(entry: str) -> list[int]:
    """Processes, other than this one and its parents, whose environment has ``entry`` (``NAME=value``)."""
    wanted = entry.encode()
    family = _family()
    found = []
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit() or int(directory.name) in family:
            continue
        try:
            if wanted in (directory / "environ").read_bytes().split(b"\0"):
                found.append(int(directory.name))
        except OSError:
            continue
    return found


def network_of(pid: int) -> str:
    """Which network namespace a process is in. Raises OSError when it is gone."""
    return str(Path(f"/proc/{pid}/ns/net").readlink())


def in_network(network: str) -> list[int]:
    """Processes, other than this one and its parents, that are in a network namespace."""
    family = _family()
    found = []
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit() or int(directory.name) in family:
            continue
        try:
            if network_of(int(directory.name)) == network:
                found.append(int(directory.name))
        except OSError:
            continue
    return found


def _family() -> set[int]:
    pid = os.getpid()
    family = set()
    while pid > 0 and pid not in family:
        family.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        except OSError:
            break
    return family
