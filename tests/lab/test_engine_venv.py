"""The installation of vLLM for the lab: minutes on a slow line, so it gives signs of life."""

from __future__ import annotations

import pytest

from sparkop.lab import engine_venv
from sparkop.lab.layout import LabError


class EnoughSeenError(Exception):
    """Two signs of life were given."""


def test_a_long_installation_gives_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eighty silent seconds look like a hang."""
    monkeypatch.setattr(engine_venv, "TOLD_EVERY", 0.05)
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if len(said) == 2:
            raise EnoughSeenError

    with pytest.raises(EnoughSeenError):
        engine_venv._run(["sleep", "1000"], say)
    assert all("still installing" in line for line in said)


def test_an_installation_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_venv, "TOLD_EVERY", 0.05)
    monkeypatch.setattr(engine_venv, "INSTALL_SECONDS", 0.12)
    with pytest.raises(LabError, match="no end"):
        engine_venv._run(["sleep", "1000"], print)


def test_a_failed_installation_says_why() -> None:
    with pytest.raises(LabError, match="exit 3: no such wheel"):
        engine_venv._run(["sh", "-c", "echo no such wheel >&2; exit 3"], print)
