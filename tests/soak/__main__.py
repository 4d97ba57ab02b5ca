"""Random faults under a running watch, with a client that asks all the while: ``python -m tests.soak``.

At the end the cluster is as desired, every fault is in the history, and nothing was restarted without one.
Needs root on Linux (the lab); makes a lab of its own and takes it down. Exit 0, or 1 with what was wrong.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkop.lab.enter import command_inside, environment
from tests.labkit import temporary_lab
from tests.scenarios.conftest import ROOT, STANDIN, User
from tests.scenarios.test_watch import Watcher

Event = dict[str, Any]


@dataclass(frozen=True)
class Trouble:
    """A fault, and what watch does about it."""

    fault: str
    node: str
    restarts: bool = True
    mend: bool = False
    seconds: float = 60.0

    def detected(self, event: Event) -> bool:
        return event["event"] in ("planned", "fault")

    def over(self, event: Event) -> bool:
        if self.mend:
            return event["event"] == "remembered" and event["kind"] == "mended"
        if self.restarts:
            return event["event"] == "serving"
        return event["event"] == "start-done" and event["resource"].startswith("memguard")


TROUBLES = (
    Trouble("kill-rank", "spark-1"),
    Trouble("kill-rank", "spark-2"),
    Trouble("exit-zero", "spark-2"),
    Trouble("kill-launcher", "spark-1"),
    Trouble("degenerate", "spark-1", seconds=150),
    Trouble("kill-guard", "spark-2", restarts=False),
    Trouble("cable", "spark-2", restarts=False, mend=True),
)
LONG = Trouble("wedge", "spark-1", seconds=300)
"""Its two probes take their deadlines: only in a soak that is long enough."""


def client_of(user: User) -> subprocess.Popen[str]:
    """A process inside the lab, so that this one stays outside as a user is."""
    return subprocess.Popen(
        command_inside(user.lab, [sys.executable, "-m", "tests.soak.client"]),
        cwd=ROOT,
        env=environment(user.lab.name),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )


def soak(user: User, minutes: float, chance: random.Random) -> list[str]:
    """What was wrong; empty when nothing was."""
    user.sparkop("apply", STANDIN, check=0)
    watcher = Watcher(user)
    watcher.until(lambda event: event.get("verdict") == "serving", 60)
    client = client_of(user)
    troubles = TROUBLES + ((LONG,) if minutes >= 10 else ())
    wrong: list[str] = []
    done: list[Trouble] = []
    detect: list[float] = []
    repair: list[float] = []
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end and not wrong:
        trouble = chance.choice(troubles)
        at = len(watcher.said())
        user.sparkop("lab", "break", trouble.fault, trouble.node, check=0)
        began = time.monotonic()
        print(f"{trouble.fault} on {trouble.node} ...", end=" ", flush=True)
        try:
            at = watcher.until(trouble.detected, trouble.seconds, at)
            detect.append(time.monotonic() - began)
            if trouble.mend:
                at = watcher.until(lambda event: event["event"] == "remembered", trouble.seconds, at)
                user.sparkop("lab", "mend", trouble.fault, trouble.node, check=0)
            watcher.until(trouble.over, trouble.seconds, at)
            repair.append(time.monotonic() - began)
            print(f"seen after {detect[-1]:.1f} s, over after {repair[-1]:.1f} s")
        except AssertionError as error:
            wrong.append(f"{trouble.fault} on {trouble.node}: {error}")
        done.append(trouble)
        time.sleep(chance.uniform(3, 12))
    client.terminate()
    asked, _ = client.communicate(timeout=60)
    code = watcher.end()
    if code != 143:
        wrong.append(f"watch exited {code}")
    wrong += afterwards(user, done)
    print(f"{len(done)} faults; client: {asked.strip()}")
    if detect and repair:
        print(f"medians: seen {statistics.median(detect):.1f} s, over {statistics.median(repair):.1f} s")
    return wrong


def afterwards(user: User, done: list[Trouble]) -> list[str]:
    """As desired, every fault in the history, no restart without a cause."""
    wrong = []
    found = user.sparkop("diff", STANDIN)
    if found.code != 0:
        wrong.append(f"not converged: {found.out}")
    events = user.sparkop("events", STANDIN, "-n", "200", "-o", "json", check=0).json
    count: Callable[[str], int] = [event["event"] for event in events].count
    restarts = sum(trouble.restarts for trouble in done)
    if count("restart") != restarts:
        wrong.append(f"{count('restart')} restarts for {restarts} faults: {events}")
    cables = sum(trouble.mend for trouble in done)
    if count("fault") < cables or count("mended") < cables:
        wrong.append(f"{cables} cables pulled, but {count('fault')} faults and {count('mended')} mended")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=None, help="repeats the order of an earlier soak")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    with temporary_lab(engines="standin") as lab, tempfile.TemporaryDirectory() as home:
        wrong = soak(User(lab, Path(home)), options.minutes, random.Random(seed))
    for each in wrong:
        print(f"wrong: {each}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
