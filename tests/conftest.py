"""Fixtures of all tests: the lab, and settings that make runs on any machine the same."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from sparkop.lab.layout import LAB_VARIABLE
from tests.labkit import lab as lab
from tests.labkit import sweep

EXPLORE = "SPARKOP_EXPLORE" in os.environ
"""Set: hypothesis draws other examples in every run. Else the same ones, so that a red run is red again."""
settings.register_profile(
    "sparkop", deadline=None, derandomize=not EXPLORE, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("sparkop")

# A job that a shell started in the background ignores Ctrl-C, and so does everything that it starts: a test
# that interrupts would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

LONGEST = (
    "tests/scenarios/test_faults.py",
    "tests/scenarios/test_watch.py",
    "tests/scenarios/test_smoke_and_bench.py",
    "tests/scenarios/test_recipe_b.py",
    "tests/scenarios/test_standin.py",
    "tests/scenarios/test_vllm.py",
    "tests/scenarios/test_connect.py",
    "tests/scenarios/test_memguard_hosts.py",
    "tests/scenarios/test_recipe_a.py",
    "tests/images/test_qsa_kernel.py",
    "tests/reconcile/test_watch.py",
    "tests/reconcile/test_watch_any.py",
    "tests/resources/test_weights.py",
    "tests/reconcile/test_crash.py",
    "tests/spec/test_fuzz.py",
)
"""Files of minutes each, longest first: those of the lab, then the others. A process runs whole files: one of
these, begun last, would leave the other processes idle. Those with real vLLM (smoke_and_bench, vllm, connect)
stand apart."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first; all others, and the tests of a file, keep their order."""
    places = {file: place for place, file in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.location[0], len(places)))


def pytest_unconfigure(config: pytest.Config) -> None:
    """A run that is broken off ends its processes before they have taken their labs down."""
    if not hasattr(config, "workerinput"):
        sweep()


@pytest.fixture(autouse=True)
def _lab_by_name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lab that a test uses is the default one of all it calls; one process can hold several."""
    for name in ("lab", "engines_lab"):
        if name in request.fixturenames:
            monkeypatch.setenv(LAB_VARIABLE, request.getfixturevalue(name).name)
