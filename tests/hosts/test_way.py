"""The way to a node: what stands in it is told in words."""

from __future__ import annotations

from pathlib import Path

import paramiko
import pytest

from sparkop.errors import UnreachableError
from sparkop.hosts.ssh_link import open_link
from sparkop.hosts.ssh_options import Target
from sparkop.hosts.way import broken, find_way


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


def test_an_error_without_words_is_told_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its class, OSError or EOFError, was all that was told of a node that lost power."""

    def fail(*_: object) -> None:
        raise OSError

    monkeypatch.setattr("socket.create_connection", fail)
    with pytest.raises(UnreachableError) as told:
        find_way(Target("one", "127.0.0.1", config_file=config(tmp_path, "")))
    assert "127.0.0.1: the connection was closed" in str(told.value.cause)


@pytest.mark.parametrize(
    "error",
    [
        EOFError(),
        paramiko.SSHException("SSH session not active"),
        OSError("Socket is closed"),
        paramiko.SSHException("Channel closed."),
    ],
)
def test_a_connection_that_breaks_is_told_in_words(error: Exception) -> None:
    """Not in those of the SSH library, as the first words about a node without power were."""
    told = broken(error, "spark-2").reason
    assert "the connection was closed: the node lost power" in told
    assert str(error) not in told or not str(error)
    assert type(error).__name__ not in told


def test_what_the_system_says_of_a_connection_is_told() -> None:
    assert broken(ConnectionResetError(104, "Connection reset by peer"), "spark-2").cause == (
        "Connection reset by peer"
    )
