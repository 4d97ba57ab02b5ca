"""What the command line does where the channels, the encoding or the disk of this machine are poor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparkop.cli import Terminated
from sparkop.cli.apply import _memory_may_fail
from sparkop.cli.interrupts import stop_on_interrupt


def _sparkop(arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    program = "import sys; from sparkop.cli import main; main(sys.argv[1:])"
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {arguments}', "sh", sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        timeout=60,
        check=False,
    )


def test_a_closed_stdout_swallows_the_answer() -> None:
    """A cron job or `>&-`: once an AttributeError of None."""
    done = _sparkop("validate specs/lab.yaml >&-")
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"unexpected" not in done.stderr


def test_characters_that_the_terminal_lacks_are_replaced(tmp_path: Path) -> None:
    """A Latin-1 or ASCII terminal gets the answer, not a UnicodeEncodeError."""
    spec = tmp_path / "ü.yaml"
    spec.write_text("{}")
    done = _sparkop(f"validate {spec}", PYTHONIOENCODING="ascii")
    assert done.returncode == 65
    assert b"the spec needs the keys" in done.stdout + done.stderr


def test_a_full_disk_is_not_a_fault_of_sparkop() -> None:
    done = _sparkop("schema >/dev/full")
    assert done.returncode == 1
    assert b"No space left on device" in done.stderr
    assert b"fault of sparkop" not in done.stderr


def test_memory_of_this_machine_may_fail(capsys: pytest.CaptureFixture[str]) -> None:
    """A read-only home must not stop an apply, and must not be silent."""
    with _memory_may_fail("later commands need the spec named"):
        raise PermissionError(13, "Permission denied", "/home/u/.local/state/sparkop")
    told = capsys.readouterr().err
    assert "/home/u/.local/state/sparkop" in told
    assert "later commands need the spec named" in told


@contextmanager
def _disposition(number: int, action: signal.Handlers) -> Iterator[None]:
    before = signal.signal(number, action)
    try:
        yield
    finally:
        signal.signal(number, before)


def test_a_lost_terminal_stops_as_sigterm_does() -> None:
    """SIGHUP of a dropped SSH session would kill at once and leave the lease held."""
    with _disposition(signal.SIGHUP, signal.SIG_DFL), pytest.raises(Terminated), stop_on_interrupt():
        os.kill(os.getpid(), signal.SIGHUP)


def test_nohup_stays_in_force() -> None:
    with _disposition(signal.SIGHUP, signal.SIG_IGN), stop_on_interrupt() as stop:
        os.kill(os.getpid(), signal.SIGHUP)
        assert not stop.is_set()
