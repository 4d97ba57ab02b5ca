"""The installation of vLLM for the lab: minutes on a slow line, so it gives signs of life."""

from __future__ import annotations

import pytest

from sparkop.lab import engine_venv
from sparkop.lab.layout import LabError


def test_a_long_installation_gives_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eighty silent seconds look like a hang."""
    monkeypatch.setattr(engine_venv, "TOLD_EVERY", 0.05)
    said: list[str] = []
    monkeypatch.setattr(engine_venv, "INSTALL_SECONDS", 0.12)
    with pytest.raises(LabError, match="no end"):
        engine_venv._run(["sleep", "1000"], said.append)
    assert said
    assert all("still installing" in line for line in said)


def test_a_failed_installation_says_why() -> None:
    with pytest.raises(LabError, match="exit 3: no such wheel"):
        engine_venv._run(["sh", "-c", "echo no such wheel >&2; exit 3"], print)
