"""GPU facts of a node, by nvidia-smi. Stdlib-only, Python 3.8 or newer."""

from __future__ import annotations

from typing import Any


def gpu(timeout: float) -> dict[str, Any]:
    """nvidia-smi, both questions at once. On a GB10 many fields print ``[N/A]``: normal."""
    import subprocess  # a probe without this question does not pay for it

    asked = (
        "--query-gpu=name,driver_version,utilization.gpu,power.draw,temperature.gpu,clocks.gr",
        "--query-compute-apps=pid,process_name,used_memory",
    )
    running = [
        subprocess.Popen(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
        )
        for query in asked
    ]
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
