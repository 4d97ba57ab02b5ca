"""Programs of ours that run without a container: started once, found again beyond doubt, ended."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sparkop.node import unit_act, units
from sparkop.resources.guard import program
from tests.labkit import until

LABELS = {"sparkop.cluster": "x", "sparkop.role": "memguard", "sparkop.hash": "v1:1"}
NAME = "x-memguard-1"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder with the guard's program, on a node without systemd; nothing is left running."""
    monkeypatch.setattr(unit_act, "SYSTEMD", str(tmp_path / "no-systemd"))
    folder = tmp_path / "a state"
    folder.mkdir()
    (folder / "memguard.pyz").write_bytes(program())
    yield folder
    for line in Path("/proc").glob("[0-9]*/cmdline"):  # what it says of itself may be what a test has damaged
        with suppress(OSError):
            if str(folder).encode() in line.read_bytes():
                os.kill(int(line.parent.name), signal.SIGKILL)


def argv(state: Path) -> list[str]:
    floors = ["--floor", "2", "--hard-floor", "1", "--soft-floor", "2"]
    places = ["--state", str(state), "--docker", str(state / "no.sock"), "--weights", str(state)]
    return [str(state / "memguard.pyz"), "--cluster", "x", *floors, *places]


def found(state: Path) -> list[dict[str, Any]]:
    errors: dict[str, str] = {}
    answer = units.read(str(state), errors)
    assert errors == {}
    return answer


def begin(state: Path, name: str = NAME, labels: dict[str, str] = LABELS) -> bool:
    unit = unit_act.Unit(str(state), name)
    begun = unit.begin(labels, argv(state))
    unit.wait_started()
    return begun


def end(state: Path, name: str = NAME, grace: float = 3.0) -> bool:
    unit = unit_act.Unit(str(state), name)
    if not unit.end():
        return False
    unit.wait_ended(grace)
    unit.forget()
    return True


def guarding(state: Path) -> int:
    log = state / "memguard.log"
    return log.read_text().count("guarding x") if log.exists() else 0


def test_it_is_started_once_found_again_and_removed(state: Path) -> None:
    """By nothing but its files and the kernel; its parent is not this process."""
    assert begin(state)
    assert not begin(state)
    [unit] = found(state)
    assert (unit["name"], unit["labels"], unit["kept"], unit["boots"]) == (NAME, LABELS, "detached", False)
    assert unit["state"] == "running"
    assert os.getsid(unit["pid"]) != os.getsid(0)
    until(lambda: guarding(state) == 1)
    assert end(state)
    assert found(state) == []
    assert not end(state)


def test_a_number_that_passed_to_another_process_is_not_it(state: Path) -> None:
    """Nor is one of another boot; neither is ever signalled."""
    begin(state)
    path = state / "units" / f"{NAME}.pid"
    own = json.loads(path.read_text())
    with subprocess.Popen([sys.executable, "-IS", "-c", "import signal; signal.pause()"]) as other:
        for stranger in ({**own, "pid": other.pid}, {**own, "boot": "another"}, {**own, "started": 1}):
            path.write_text(json.dumps(stranger))
            assert found(state)[0]["state"] == "exited"
            unit_act.Unit(str(state), NAME).signal(signal.SIGKILL)
        assert other.poll() is None
        other.kill()
    path.write_text(json.dumps(own))
    assert found(state)[0]["state"] == "running"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x", "started": 1, "boot": "b"}', "null"])
def test_an_identity_that_can_not_be_read_is_none(state: Path, content: str) -> None:
    """It has ended, as far as anyone knows; a record that is damaged is an error: unknown, not absent."""
    begin(state)
    [unit] = found(state)
    (state / "units" / f"{NAME}.pid").write_text(content)
    assert found(state)[0]["state"] == "exited"
    errors: dict[str, str] = {}
    (state / "units" / f"{NAME}.json").write_text(content)
    assert units.read(str(state), errors) == []
    assert list(errors) == [f"units:{NAME}.json"]
    os.kill(unit["pid"], signal.SIGKILL)
    for ending in ("json", "pid"):
        (state / "units" / f"{NAME}.{ending}").unlink()


