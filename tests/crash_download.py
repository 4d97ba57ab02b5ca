"""Interrupt downloads on a real lab at random moments, in every way there is; each must end verified.

``python -m tests.crash --download 20``: twenty interruptions on a lab of its own (root on Linux, no
engines), of a repository as the public hub has them (Xet hashes, addresses that expire): SIGKILL of sparkop,
of the transfer program on a node, of the ssh that carries a copy; a power cut; a cut management or fabric
cable; a hub that cuts answers off, or answers 429, 503 and 500. After each: `sparkop download` exits with 0,
another program's SHA-256 agrees on both nodes, nothing is left over, and what the hub sent again is counted.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sparkop.lab import hub
from sparkop.lab.lab import Lab
from tests.labkit import temporary_lab

MIB = 1 << 20
SIZE = 96 * MIB
RATE = 4 * MIB
"""Bytes a second a connection while it is interrupted: a download takes several seconds then."""
STREAMS = 8
BOUND = 64 * MIB
"""Bytes that one stream may get again."""
PATIENCE = 300.0
REPOSITORY = "test/weights"
FOLDER = "/root/models/two wörds"
SPARKOP = [sys.executable, "-m", "sparkop"]
NODES = ("spark-1", "spark-2")
SPEC = f"""\
apiVersion: sparkop/v1
name: crash
nodes:
  - {{name: spark-1, ssh: root@spark-1.lab}}
  - {{name: spark-2, ssh: root@spark-2.lab}}
weights: {{repository: {REPOSITORY}, path: "{FOLDER}"}}
image: {{reference: lab/standin}}
engine: {{kind: vllm}}
api: {{servedNames: [m]}}
"""

Process = subprocess.Popen[bytes]
Mend = Callable[[], object]


def nothing() -> None:
    """Is to be mended."""


def broken(fault: str) -> Callable[[Process, Lab, str], Mend]:
    """A fault of the lab."""

    def way(_process: Process, _lab: Lab, node: str) -> Mend:
        sparkop("lab", "break", fault, node)
        word = ("boot", node) if fault == "power-cut" else ("mend", fault, node)
        return lambda: sparkop("lab", *word)

    return way


def sparkop_killed(process: Process, _lab: Lab, _node: str) -> Mend:
    process.send_signal(signal.SIGKILL)
    return nothing


def killed(pattern: str) -> Callable[[Process, Lab, str], Mend]:
    """SIGKILL for the processes of a node that look like this."""

    def way(_process: Process, lab: Lab, node: str) -> Mend:
        lab.host(node).exec(["pkill", "-KILL", "-f", pattern], check=False)
        return nothing

    return way


def stumbling(**faults: object) -> Callable[[Process, Lab, str], Mend]:
    """The hub misbehaves, and goes on to do so while it is mended."""

    def way(_process: Process, _lab: Lab, _node: str) -> Mend:
        hub.turn(healthy(**faults))
        return nothing

    return way


def healthy(**more: object) -> hub.Knobs:
    """Like the public hub."""
    return hub.Knobs(xet=(REPOSITORY,), signed_seconds=3, **more)  # type: ignore[arg-type]


BUSY = tuple(hub.Failure(status, count=2, retry_after=1) for status in (429, 503, 500))
WAYS: dict[str, Callable[[Process, Lab, str], Mend]] = {
    "kill sparkop": sparkop_killed,
    "kill transfer": killed("transfer.pyz"),
    "kill ssh of a copy": killed("ssh -F none"),
    "power cut": broken("power-cut"),
    "management cut": broken("mgmt-cut"),
    "fabric cut": broken("cable"),
    "answers cut off": stumbling(cut_after=3 * MIB, cut_count=4, cut_match="/files/"),
    "429, 503, 500": stumbling(failures=BUSY),
}


def sparkop(*words: str) -> str:
    """Run it to its end. Raises RuntimeError with what it said when it fails."""
    done = subprocess.run(
        [*SPARKOP, *words], capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        raise RuntimeError(f"sparkop {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def sent() -> int:
    """Bytes of files that the hub has sent."""
    return sum(request.bytes for request in hub.requests() if request.status in (200, 206))


def interrupt(number: int, lab: Lab, spec: str, chance: random.Random) -> str:
    """One download, interrupted and mended. Returns a line that tells it. Raises RuntimeError."""
    name = list(WAYS)[number % len(WAYS)]
    node = chance.choice(NODES)
    data = chance.randbytes(SIZE)
    files: dict[str, Path | bytes] = {"config.json": b"{}", "model.bin": data, "b.bin": data[: 9 * MIB]}
    hub.add_repository(files, REPOSITORY)
    hub.turn(healthy(bytes_per_second=RATE))
    before = sent()
    process = subprocess.Popen(
        [*SPARKOP, "download", spec, "--update"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    share = chance.uniform(0.0, 0.95)
    try:
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and sent() - before < share * SIZE:
            if time.monotonic() > deadline:
                raise RuntimeError("the download does not move")
            time.sleep(0.05)
        mend = WAYS[name](process, lab, node)
        time.sleep(chance.uniform(0.0, 3.0))  # how long the fault lasts
        mend()
        process.wait(PATIENCE)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if not name.startswith(("answers", "429")):
        hub.turn(healthy())
    began = time.monotonic()
    sparkop("download", spec)
    took = time.monotonic() - began
    for each in NODES:
        check(lab, each, hashlib.sha256(data).hexdigest())
    again = sent() - before - SIZE - 9 * MIB - 2
    if again > STREAMS * BOUND:
        raise RuntimeError(f"{again / MIB:.0f} MiB were sent again")
    ended = f"exit {process.returncode:<3}  again in {took:3.0f} s  {again / MIB:5.1f} MiB sent again"
    return f"{name:<18} {node}  at {share:4.0%}  {ended}"


def check(lab: Lab, node: str, wanted: str) -> None:
    """The bytes are there, and nothing beside them. Raises RuntimeError."""
    names = set(lab.host(node).exec(["ls", "-A", FOLDER]).stdout.split())
    if names != {"config.json", "model.bin", "b.bin"}:
        raise RuntimeError(f"{node} has {sorted(names)}")
    told = lab.host(node).exec(["sha256sum", f"{FOLDER}/model.bin"]).stdout.split()[0]
    if told != wanted:
        raise RuntimeError(f"{node} has other bytes")


def run(count: int, chance: random.Random) -> int:
    """How many of so many interruptions did not end verified."""
    failures = 0
    with temporary_lab() as lab, tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        spec = Path(folder) / "spec.yaml"
        spec.write_text(SPEC)
        for number in range(count):
            try:
                print(f"{number + 1:>3}  {interrupt(number, lab, str(spec), chance)}", flush=True)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                failures += 1
                print(f"{number + 1:>3}  {list(WAYS)[number % len(WAYS)]}  FAILED  {error}", flush=True)
                hub.turn(hub.Knobs())
                for node in NODES:
                    subprocess.run([*SPARKOP, "lab", "boot", node], capture_output=True)
    print(f"{count - failures} of {count} ended verified", flush=True)
    return failures
