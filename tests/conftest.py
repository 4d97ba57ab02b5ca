"""Fixtures of all tests: the lab, and settings that make runs on any machine the same."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

from sparkop.lab.layout import LAB_VARIABLE
from tests.labkit import lab as lab

settings.register_profile("sparkop", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sparkop")

# A job that a shell started in the background ignores Ctrl-C, and so does everything that it starts: a test
# that interrupts would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _lab_by_name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lab that a test uses is the default one of all it calls; one process can hold several."""
    for name in ("lab", "engines_lab"):
        if name in request.fixturenames:
            monkeypatch.setenv(LAB_VARIABLE, request.getfixturevalue(name).name)
