"""Commands that only read get hosts that have no method which could change a node (principle 1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sparkop.cli import run
from sparkop.errors import ExitCode, UnreachableError
from sparkop.hosts.base import ReadableHost
from sparkop.hosts.connect import ReadOnlyHost, Target
from sparkop.reconcile import nodes
from tests.spec.samples import MINIMAL, write

READING = (
    ["diff"],
    ["status"],
    ["doctor"],
    ["events"],
    ["facts"],
    ["fabric"],
    ["lease", "show"],
    ["logs"],
    ["smoke"],
    ["memory"],
    ["budget", "--from", "nodes"],
    ["watch", "--dry-run"],
)


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_a_reading_command_never_connects_to_write(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the code behind it does: there is nothing that it could write with."""
    asked: list[bool] = []

    def connect(targets: Sequence[Target], *, writable: bool) -> dict[str, ReadableHost]:
        asked.append(writable)
        raise UnreachableError("nobody is asked in this test", node=targets[0].name)

    monkeypatch.setattr(nodes, "connect_all", connect)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    code = run([*command, str(write(tmp_path, MINIMAL, "spec.yaml"))])
    assert code in (0, 4)
    assert asked, "it did not get as far as the nodes"
    assert not any(asked)


def test_a_host_to_read_has_nothing_to_write_with() -> None:
    """Not hidden by types alone: the object has no such method. A new one has to be thought about here."""
    public = {name for name in dir(ReadOnlyHost) if not name.startswith("_")}
    assert public == {"name", "probe", "http", "read_file", "log_lines", "close"}


@pytest.mark.parametrize("seconds", ["nan", "inf", "0"])
def test_a_period_is_a_number_of_seconds(seconds: str, tmp_path: Path) -> None:
    """With nan, watch looked once and never again."""
    spec = write(tmp_path, MINIMAL, "spec.yaml")
    assert run(["watch", str(spec), "--once", "--period", seconds]) == ExitCode.USAGE
