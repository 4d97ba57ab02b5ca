"""What `sparkop lab ...` says when a user names what is not there."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from sparkop import cli
from sparkop.cli.lab import lab
from sparkop.errors import UnreachableError, UsageError
from sparkop.inside import INSIDE_VARIABLE
from sparkop.lab import layout
from sparkop.lab.enter import join
from sparkop.lab.faults import FAULTS, Target, services
from sparkop.lab.lab import Lab, parse_size

WORDS = {"fault": "cable", "host": "spark-1", "command": "true", "service": "sshd"}
NEED_A_LAB = sorted(set(lab.commands) - {"up", "down"})


@pytest.fixture(autouse=True)
def _no_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(layout.STATE_VARIABLE, str(tmp_path))
    monkeypatch.delenv(layout.LAB_VARIABLE, raising=False)
    monkeypatch.delenv(INSIDE_VARIABLE, raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def _arguments(command: str) -> list[str]:
    return [
        WORDS[str(each.name)] for each in lab.commands[command].params if isinstance(each, click.Argument)
    ]


@pytest.mark.parametrize("command", NEED_A_LAB)
def test_every_command_without_a_lab_is_a_users_mistake(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["lab", command, *_arguments(command)]) == 64
    told = capsys.readouterr().err
    assert "lab 'default' is not up" in told
    assert "do: sparkop lab up" in told


@pytest.mark.parametrize("command", NEED_A_LAB)
def test_every_command_asks_for_root(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert cli.run(["lab", command, *_arguments(command)]) == 6
    assert "sudo" in capsys.readouterr().err


def test_down_without_a_lab_is_content(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["lab", "down"]) == 0
    assert "nothing was up" in capsys.readouterr().err


@pytest.mark.parametrize("size", ["inf", "nan", "-1g", "4 gigabytes", "g"])
def test_what_is_no_size_is_told(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["lab", "up", "--memory", size]) == 64
    assert "use 4g or 512m" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "size", "said"),
    [
        ("--memory", "12", "12 B is too little: a host needs 512.0 MiB"),
        ("--memory", "511m", "too little"),
        ("--memory", "1024 TiB", "1024.0 TiB is more than this machine has"),
        ("--disk", "0", "0 B is too little"),
        ("--disk", "1m", "1.0 MiB is too little"),
    ],
)
def test_a_size_that_no_host_can_have_is_told_before_anything_is_made(
    option: str, size: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["lab", "up", option, size]) == 64
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_machine_smaller_than_the_default_host_can_have_a_lab(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its limit is not reached; only who asks for that much is told."""
    asked: list[object] = []

    def up(*words: object) -> SimpleNamespace:
        asked.append(words[3])
        return SimpleNamespace(name="default", hosts=())

    monkeypatch.setattr(os, "sysconf", lambda _name: 1 << 15)  # pages and their size: 1 GiB
    monkeypatch.setattr("sparkop.lab.up.up", up)
    assert cli.run(["lab", "up", "--engines", "none", "--disk", "1g"]) == 0
    assert asked == [["disk"]]
    assert cli.run(["lab", "up", "--memory", "4g"]) == 64
    assert "this machine has: 1.0 GiB" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("256KiB", 256 << 10),
        ("1 GiB", 1 << 30),
        ("1.5 MiB", 3 << 19),
        ("2 GB", 2 * 10**9),
        ("4g", 4 << 30),
        ("512M", 512 << 20),
        ("0", 0),
        ("65536", 65536),
    ],
)
def test_a_size_is_read_as_in_specs_and_in_docker_s_short_form(written: str, meant: int) -> None:
    assert parse_size(written) == meant


def test_boot_tells_what_is_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    booted: list[str] = []
    monkeypatch.setattr(Lab, "load", lambda _name: SimpleNamespace(boot=booted.append))
    assert cli.run(["lab", "boot", "spark-1"]) == 0
    assert booted == ["spark-1"]
    assert "spark-1: it is on" in capsys.readouterr().err


def test_nodes_of_a_lab_that_has_crashed_are_unreachable(tmp_path: Path) -> None:
    """A command that names a spec has not named a lab: its nodes are away."""
    (tmp_path / "default").mkdir()
    (tmp_path / "default" / "lab.json").write_text('{"token": "0123"}')
    with pytest.raises(UnreachableError, match="not up"):
        join("default")


@pytest.mark.parametrize(
    ("fault", "amount", "said"),
    [
        ("slow-start", "-30", "--amount -30: at least 0 s"),
        ("memory-pressure", "-30", "--amount -30: no size"),
        ("disk-full", "-4g", "--amount -4g: no size"),
    ],
)
def test_an_amount_below_nothing_is_refused(fault: str, amount: str, said: str) -> None:
    """ "Each start loads for -30 s" is no fault that was made."""
    host = SimpleNamespace(name="spark-1", memory_bytes=1 << 30, disk=lambda: (0, 1 << 30))
    with pytest.raises(UsageError) as refused:
        FAULTS[fault].breaks(Target(None, host, amount=amount))  # type: ignore[arg-type]
    assert said in refused.value.message


def test_a_clock_that_is_behind_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was told as "-30 s ahead"."""
    monkeypatch.setattr(services, "Path", lambda _: tmp_path / "python3")
    host = SimpleNamespace(name="spark-1", running=lambda: 1)
    told = FAULTS["clock-skew"].breaks(Target(None, host, amount="-30"))  # type: ignore[arg-type]
    assert told.endswith("a clock that is 30 s behind")
