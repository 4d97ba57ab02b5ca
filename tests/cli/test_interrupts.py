"""Ctrl-C once and twice, SIGTERM: how a command that writes ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

from sparkop.cli import INTERRUPTED, interrupts, run
from sparkop.cli.interrupts import FINISHES, STOPS_WATCHING, stop_on_interrupt
from sparkop.cli.root import LazyGroup, Terminated, strike
from sparkop.errors import ExitCode, SparkopError, UnreachableError, WaitInterruptedError
from sparkop.views import confirm
from tests.spec.samples import MINIMAL, write


def _signalled(number: signal.Signals, failure: SparkopError) -> None:
    with stop_on_interrupt() as stop:
        signal.raise_signal(number)
        assert stop.is_set()
        raise failure


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)
def test_a_failure_after_a_signal_is_told_and_the_exit_code_is_the_signals(
    number: signal.Signals, raised: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    """A step that failed while it was waited for made exit code 4 of a Ctrl-C."""
    with pytest.raises(raised):
        _signalled(number, UnreachableError("The connection to the node broke.", node="spark-2"))
    assert "spark-2: The connection to the node broke." in capsys.readouterr().err


def test_a_wait_that_was_ended_is_no_failure_to_tell(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        _signalled(signal.SIGINT, WaitInterruptedError("stopped waiting"))
    assert "stopped waiting" not in capsys.readouterr().err


def test_the_first_signal_says_what_the_command_does_then(capsys: pytest.CaptureFixture[str]) -> None:
    """download said that it waits, and left at once. No blank line where no ^C stands before."""
    with pytest.raises(KeyboardInterrupt), stop_on_interrupt(STOPS_WATCHING):
        signal.raise_signal(signal.SIGINT)
    told = capsys.readouterr().err
    assert told == f"sparkop: {STOPS_WATCHING}\n"
    assert "sparkop download --cancel ends it" in told


def _let_end() -> None:
    with stop_on_interrupt():
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (lambda: strike(signal.SIGINT), f"\n{INTERRUPTED}\n"),
        (_let_end, f"\nsparkop: {FINISHES}\n{INTERRUPTED}\n"),
    ],
)
def test_no_empty_line_stands_before_what_an_interrupt_is_told_with(
    command: Callable[[], None],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The line of ^C is ended, once: click ended one for us as well, and two empty lines stood there."""
    monkeypatch.setattr(LazyGroup, "get_command", lambda *_: click.Command("apply", callback=command))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run(["apply"]) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == told


def test_download_says_that_it_only_stops_watching(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """--cancel alone waits for what it does."""
    asked: list[str] = []

    @contextmanager
    def ask(told: str) -> Iterator[None]:
        asked.append(told)
        raise UnreachableError("nobody is asked in this test")
        yield

    monkeypatch.setattr(interrupts, "stop_on_interrupt", ask)
    spec = str(write(tmp_path, MINIMAL, "spec.yaml"))
    for options in ([], ["--follow"], ["--cancel"]):
        run(["download", *options, spec])
    assert asked == [STOPS_WATCHING, STOPS_WATCHING, FINISHES]


def test_without_a_signal_a_failure_stays_itself() -> None:
    with pytest.raises(UnreachableError), stop_on_interrupt():
        raise UnreachableError("no answer")


def test_the_second_signal_ends_the_process_whatever_hangs() -> None:
    """Clearing up that hangs gets a few seconds, not all that a library may take."""
    program = """
import signal, time
from sparkop.cli import interrupts
interrupts.LEAVES_WITHIN = 0.2
with interrupts.stop_on_interrupt():
    try:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    finally:
        time.sleep(60)
"""
    began = time.monotonic()
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, timeout=50)
    assert ended.returncode == 130
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, ExitCode.TERMINATED), (signal.SIGINT, ExitCode.INTERRUPTED)],
)
def test_a_signal_while_the_one_before_is_told_makes_no_traceback(
    number: signal.Signals, code: ExitCode
) -> None:
    """A service manager, or timeout(1), sends it to the process and to its group, within a millisecond."""
    program = f"""
import os
import click
from sparkop.cli import root
def struck(*args, **options):
    os.kill(os.getpid(), {number})
root.cli.main = click.echo = struck
root.main(["diff"])
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "", "")


def test_a_signal_at_a_question_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing runs that it could wait for: the first Ctrl-C only said so, and the question stayed."""
    monkeypatch.setattr(confirm, "can_ask", lambda: True)
    monkeypatch.setattr(confirm.click, "confirm", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    with stop_on_interrupt() as stop:
        handler = signal.getsignal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            confirm.agreed("Go on?")
        assert signal.getsignal(signal.SIGINT) is handler
        assert not stop.is_set()
