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

from sparkop.cli.apply import _memory_may_fail
from sparkop.cli.interrupts import stop_on_interrupt
from sparkop.cli.root import Terminated

SPEC = "specs/deepseek-v4.1-flash.yaml"


def _sparkop(arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    program = "import sys; from sparkop.cli import main; main(sys.argv[1:])"
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {arguments}', "sh", sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("channel", ["", "2>&-"], ids=["terminal", "closed"])
@pytest.mark.parametrize("start", ["from sparkop.cli import main; main()", "import sparkop.__main__"])
@pytest.mark.parametrize(
    "module",
    ["sparkop.cli.root", "click", "sparkop.views.channels", "sparkop.cli.options", "sparkop.cli.doctor",
     "pydantic", "sparkop.reconcile.doctor", "sparkop.views.doctor"],
)  # fmt: skip
def test_an_interrupt_while_modules_are_imported_is_told_in_words(
    module: str, start: str, channel: str
) -> None:
    """A cold start imports for half a second: Ctrl-C in it printed a traceback through the libraries."""
    program = f"""
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv = ["sparkop", "doctor", {SPEC!r}, "--facts", "tests/data/facts/two-sparks.json"]
{start}
"""
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {channel}', "sh", sys.executable, "-c", program],
        capture_output=True, text=True, timeout=60, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    told = "" if channel else "sparkop: interrupted; run the same command again to carry on."
    assert (done.returncode, done.stderr.strip()) == (130, told)


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


def test_a_full_disk_is_told_once_and_without_a_traceback() -> None:
    """What was still in the buffer failed a second time while the interpreter ended."""
    done = _sparkop("render specs/lab.yaml --facts tests/data/facts/two-sparks.json -o json >/dev/full")
    assert done.returncode == 1
    assert done.stderr.count(b"No space left on device") == 1
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("schema", 0),
        ("render specs/lab.yaml --facts tests/data/facts/two-sparks.json -o json", 0),
        ("validate specs/lab.yaml --set api.port=x 2>&1", 65),
        ("no-such-command 2>&1", 64),
    ],
)
def test_a_reader_that_goes_away_changes_no_exit_code(arguments: str, code: int) -> None:
    """``| head`` made it 1 or 120, or 0 where it had to be 2; and `2>&1 | head` broke an apply off."""
    program = "import sys; from sparkop.cli import main; main(sys.argv[1:])"
    line = f'{{ "$@" {arguments}; echo "code $?" >&3; }} 3>&2 | true'
    done = subprocess.run(
        ["sh", "-c", line, "sh", sys.executable, "-c", program], capture_output=True, timeout=60, check=False
    )
    said = done.stderr.decode().splitlines()
    assert said[-1] == f"code {code}"
    assert not any("Traceback" in line or "Exception ignored" in line for line in said)


def test_log_lines_end_when_nobody_reads_them() -> None:
    """``sparkop logs -f | head -3`` must not follow for ever."""
    program = (
        "import itertools; from sparkop.views.channels import mend; mend();"
        "from sparkop.views.logs import LogLine, show_logs;"
        "show_logs(LogLine(0, 'n', str(i)) for i in itertools.count())"
    )
    line = '"$@" | head -3'
    done = subprocess.run(
        ["sh", "-c", line, "sh", sys.executable, "-c", program], capture_output=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == [b"r0 | 0", b"r0 | 1", b"r0 | 2"]
    assert done.stderr == b""


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