def test_a_killed_one_is_started_again_and_a_paused_one_removed(state: Path) -> None:
    """SIGSTOP is what `docker pause` is to a container: it has to be seen, and SIGKILL still ends it."""
    begin(state)
    [first] = found(state)
    os.kill(first["pid"], signal.SIGKILL)
    until(lambda: found(state)[0]["state"] == "exited")
    assert begin(state)
    [second] = found(state)
    assert second["pid"] != first["pid"]
    os.kill(second["pid"], signal.SIGSTOP)
    until(lambda: found(state)[0]["state"] == "paused")
    assert not begin(state), "another one would only wait for its lock"
    assert end(state, grace=0.2)
    assert found(state) == []


def test_the_new_one_guards_in_the_moment_the_old_one_ends(state: Path) -> None:
    """So that a change of form or floors leaves no gap: it is ready, and waits for the lock alone."""
    begin(state)
    until(lambda: guarding(state) == 1)
    begin(state, "x-memguard-2", {**LABELS, "sparkop.hash": "v1:2"})
    assert [unit["state"] for unit in found(state)] == ["running", "running"]
    assert guarding(state) == 1
    until(lambda: "another guard" in (state / "memguard.log").read_text())
    end(state)
    until(lambda: guarding(state) == 2, 5)
    [left] = found(state)
    assert left["name"] == "x-memguard-2"


def test_another_program_of_that_name_is_not_taken_for_it(state: Path) -> None:
    """As with a container that carries other labels."""
    begin(state)
    with pytest.raises(unit_act.UnitError, match="another program is called"):
        begin(state, labels={**LABELS, "sparkop.hash": "v1:2"})


def test_why_it_does_not_start_is_told(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its last words."""
    monkeypatch.setattr(unit_act, "STARTS_WITHIN", 1.5)
    (state / "memguard.pyz").write_text("raise SystemExit('no such luck')")
    with pytest.raises(unit_act.UnitError, match="no such luck"):
        begin(state)
    assert [unit["state"] for unit in found(state)] == ["exited"], "it is found again, and mended"
    assert end(state)


SYSTEMCTL = """#!{python} -IS
import os, shlex, subprocess, sys
with open({log!r}, "a") as log:
    print(*sys.argv[1:], file=log)
if "restart" in sys.argv:
    text = open(os.path.join({folder!r}, sys.argv[-1])).read()
    command = text.split("ExecStart=")[1].splitlines()[0].replace("%%", "%").replace("$$", "$")
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    subprocess.Popen(shlex.split(command), start_new_session=True, **quiet)
"""


def test_systemd_keeps_it_where_it_runs(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enabled, so that it is there after a reboot; disabled before it is ended, so that it stays away."""
    log, folder, programs = tmp_path / "log", tmp_path / "system", tmp_path / "bin"
    programs.mkdir()
    fake = programs / "systemctl"
    fake.write_text(SYSTEMCTL.format(python=sys.executable, log=str(log), folder=str(folder)))
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(unit_act, "SYSTEMD", str(tmp_path))
    monkeypatch.setattr(unit_act, "SYSTEM_UNITS", str(folder))
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert begin(state)
    [unit] = found(state)
    assert (unit["kept"], unit["boots"], unit["state"]) == ("systemd", True, "running")
    service = f"sparkop-{NAME}.service"
    text = (folder / service).read_text()
    assert "Restart=always" in text
    assert "WantedBy=multi-user.target" in text
    assert end(state)
    asked = log.read_text().splitlines()
    assert asked == [
        "daemon-reload",
        f"enable --quiet {service}",
        f"restart {service}",
        f"disable --quiet --now --no-block {service}",
        "daemon-reload",
    ]
    assert not (folder / service).exists()


def test_systemd_understands_the_file(tmp_path: Path) -> None:
    """Whatever a path holds."""
    for kept in (units.SYSTEM, units.USER):
        path = tmp_path / f"sparkop-{NAME}.service"
        command = [sys.executable, "-I", '/a b/50%/$x/"q"\\.pyz', "--cluster", "x"]
        path.write_text(unit_act.unit_text(NAME, command, command[2], kept))
        done = subprocess.run(
            ["systemd-analyze", "verify", str(path)], capture_output=True, text=True, timeout=60
        )
        own = [line for line in done.stderr.splitlines() if path.name in line]
        assert own == []


def test_a_user_that_does_not_linger_has_no_guard_after_a_reboot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd starts a user's units at boot only then."""
    import pwd

    monkeypatch.setattr(units, "LINGER", str(tmp_path))
    assert not units.comes_back(units.USER)
    (tmp_path / pwd.getpwuid(os.getuid()).pw_name).touch()
    assert units.comes_back(units.USER)
    assert units.comes_back(units.SYSTEM)
    assert not units.comes_back(units.DETACHED)
