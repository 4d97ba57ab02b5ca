"""Faults of a host's services. The host's supervisor starts a dead service again after a second."""

from __future__ import annotations

import math
import signal
from pathlib import Path

from sparkop.lab.faults.base import Fault, Target
from sparkop.lab.host import docker_answers, listening
from sparkop.lab.layout import LabError
from sparkop.lab.processes import wait_for

SECONDS = 30.0


def _file(target: Target, name: str) -> Path:
    """A file of the supervisor, seen from outside."""
    return Path(f"/proc/{target.host.running()}/root/run/services", name)


def _signal(target: Target, service: str, number: signal.Signals) -> int:
    """Send a signal to a service. Returns its pid in the host. Raises LabError when it does not run."""
    try:
        pid = int(_file(target, f"{service}.pid").read_text())
    except (OSError, ValueError):
        raise LabError(f"{target.host.name}: {service} does not run") from None
    target.host.exec(["kill", f"-{number.name.removeprefix('SIG')}", str(pid)])
    return pid


def _kill_docker(target: Target) -> str:
    pid = _signal(target, "dockerd", signal.SIGKILL)
    wait_for(lambda: not _runs(target, pid), SECONDS, f"{target.host.name}: the end of dockerd")
    return "killed dockerd; its supervisor starts it again"


def _runs(target: Target, pid: int) -> bool:
    return Path(f"/proc/{target.host.running()}/root/proc/{pid}").exists()


def _wait_docker(target: Target) -> str:
    wait_for(
        lambda: docker_answers(target.host.running()), SECONDS, f"{target.host.name}: an answer of dockerd"
    )
    return "dockerd answers"


def _stop(target: Target, service: str) -> str:
    _file(target, f"hold-{service}").touch()
    pid = _signal(target, service, signal.SIGTERM)
    wait_for(lambda: not _runs(target, pid), SECONDS, f"{target.host.name}: the end of {service}")
    return f"stopped {service}"


def _start_docker(target: Target) -> str:
    _file(target, "hold-dockerd").unlink(missing_ok=True)
    return _wait_docker(target)


def _start_sshd(target: Target) -> str:
    _file(target, "hold-sshd").unlink(missing_ok=True)
    wait_for(lambda: listening(target.host.running(), 22), SECONDS, f"{target.host.name}: sshd")
    return "sshd listens"


def _freeze_docker(target: Target) -> str:
    def hangs() -> bool:
        _signal(target, "dockerd", signal.SIGSTOP)  # again: it may just have been started anew
        return not docker_answers(target.host.running())

    wait_for(hangs, SECONDS, f"{target.host.name}: the silence of dockerd")
    return "dockerd hangs: it takes connections and answers nothing"


def _thaw_docker(target: Target) -> str:
    _signal(target, "dockerd", signal.SIGCONT)
    return _wait_docker(target)


PYTHON = "/usr/local/bin/python3"
"""Found before the host's own Python, by SSH too."""
SKEW = 12
"""Seconds that the clock is ahead."""
_AHEAD = """#!/bin/sh
# A clock that is ahead, for programs given by -c. The kernel's is one for all hosts of the machine.
last=
for word; do
    shift
    [ "$last" != -c ] || word="import time; _time = time.time; time.time = lambda: _time() + {ahead}
$word"
    set -- "$@" "$word"
    last=$word
done
exec /usr/bin/python3 "$@"
"""


def _skew(target: Target) -> str:
    ahead = target.seconds(SKEW, least=-math.inf)
    program = Path(f"/proc/{target.host.running()}/root{PYTHON}")
    program.write_text(_AHEAD.format(ahead=ahead))
    program.chmod(0o755)
    return f"sparkop's programs see a clock that is {abs(ahead):g} s {'ahead' if ahead >= 0 else 'behind'}"


def _set_clock(target: Target) -> str:
    Path(f"/proc/{target.host.running()}/root{PYTHON}").unlink(missing_ok=True)
    return "the clock is right"


FAULTS = (
    Fault(
        "clock-skew",
        f"Let sparkop's programs see a clock that is {SKEW} s ahead (--amount SECONDS; negative: behind).",
        _skew,
        _set_clock,
    ),
    Fault("dockerd-kill", "Kill dockerd with SIGKILL; it comes back by itself.", _kill_docker, _wait_docker),
    Fault(
        "dockerd-stop",
        "Stop dockerd in good order and keep it down.",
        lambda target: _stop(target, "dockerd"),
        _start_docker,
    ),
    Fault("dockerd-freeze", "Hang dockerd (SIGSTOP).", _freeze_docker, _thaw_docker),
    Fault(
        "sshd-stop",
        "Stop sshd: new connections are refused, old ones stay.",
        lambda target: _stop(target, "sshd"),
        _start_sshd,
    ),
)
