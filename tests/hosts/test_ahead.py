"""Connecting ahead: begun by ``connect``, waited for by the first use, told once when it fails."""

from __future__ import annotations

import threading
from typing import Any

import paramiko
import pytest

from sparkop.errors import UnreachableError
from sparkop.hosts import connect, ssh
from sparkop.hosts.connect import Target, connect_all
from sparkop.hosts.ssh_options import read_options
from sparkop.hosts.way import Way
from tests.fresh import python


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "find_way", lambda target: Way(read_options(target), None))


class SilentLink:
    """A link whose server opens no session."""

    alive = True

    def __init__(self) -> None:
        self.transport = self
        self.closed = threading.Event()

    def open_session(self, **_: Any) -> None:
        raise paramiko.SSHException("no session")

    def close(self) -> None:
        self.closed.set()


def test_the_first_use_gets_the_failure_and_does_not_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a node without power costs two connect timeouts."""
    calls: list[str] = []

    def unreachable(target: Target, _way: Way | None = None) -> None:
        calls.append(target.name)
        raise UnreachableError("No SSH connection.", node=target.name)

    monkeypatch.setattr(ssh, "open_link", unreachable)
    host = connect_all([Target("one", host="192.0.2.1")], writable=False)["one"]
    with pytest.raises(UnreachableError, match="No SSH connection"):
        host.probe({"sections": []})
    assert calls == ["one"]
    with pytest.raises(UnreachableError):
        host.probe({"sections": []})
    assert calls == ["one", "one"], "the next use tries anew"


def test_it_begins_without_a_use_and_close_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, link = threading.Event(), threading.Event(), SilentLink()

    def slow(_target: Target, _way: Way | None = None) -> SilentLink:
        begun.set()
        assert go_on.wait(10)
        return link

    monkeypatch.setattr(ssh, "open_link", slow)
    host = connect_all([Target("one", host="192.0.2.1")], writable=False)["one"]
    assert begun.wait(10)
    host.close()
    assert not link.closed.is_set()
    go_on.set()
    assert link.closed.wait(10), "a connection that nobody waits for any more is closed"


def test_closing_waits_for_no_connection_that_is_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while a node takes the connection and is silent; what is made later is closed all the same."""
    begun, answer, closed = threading.Event(), threading.Event(), threading.Event()

    class Made:
        alive = True
        close = staticmethod(closed.set)

    def slow(_target: Target, _way: Way | None = None) -> Any:
        begun.set()
        answer.wait(30)
        return Made()

    monkeypatch.setattr("sparkop.hosts.ssh.open_link", slow)
    host = ssh.SshHost(Target("spark-1", host="spark-1"))
    threading.Thread(target=host.open, daemon=True).start()
    assert begun.wait(10)
    host.close()
    assert not closed.is_set()
    answer.set()
    assert closed.wait(10)


def test_a_way_that_is_not_found_is_told_by_the_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(target: Target) -> Way:
        raise UnreachableError("No SSH connection.", node=target.name, cause="no route")

    monkeypatch.setattr(connect, "find_way", nowhere)
    host = connect_all([Target("one", host="192.0.2.1")], writable=False)["one"]
    with pytest.raises(UnreachableError) as told:
        host.probe({"sections": []})
    assert told.value.cause == "no route"


def test_all_ways_are_looked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is slow to reach holds up no other, and none waits for the SSH library."""
    meeting = threading.Barrier(2)

    def find(target: Target) -> Way:
        meeting.wait(10)
        raise UnreachableError("No SSH connection.", node=target.name, cause="they met")

    monkeypatch.setattr(connect, "find_way", find)
    hosts = connect_all([Target(name, host="192.0.2.1") for name in ("one", "two")], writable=False)
    for host in hosts.values():
        with pytest.raises(UnreachableError) as told:
            host.probe({"sections": []})
        assert told.value.cause == "they met"


def test_ssh_is_imported_without_parts_of_invoke_that_are_never_used() -> None:
    """asyncio is a twentieth of a cold diff, and so is YAML; who wants the real ones later gets them."""
    program = (
        "import sys; from sparkop.hosts.connect import Target, connect_all\n"
        "connect_all([Target('one', host='127.0.0.1', port=1)], writable=False)\n"
        "print(*(name in sys.modules for name in ('asyncio', 'yaml', 'invoke.vendor.yaml', 'invoke')))\n"
        "from unittest.mock import Mock; print(Mock(return_value=3)())\n"
        "from invoke.vendor import yaml; print(yaml.safe_load('4'))"
    )
    assert python(program) == ["False False False True", "3", "4"]
