"""GPU facts of a node, by nvidia-smi. Stdlib-only, Python 3.8 or newer."""

from __future__ import annotations

from typing import Any

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
    row = row + [""] * (6 - len(row))
    keys = ("utilization_percent", "power_w", "temperature_c", "clock_mhz")
    figures = {key: figure(text) for key, text in zip(keys, row[2:])}  # noqa: B905 (3.8)
    return {"name": row[0], "driver": row[1] or None, **figures}


def user(row: list[str]) -> dict[str, Any]:
    used = figure(row[-1])
    return {
        "pid": int(row[0]),
        "name": ",".join(row[1:-1]),
        "used_bytes": None if used is None else int(used) << 20,
    }


def figure(text: str) -> float | None:
    try:
        return float(text.split()[0])
    except (ValueError, IndexError):
        return None
