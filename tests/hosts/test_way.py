"""The way to a node: what stands in it is told in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkop.errors import UnreachableError
from sparkop.hosts.ssh_link import open_link
from sparkop.hosts.ssh_options import Target
from sparkop.hosts.way import find_way


def config(folder: Path, text: str) -> str:
    file = folder / "config"
    file.write_text(text)
    return str(file)


def test_jump_hosts_in_a_circle_are_told(tmp_path: Path) -> None:
    """They were asked for about a thousand times, until Python's stack was full."""
    text = "Host one\n  ProxyJump two\nHost two\n  ProxyJump one\n"
    with pytest.raises(UnreachableError) as told:
        open_link(Target("one", "one", config_file=config(tmp_path, text)))
    assert told.value.cause == "its jump hosts lead in a circle: one, then two, then one"


def test_a_name_that_no_dns_could_hold_does_not_resolve() -> None:
    with pytest.raises(UnreachableError) as told:
        find_way(Target("one", "a" * 64 + ".invalid"))
    assert "does not resolve" in str(told.value.cause)


def test_an_error_without_words_is_told_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError

    monkeypatch.setattr("socket.create_connection", fail)
    with pytest.raises(UnreachableError) as told:
        find_way(Target("one", "127.0.0.1", config_file=config(tmp_path, "")))
    assert told.value.cause == "127.0.0.1: OSError"
