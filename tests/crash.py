"""Interrupt apply and stop on a real lab at random moments; a plain apply must then converge.

``python -m tests.crash --lab 20``: twenty interruptions on a lab of its own (root on Linux, stand-in engine):
SIGKILL and SIGTERM to sparkop, a cut management cable, a node without power. After each: apply exits with 0,
diff with 0, there is one container a rank, and the memory of a killed writer's lease is taken over.

The moments are spread over the time that each command takes on this machine: it is measured first, and again
whenever a command has ended before its interruption. Those are counted apart: they prove little.

``python -m tests.crash --download 20``: twenty interruptions of a download, see ``crash_download.py``.
``python -m tests.crash --copy 20``: twenty faults while weights go to four hosts, see ``crash_copy.py``.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests import crash_copy, crash_download
from tests.labkit import temporary_lab

ROOT = Path(__file__).parent.parent
SPEC = str(ROOT / "specs" / "lab-standin.yaml")
SPARKOP = [sys.executable, "-m", "sparkop"]
NODES = ("spark-1", "spark-2")
START_UP = 0.25
"""Part of a command in which it only starts and reads: fewer moments fall there."""
PATIENCE = 240.0
"""Seconds that mending may take; a dead writer's lease alone takes thirty."""

Command = list[str]


def sparkop(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run it to its end. Raises RuntimeError with what it said when it fails."""
    done = subprocess.run(
        [*SPARKOP, *words], capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL
    )
    if check and done.returncode != 0:
        raise RuntimeError(f"sparkop {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def killed(process: subprocess.Popen[bytes], _node: str) -> Callable[[], object]:
    """The laptop's battery is empty."""
    process.send_signal(signal.SIGKILL)
    return lambda: None


def terminated(process: subprocess.Popen[bytes], _node: str) -> Callable[[], object]:
    """A polite request."""
    process.send_signal(signal.SIGTERM)
    return lambda: None


def cut(_process: subprocess.Popen[bytes], node: str) -> Callable[[], object]:
    """The connection to a node is gone, without a word."""
    sparkop("lab", "break", "mgmt-cut", node)
    return partial(sparkop, "lab", "mend", "mgmt-cut", node)


def power_cut(_process: subprocess.Popen[bytes], node: str) -> Callable[[], object]:
    """A node loses power."""
    sparkop("lab", "break", "power-cut", node)
    return partial(sparkop, "lab", "boot", node)


WAYS: tuple[Callable[[subprocess.Popen[bytes], str], Callable[[], object]], ...] = (
    killed,
    terminated,
    cut,
    power_cut,
)


KINDS = ("stop", "start", "change")
"""What is interrupted: a stop, a start after a stop, or a change of the spec."""


class Moments:
    """How long each kind of command takes here, and when to interrupt it."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.lasts: dict[str, float] = {}
        self.inside = 0

    def measure(self) -> None:
        """Each kind once, undisturbed."""
        for kind in KINDS:
            words, _ = prepare(kind, self.chance)
            began = time.monotonic()
            sparkop(*words)
            self.lasts[kind] = time.monotonic() - began
            if kind == "stop":
                sparkop("apply", SPEC, "--yes")

    def choose(self, kind: str) -> float:
        """Seconds after the command's start; nine of ten are later than ``START_UP``."""
        part = self.chance.uniform(0.02, START_UP) if self.chance.random() < 0.1 else None
        return self.lasts[kind] * (part or self.chance.uniform(START_UP, 0.95))


def interrupt(number: int, moments: Moments) -> str:
    """One interruption, mended. Returns a line that tells it. Raises RuntimeError when it could not be."""
    chance = moments.chance
    way, node, kind = WAYS[number % len(WAYS)], chance.choice(NODES), KINDS[number % len(KINDS)]
    words, size = prepare(kind, chance)
    after, lasts = moments.choose(kind), moments.lasts[kind]
    began = time.monotonic()
    process = subprocess.Popen(
        [*SPARKOP, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        try:
            process.wait(after)
            moments.lasts[kind] = time.monotonic() - began
        except subprocess.TimeoutExpired:
            pass
        mend = way(process, node)
        inside = process.poll() is None or process.returncode < 0
        process.wait(PATIENCE)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    mend()
    began = time.monotonic()
    sparkop("apply", SPEC, "--yes", *size)
    sparkop("diff", SPEC, *size)
    took = time.monotonic() - began
    ranks(2)
    moments.inside += inside
    when = f"at {after:.1f} of {lasts:.1f} s" if inside else "ended before"
    told = f"{kind:<6} {way.__name__:<10} {node}  {when:<16} exit {process.returncode:<4}"
    return f"{told} mended in {took:.0f} s"


def prepare(kind: str, chance: random.Random) -> tuple[Command, list[str]]:
    """The command of a kind, and what was set with it."""
    size = ["--set", f"memory.kvCache={chance.randint(32, 96)}MiB"]
    if kind == "stop":
        return ["stop", SPEC, "--yes"], []
    if kind == "start":
        sparkop("stop", SPEC, "--yes")
    return ["apply", SPEC, "--yes", *size], size


def ranks(wanted: int) -> None:
    """Count the rank containers on all hosts, running or not. Raises RuntimeError."""
    listing = "docker ps -aq --filter label=sparkop.role=rank | wc -l"
    found = sum(int(sparkop("lab", "shell", node, "sh", "-c", listing).stdout) for node in NODES)
    if found != wanted:
        raise RuntimeError(f"{found} rank containers, not {wanted}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--lab", type=int, metavar="N", help="how many interruptions of apply and stop")
    what.add_argument("--download", type=int, metavar="N", help="how many interruptions of a download")
    what.add_argument("--copy", type=int, metavar="N", help="how many faults while weights are distributed")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="to see the same moments again")
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    if asked.download:
        return 1 if crash_download.run(asked.download, random.Random(asked.seed)) else 0
    if asked.copy:
        return 1 if crash_copy.run(asked.copy, random.Random(asked.seed)) else 0
    failures = 0
    with temporary_lab(engines="standin") as lab:
        os.environ["XDG_STATE_HOME"] = str(lab.paths.root / "xdg")
        sparkop("apply", SPEC, "--yes")
        moments = Moments(random.Random(asked.seed))
        moments.measure()
        took = ", ".join(f"{kind} {seconds:.1f} s" for kind, seconds in moments.lasts.items())
        print(f"undisturbed: {took}", flush=True)
        for number in range(asked.lab):
            try:
                print(f"{number + 1:>3}  {interrupt(number, moments)}", flush=True)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                failures += 1
                print(f"{number + 1:>3}  FAILED  {error}", flush=True)
    print(f"{asked.lab - failures} of {asked.lab} mended, {moments.inside} interrupted inside", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
