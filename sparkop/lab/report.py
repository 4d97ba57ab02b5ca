"""What ``lab ps`` and ``lab logs`` show."""

from __future__ import annotations

from pathlib import Path

from sparkop.lab.host import Host, docker_answers, listening
from sparkop.lab.lab import Lab
from sparkop.lab.layout import MANAGEMENT, LabNameError

Row = dict[str, object]


def report(lab: Lab) -> list[Row]:
    """One row a host: name, state (up, starting, frozen, off), address, memory and disk in bytes, cables out,
    pid."""
    return [_row(host, lab.config.disk_bytes) for host in lab.hosts]


def _row(host: Host, disk_bytes: int) -> Row:
    pid = host.pid
    used, limit = host.groups.memory(host.name) if pid else (0, host.memory_bytes)
    disk_used, disk_limit = host.disk() if pid else (0, disk_bytes)
    unplugged = sorted(file.name for file in host.paths.unplugged.glob("*"))
    return {
        "host": host.name,
        "state": _state(host, pid),
        "address": MANAGEMENT.address(int(host.name[-1])),
        "memory_used": used,
        "memory_limit": limit,
        "disk_used": disk_used,
        "disk_limit": disk_limit,
        "unplugged": unplugged,
        "pid": pid,
    }


def _state(host: Host, pid: int | None) -> str:
    if pid is None:
        return "off"
    if host.groups.frozen(host.name):
        return "frozen"
    return "up" if listening(pid, 22) and docker_answers(pid) else "starting"


def table(rows: list[Row]) -> str:
    lines = [f"{'HOST':<10}{'STATE':<10}{'ADDRESS':<14}{'MEMORY':<16}{'DISK':<18}UNPLUGGED"]
    for row in rows:
        memory = f"{_gib(row['memory_used'])}/{_gib(row['memory_limit'])} GiB"
        disk = f"{_gib(row['disk_used'])}/{_gib(row['disk_limit'])} GiB"
        unplugged = row["unplugged"]
        assert isinstance(unplugged, list)
        lines.append(
            f"{row['host']:<10}{row['state']:<10}{row['address']:<14}{memory:<16}{disk:<18}"
            f"{', '.join(unplugged)}"
        )
    return "\n".join(line.rstrip() for line in lines)


def _gib(amount: object) -> str:
    assert isinstance(amount, int)
    return f"{amount / (1 << 30):.1f}"


def tails(folder: Path, service: str | None, lines: int) -> str:
    """The last lines of each log in a folder, or of one service. Raises LabNameError when there is none."""
    logs = {file.stem: file for file in sorted(folder.glob("*.log"))}
    if service and service not in logs:
        raise LabNameError(f"no log {service!r} in {folder}", remedy=f"name one of {', '.join(logs)}")
    text = []
    for name in [service] if service else logs:
        if not service:
            text.append(f"== {name} ==\n")
        text.append("".join(logs[name].read_text(errors="replace").splitlines(keepends=True)[-lines:]))
    return "".join(text)
