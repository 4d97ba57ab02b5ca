"""Finding and installing Pi: what is refused, and where npm is told to install."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkop import cli
from sparkop.clients.pi_program import find_pi, plan_installation, refuses
from sparkop.errors import BlockedError, ExitCode
from tests.clients.conftest import SPEC, Machine


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of PATH that holds node, npm or pi."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder


@pytest.mark.parametrize("script", ["echo 'pi 3.14159'", "exit 1", "echo 1.6.0; exit 1"])
def test_another_program_of_that_name_is_not_taken_for_pi(bin_folder: Path, script: str) -> None:
    program(bin_folder, "pi", script)
    with pytest.raises(BlockedError, match="does not work, or is another program"):
        find_pi()


@pytest.mark.parametrize("script", ["echo 1.6.0", "echo 0.74.2 >&2"])
def test_pi_says_its_version_on_either_channel(bin_folder: Path, script: str) -> None:
    program(bin_folder, "pi", script)
    assert find_pi() is not None


@pytest.mark.parametrize(
    ("version", "package"),
    [
        ("v22.19.0", "@earendil-works/pi-coding-agent"),
        ("v24.1.0", "@earendil-works/pi-coding-agent"),
        ("v22.18.9", "@earendil-works/pi-coding-agent@0.74.2"),
        ("v20.6.0", "@earendil-works/pi-coding-agent@0.74.2"),
    ],
)
def test_node_decides_the_version(bin_folder: Path, version: str, package: str) -> None:
    """A version that needs a newer Node installs with a warning only, and ends at its first line."""
    program(bin_folder, "node", f"echo {version}")
    program(bin_folder, "npm", f"echo {bin_folder}")
    assert plan_installation().package == package


def test_a_node_that_is_too_old_or_missing_is_told(bin_folder: Path) -> None:
    with pytest.raises(BlockedError, match=r"needs Node\.js with npm"):
        plan_installation()
    program(bin_folder, "npm", "echo /usr")
    program(bin_folder, "node", "echo v18.20.0")
    with pytest.raises(BlockedError, match=r"needs Node\.js 20\.6 or newer"):
        plan_installation()


def test_npm_gets_a_prefix_that_the_user_can_write(bin_folder: Path) -> None:
    """Here npm names one that even root can not write."""
    program(bin_folder, "node", "echo v22.22.0")
    program(bin_folder, "npm", f"echo {bin_folder.parent}")
    assert plan_installation().prefix is None
    program(bin_folder, "npm", "echo /dev/null/none")
    assert plan_installation().prefix == bin_folder.parent / ".local"


def test_a_dry_run_installs_nothing_and_writes_nothing(
    bin_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program(bin_folder, "node", "echo v22.22.0")
    program(
        bin_folder, "npm", f"case $1 in config) echo {bin_folder.parent};; *) : > {bin_folder}/ran;; esac"
    )
    monkeypatch.chdir(bin_folder.parent)
    Path("spec.yaml").write_text(SPEC)
    argv = ["connect", "pi", "spec.yaml", "--base-url", "http://h/v1", "--dry-run"]
    assert cli.run(argv) == ExitCode.OK
    shown = capsys.readouterr()
    assert "would write" in shown.out
    assert "npm install --global" in shown.err
    assert not (bin_folder / "ran").exists()
    assert not Path(".pi").exists()


def test_a_key_in_place_of_its_variable_is_refused_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.yaml").write_text(SPEC)
    assert cli.run(["connect", "pi", "spec.yaml", "--key-env", "sk-7f3asecret"]) == ExitCode.USAGE
    assert "sk-" not in capsys.readouterr().err


def test_pi_itself_is_asked_before_anything_is_written(machine: Machine) -> None:
    """A fault that only Pi's own schema knows, in another provider: Pi would drop ours with it."""
    machine.agent.mkdir(parents=True)
    broken = '{"providers": {"mine": {"baseUrl": 5, "apiKey": "literal-of-mine"}}}'
    (machine.agent / "models.json").write_text(broken)
    refused = machine.connect(check=ExitCode.FAILED)
    assert "providers.mine.baseUrl" in refused.stderr
    assert "literal-of-mine" not in refused.stderr
    assert machine.tree() == {".pi/agent/models.json": broken.encode()}


def test_pi_does_not_list_what_is_not_there(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", machine.path)
    pi = find_pi()
    assert pi is not None
    entry = {"baseUrl": "http://h/v1", "api": "openai-completions", "apiKey": "x", "models": [{"id": "m"}]}
    models = json.dumps({"providers": {"p": entry}}).encode()
    assert refuses(pi, models, "p/m") is None
    assert refuses(pi, models, "p/other") == "it does not list the model"
