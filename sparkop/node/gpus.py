"""GPU facts of a node, by nvidia-smi. Stdlib-only, Python 3.8 or newer."""

from __future__ import annotations

import re
from typing import Any, Iterable

from . import wire

LOST = re.compile(r"NVML[^\n]{0,40}Unknown Error|NVMLError_Unknown", re.IGNORECASE)
"""What programs in a container say that has lost its GPU (after a reload of the service manager)."""
LOG_LINES = 200
MOST_ANSWER = 2000
QUESTIONS = (
    "--query-gpu=name,driver_version,utilization.gpu,power.draw,temperature.gpu,clocks.gr",
    "--query-compute-apps=pid,process_name,used_memory",
)


def ask() -> list[Any]:
    """Start nvidia-smi for both questions; what else there is to read is read meanwhile."""
    import subprocess  # a probe without this question does not pay for it

    return [
        subprocess.Popen(
            ["nvidia-smi", question, "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
        )
        for question in QUESTIONS
    ]


def answer(running: list[Any], timeout: float) -> dict[str, Any]:
    """What it said. On a GB10 many fields are ``[N/A]``: normal. Raises OSError."""
    tables = []
    try:
        for process in running:
            output, _ = process.communicate(timeout=timeout)
            if process.returncode:
                raise OSError("nvidia-smi ended with %d: %s" % (process.returncode, output.strip()[:300]))
            tables.append([[f.strip() for f in line.split(",")] for line in output.splitlines() if line])
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
    return {"devices": [gpu_device(row) for row in tables[0]], "processes": [user(row) for row in tables[1]]}


def gpu_device(row: list[str]) -> dict[str, Any]:
    """A row of nvidia-smi about a GPU."""
    row = row + [""] * (6 - len(row))
    keys = ("utilization_percent", "power_w", "temperature_c", "clock_mhz")
    figures = {key: figure(text) for key, text in zip(keys, row[2:])}  # noqa: B905 (3.8)
    return {"name": row[0], "driver": row[1] or None, **figures}


def user(row: list[str]) -> dict[str, Any]:
    """A row about a process that holds GPU memory; its bytes are None where they are not told."""
    used = figure(row[-1])
    return {
        "pid": int(row[0]),
        "name": ",".join(row[1:-1]),
        "used_bytes": None if used is None else int(used) << 20,
    }


def figure(text: str) -> float | None:
    """The number that a field begins with; None for ``[N/A]`` and the like."""
    try:
        number = float(text.split()[0])
    except (ValueError, IndexError):
        return None
    return number if -1e18 < number < 1e18 else None  # "nan" is a word too


def lost(names: Iterable[str], always: bool, timeout: float) -> dict[str, dict[str, Any]]:
    """By container: the line of its log that says so (``log``), and what nvidia-smi in it says (``exec``).

    nvidia-smi is asked only where the log gives a reason to, or ``always``: its start costs a second. None
    for what says nothing: no such line; no such container or program. Raises OSError.
    """
    engine = wire.Engine(timeout=timeout)
    found = {}
    for name in names:
        path = "/containers/%s" % name
        try:
            lines = engine.request("GET", path + "/logs?stdout=1&stderr=1&tail=%d" % LOG_LINES)
            said = next((line for line in wire.log_text(lines).splitlines() if LOST.search(line)), None)
            answer = ask_inside(engine, path) if said or always else None
        except wire.EngineError as error:
            if error.status not in (404, 409):  # gone, or it does not run
                raise
            continue
        found[name] = {"log": said and said.strip()[:300], "exec": answer}
    return found


def ask_inside(engine: wire.Engine, path: str) -> str | None:
    """``ok``, or what nvidia-smi said instead; None when the image has none."""
    asked = {"AttachStdout": True, "AttachStderr": True, "Tty": True, "Cmd": ["nvidia-smi", "-L"]}
    identity = engine.json("POST", path + "/exec", asked)["Id"]
    try:
        said = engine.request("POST", "/exec/%s/start" % identity, {"Detach": False, "Tty": True})
    except wire.EngineError as error:
        if error.status in (400, 500):  # no such program
            return None
        raise
    code = engine.json("GET", "/exec/%s/json" % identity)["ExitCode"]
    if code in (126, 127):
        return None
    return "ok" if code == 0 else said.decode("utf-8", "replace").strip()[:MOST_ANSWER]
