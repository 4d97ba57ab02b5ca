"""Our programs that run on a node without a container: what they are, and whether they live. Reads only.

Stdlib-only, Python 3.8 or newer. In ``units/`` of the state folder, for each::

    NAME.json   {"version": 1, "name", "labels", "argv", "kept"}: what it is; written by act.py
    NAME.pid    {"pid", "started", "boot"}: written by the program itself whenever it starts

A number alone proves nothing: it passes to other processes. So a unit lives when a process of that number
started in that tick of that boot. ``kept`` says who starts it again: ``systemd``, ``systemd --user`` (after
a reboot only when the user lingers), or ``detached`` (nobody but sparkop).
"""

from __future__ import annotations

import json
import os

from . import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Json = Any

FOLDER = "units"
SYSTEM, USER, DETACHED = "systemd", "systemd --user", "detached"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
LINGER = "/var/lib/systemd/linger"


def read(state: str, errors: dict[str, str]) -> list[dict[str, Any]]:
    """The document's ``units``. One that can't be read is an error of its own. Raises OSError."""
    folder = os.path.join(os.path.expanduser(state), FOLDER)
    found = []
    for file in wire.listed(folder):
        if file.endswith(".json"):
            try:
                found.append(unit(folder, file[: -len(".json")]))
            except Exception as error:
                errors["units:%s" % file] = wire.describe(error)
    return found


def unit(folder: str, name: str) -> dict[str, Any]:
    """One unit, in the words that containers have. Raises OSError, ValueError, KeyError, TypeError."""
    record = json.loads(wire.read_text(os.path.join(folder, name + ".json")))
    own = identity(folder, name)
    state = state_of(own)
    return {
        "name": name,
        "labels": {str(key): str(value) for key, value in record["labels"].items()},
        "kept": str(record["kept"]),
        "boots": comes_back(str(record["kept"])),
        "state": state,
        "pid": own["pid"] if own and state != "exited" else None,
        "started_at": wall_time(own["started"]) if own and state != "exited" else None,
    }


def identity(folder: str, name: str) -> dict[str, Any] | None:
    """What the program has written about itself; None when it has not, or nothing that makes sense."""
    try:
        return identity_of(json.loads(wire.read_text(os.path.join(folder, name + ".pid"))))
    except (OSError, ValueError):
        return None


def identity_of(found: Any) -> dict[str, Any] | None:
    """The process that a record names; None when it names none."""
    try:
        return {"pid": int(found["pid"]), "started": int(found["started"]), "boot": str(found["boot"])}
    except (ValueError, KeyError, TypeError):
        return None


def process(pid: int) -> dict[str, Any]:
    """What names a process of this boot. Raises OSError when there is none."""
    fields = wire.read_text("/proc/%d/stat" % pid).rpartition(")")[2].split()
    return {"pid": pid, "started": int(fields[19]), "boot": wire.maybe(BOOT_ID) or ""}


def state_of(own: dict[str, Any] | None) -> str:
    """``running``, ``paused`` (stopped by a signal) or ``exited``."""
    if own is None or own["boot"] != (wire.maybe(BOOT_ID) or ""):
        return "exited"
    fields = wire.process_fields(own["pid"])
    if len(fields) < 20 or int(fields[19]) != own["started"] or fields[0] in ("Z", "X"):
        return "exited"
    return "paused" if fields[0] in wire.HALTED else "running"


def comes_back(kept: str) -> bool:
    """Whether it runs again after a reboot before anyone logs in."""
    if kept != USER:
        return kept == SYSTEM
    import pwd

    return os.path.exists(os.path.join(LINGER, pwd.getpwuid(os.getuid()).pw_name))


def wall_time(ticks: int) -> str:
    """Docker's form of a moment that is given in clock ticks since the boot."""
    import time

    ago = float(wire.read_text("/proc/uptime").split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    moment = time.time() - max(0.0, ago)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment)) + "%sZ" % ("%.3f" % (moment % 1))[1:]
