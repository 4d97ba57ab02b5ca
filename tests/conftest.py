"""Fixtures of all tests: the lab, and settings that keep runs on small machines repeatable."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from sparkop.lab.layout import LAB_VARIABLE
from tests.labkit import lab as lab

settings.register_profile("sparkop", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sparkop")


@pytest.fixture(autouse=True)
def _lab_by_name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lab that a test uses is the default one of all it calls; one process can hold several."""
    for name in ("lab", "engines_lab"):
        if name in request.fixturenames:
            monkeypatch.setenv(LAB_VARIABLE, request.getfixturevalue(name).name)
