"""Fixtures of all tests: the lab, and settings that keep runs on small machines repeatable."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.labkit import lab as lab

settings.register_profile("sparkop", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sparkop")
