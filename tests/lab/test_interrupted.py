"""A signal that comes while `lab up` starts its threads."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from sparkop.lab.up import ENDING, _uninterrupted


class Told(BaseException):
    """What this program makes of a signal."""


def _raise(_number: int, _frame: object) -> None:
    raise Told


@pytest.fixture(autouse=True)
def _own_handlers() -> Iterator[None]:
    before = {number: signal.signal(number, _raise) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _start_threads(steps: list[str], *signals: signal.Signals) -> None:
    with _uninterrupted():
        for number in signals:
            signal.raise_signal(number)
        steps.append("started")


@pytest.mark.parametrize("number", ENDING)
def test_it_waits_until_the_pool_knows_its_threads(number: signal.Signals) -> None:
    """An `up` that left earlier removed a lab in which a thread, joined by nobody, still made files."""
    steps: list[str] = []
    with pytest.raises(Told):
        _start_threads(steps, number)
    assert steps == ["started"]
    assert signal.getsignal(number) is _raise


def test_one_that_is_ignored_hides_no_other() -> None:
    """Under nohup SIGHUP is ignored, and SIGTERM still ends the program."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _start_threads([], signal.SIGHUP)
    with pytest.raises(Told):
        _start_threads([], signal.SIGHUP, signal.SIGTERM)
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
