"""What `lab up` says on a machine that lacks something."""

from __future__ import annotations

import os

import pytest

from sparkop.lab import packages
from sparkop.lab.layout import LabError


def test_missing_packages_come_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(packages, "required", lambda: {"tini": "no-such-tini", "iproute2": "sh"})
    with pytest.raises(LabError) as told:
        packages.check()
    assert "tini" in told.value.message
    assert "iproute2" not in told.value.message
    assert told.value.remedy is not None
    assert "apt-get install" in told.value.remedy
    assert told.value.remedy.endswith(" tini")


def test_an_ordinary_user_is_told_to_be_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LabError, match="root"):
        packages.check()


def test_list_names_package_and_program() -> None:
    required = packages.required()
    assert required["docker.io"] == "dockerd"
    assert required["openssh-server"] == "sshd"
    assert all(" " not in package for package in required)


def test_a_library_shows_a_package_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """libnuma1 has no program; the engines' base image copies its library."""
    monkeypatch.setattr(packages, "required", lambda: {"libc6": "libc.so.6", "libnone1": "libnone.so.1"})
    assert packages.missing() == ["libnone1"]
