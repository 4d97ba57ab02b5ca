"""Starts and removes a program that runs on the node without a container. Safe to repeat.

Stdlib-only, Python 3.8 or newer. By systemd where it runs (for the system when this is root, else for the
user, who is asked to linger), so that it is started again when it dies and after a reboot; else as a
process of its own session. See `units` for what is found again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

from . import file_act, units, wire

SYSTEMD = "/run/systemd/system"
"""Exists where systemd is the init system (sd_booted(3))."""
SYSTEM_UNITS = "/etc/systemd/system"
STARTS_WITHIN = 15.0
STEP = 0.05
DETACH = "import os, sys\nos.fork() and os._exit(0)\nos.execv(sys.argv[1], sys.argv[1:])"
UNIT = """\
# Made by sparkop; sparkop stop and sparkop destroy remove it.
[Unit]
Description=sparkop: %(name)s
ConditionPathExists=%(program)s
StartLimitIntervalSec=0

[Service]
ExecStart=%(command)s
Restart=always
RestartSec=1
OOMScoreAdjust=-900
LimitMEMLOCK=infinity

[Install]
WantedBy=%(target)s
"""


class UnitError(OSError):
    """It does not start."""


class Unit:
    """One of them, by its name in a state folder."""

    def __init__(self, state: str, name: str) -> None:
        self.folder = os.path.join(state, units.FOLDER)
        self.name = name

    def path(self, ending: str) -> str:
        return os.path.join(self.folder, self.name + ending)

    @property
    def state(self) -> str:
        return units.state_of(units.identity(self.folder, self.name))

    # Starting

    def known(self) -> dict[str, Any] | None:
        """The record of the one that is there."""
        try:
            found = json.loads(wire.read_text(self.path(".json")))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def begin(self, labels: dict[str, str], argv: list[str]) -> bool:
        """Write the record and start it; False when it is there already. ``argv[0]``: a Python program.

        The record comes first: whatever happens next, it is found again. Raises UnitError, OSError.
        """
        if self.state != "exited":
            if (self.known() or {}).get("labels") != labels:
                raise UnitError("another program is called %s" % self.name)
            return False
        command = [sys.executable, "-I", "-S", "-u", *argv, "--identity", self.path(".pid")]
        kept, control = manager()
        content = {"version": 1, "name": self.name, "labels": labels, "argv": command, "kept": kept}
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        file_act.put(self.path(".json"), json.dumps(content, sort_keys=True).encode() + b"\n", 0o644)
        if control:
            file_act.put(self.unit_file(kept), unit_text(self.name, command, argv[0], kept).encode(), 0o644)
            run([*control, "daemon-reload"])
            run([*control, "enable", "--quiet", self.service])
            run([*control, "restart", self.service])
            if kept == units.USER and not units.comes_back(kept):  # may be refused: the probe tells
                run(["loginctl", "--no-ask-password", "enable-linger"], check=False)
        else:
            self.detach(command)
        return True

    def detach(self, command: list[str]) -> None:
        """No parent, terminal or connection holds it. What it says before its own log goes to a file."""
        with open(self.path(".err"), "wb") as told:
            subprocess.run(
                [sys.executable, "-I", "-S", "-c", DETACH, *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=told,
                start_new_session=True,
                cwd="/",
                check=True,
                timeout=STARTS_WITHIN,
            )

    def wait_started(self) -> None:
        """Raises UnitError with its last words."""
        end = time.monotonic() + STARTS_WITHIN
        while self.state == "exited":
            if time.monotonic() > end:
                said = (wire.maybe(self.path(".err")) or "").splitlines()[-1:]
                raise UnitError("%s does not start%s" % (self.name, ": " + said[0] if said else ""))
            time.sleep(STEP)

    # Removing

    def end(self) -> bool:
        """Ask it to end, and see to it that nothing starts it again; False when there is none."""
        record = self.known()
        if record is None and not os.path.exists(self.path(".json")):
            return False
        kept = str((record or {}).get("kept"))
        control = CONTROLS.get(kept)
        if control and os.path.exists(self.unit_file(kept)):
            run([*control, "disable", "--quiet", "--now", "--no-block", self.service], check=False)
            os.unlink(self.unit_file(kept))
            run([*control, "daemon-reload"], check=False)
        self.signal(signal.SIGTERM)
        return True

    def wait_ended(self, grace: float) -> None:
        """SIGKILL after ``grace`` seconds. Raises UnitError when it stays all the same."""
        end, killed = time.monotonic() + grace, False
        while self.state != "exited":
            if time.monotonic() > end:
                if killed:
                    raise UnitError("%s does not end" % self.name)
                self.signal(signal.SIGKILL)
                end, killed = time.monotonic() + STARTS_WITHIN, True
            time.sleep(STEP)

    def forget(self) -> None:
        """Its files; the record last."""
        for ending in (".err", ".pid", ".json"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(ending))

    def signal(self, number: int) -> None:
        own = units.identity(self.folder, self.name)
        if own is not None and units.state_of(own) != "exited":
            with contextlib.suppress(ProcessLookupError):
                os.kill(own["pid"], number)

    # systemd

    @property
    def service(self) -> str:
        return "sparkop-%s.service" % self.name

    def unit_file(self, kept: str) -> str:
        folder = SYSTEM_UNITS if kept == units.SYSTEM else os.path.expanduser("~/.config/systemd/user")
        return os.path.join(folder, self.service)


CONTROLS = {units.SYSTEM: ["systemctl"], units.USER: ["systemctl", "--user"]}


def manager() -> tuple[str, list[str] | None]:
    """Who keeps it running, and the command that talks to it; None: nobody."""
    if os.path.isdir(SYSTEMD):
        kept = units.SYSTEM if os.getuid() == 0 else units.USER
        if kept == units.SYSTEM or run([*CONTROLS[kept], "show-environment"], check=False):
            return kept, CONTROLS[kept]
    return units.DETACHED, None


def run(command: list[str], check: bool = True) -> bool:
    """Raises UnitError with the command's own words."""
    place = "/run/user/%d" % os.getuid()
    environment = {"XDG_RUNTIME_DIR": place, **os.environ}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        if check:
            raise UnitError("%s: %s" % (" ".join(command), error)) from error
        return False
    if check and done.returncode != 0:
        raise UnitError("%s: %s" % (" ".join(command), done.stdout.decode("utf-8", "replace").strip()[-500:]))
    return done.returncode == 0


def unit_text(name: str, command: list[str], program: str, kept: str) -> str:
    """The service's file."""
    return UNIT % {
        "name": name,
        "program": program.replace("%", "%%"),
        "command": " ".join(quoted(word) for word in command),
        "target": "multi-user.target" if kept == units.SYSTEM else "default.target",
    }


def quoted(word: str) -> str:
    """A word of ExecStart, taken as it is: see systemd.service(5), Command lines."""
    for special, escaped in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        word = word.replace(special, escaped)
    return '"%s"' % word
