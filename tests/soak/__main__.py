"""Random faults under a running watch, with a client that asks all the while: ``python -m tests.soak``.

At the end the cluster is as desired, every fault is in the history, nothing was restarted without one, the
client's requests failed only while something was broken, and watch has not grown.
Needs root on Linux (the lab); makes a lab of its own and takes it down. Exit 0, or 1 with what was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sparkop.lab.enter import command_inside, environment
from tests.drift.watcher import Event, Watcher, verdict
from tests.labkit import temporary_lab
from tests.scenarios.conftest import ROOT, STANDIN, User

SLACK = 3.0
"""Seconds after its end in which a fault may still cost a request."""
REST = 80.0
MOST_AT_REST = 0.005
"""Part of a core."""
GROWTH = 1.3
"""How many times its size of the first minute watch may have at the end."""


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
        command_inside(user.lab.name, [sys.executable, "-m", "tests.soak.client"]),
        cwd=ROOT,
        env=environment(user.lab.name),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )


@dataclass(frozen=True)
class Use:
    """What a process uses: resident bytes, and seconds of a core since its start."""

    at: float
    resident: int
    busy: float


def use_of(pid: int) -> Use:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    return Use(time.monotonic(), int(fields[21]) * page, (int(fields[11]) + int(fields[12])) / ticks)


@dataclass
class Soak:
    """What has happened so far."""

    done: list[Trouble] = field(default_factory=list)
    windows: list[tuple[float, float]] = field(default_factory=list)
    """From a fault to its end, seconds since 1970."""
    detect: dict[str, list[float]] = field(default_factory=dict)
    repair: dict[str, list[float]] = field(default_factory=dict)
    uses: list[Use] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def at_rest(user: User) -> list[str]:
    """What a watch costs that looks every ten seconds at a cluster with which nothing is wrong."""
    watcher = Watcher(user, STANDIN, period=10.0, name="rest")
    watcher.until(verdict("serving"), 60)
    time.sleep(10)
    before = use_of(watcher.process.pid)
    time.sleep(REST)
    after = use_of(watcher.process.pid)
    watcher.end()
    part = (after.busy - before.busy) / (after.at - before.at)
    print(f"at rest: {100 * part:.2f} % of a core, {after.resident >> 20} MiB; load {os.getloadavg()[0]:.1f}")
    return [f"{100 * part:.2f} % of a core at rest"] if part > MOST_AT_REST else []


def soak(user: User, minutes: float, chance: random.Random) -> list[str]:
    """What was wrong; empty when nothing was."""
    user.sparkop("apply", STANDIN, check=0)
    resting = at_rest(user)
    watcher = Watcher(user, STANDIN)
    watcher.until(verdict("serving"), 60)
    client = client_of(user)
    troubles = TROUBLES + ((LONG,) if minutes >= 10 else ())
    soaked = Soak()
    end = time.monotonic() + 60 * minutes
    time.sleep(5)
    while time.monotonic() < end and not soaked.wrong:
        soaked.uses.append(use_of(watcher.process.pid))
        one(user, watcher, chance.choice(troubles), soaked)
        time.sleep(chance.uniform(3, 12))
    client.terminate()
    asked, _ = client.communicate(timeout=60)
    soaked.uses.append(use_of(watcher.process.pid))
    code = watcher.end()
    if code != 143:
        soaked.wrong.append(f"watch exited {code}")
    return resting + soaked.wrong + afterwards(user, soaked.done) + _served(asked, soaked) + _told(soaked)


def one(user: User, watcher: Watcher, trouble: Trouble, soaked: Soak) -> None:
    """Break something, and wait until it is seen and over."""
    at, began, clock = len(watcher.said()), time.time(), time.monotonic()
    print(f"{trouble.fault} on {trouble.node} ...", end=" ", flush=True)
    user.sparkop("lab", "break", trouble.fault, trouble.node, check=0)
    try:
        at = watcher.until(trouble.detected, trouble.seconds, at)
        seen = max(0.0, watcher.at(at) - began)
        if trouble.mend:
            at = watcher.until(lambda event: event["event"] == "remembered", trouble.seconds, at)
            user.sparkop("lab", "mend", trouble.fault, trouble.node, check=0)
        at = watcher.until(trouble.over, trouble.seconds, at)
        over = max(0.0, watcher.at(at) - began)
        soaked.detect.setdefault(trouble.fault, []).append(seen)
        soaked.repair.setdefault(trouble.fault, []).append(over)
        minute = (clock - soaked.uses[0].at) / 60
        print(f"seen after {seen:.1f} s, over after {over:.1f} s (minute {minute:.0f})")
    except AssertionError as error:
        soaked.wrong.append(f"{trouble.fault} on {trouble.node}: {error}")
    soaked.done.append(trouble)
    soaked.windows.append((began, time.time()))


def _served(asked: str, soaked: Soak) -> list[str]:
    """The client's failed requests that no fault accounts for."""
    told = json.loads(asked)
    stray = [
        (began, ended)
        for began, ended in told["failed"]
        if not any(began <= until + SLACK and ended >= since for since, until in soaked.windows)
    ]
    print(f"{len(soaked.done)} faults; client: {told['answered']} answered, {len(told['failed'])} failed")
    return [f"requests failed while nothing was broken: {stray}"] if stray else []


def _told(soaked: Soak) -> list[str]:
    """The medians, and what watch used."""
    print("| fault | times | seen after | over after |\n| --- | --- | --- | --- |")
    for fault, seen in sorted(soaked.detect.items()):
        medians = statistics.median(seen), statistics.median(soaked.repair[fault])
        print(f"| {fault} | {len(seen)} | {medians[0]:.1f} s | {medians[1]:.1f} s |")
    every = [[each for of in kind.values() for each in of] for kind in (soaked.detect, soaked.repair)]
    if every[0]:
        medians = statistics.median(every[0]), statistics.median(every[1])
        print(f"| all | {len(every[0])} | {medians[0]:.1f} s | {medians[1]:.1f} s |")
    first, last = soaked.uses[0], soaked.uses[-1]
    early = next((use for use in soaked.uses if use.at - first.at >= 60), last)
    part = (last.busy - first.busy) / max(1.0, last.at - first.at)
    sizes = [use.resident >> 20 for use in (first, early, last)]
    print(f"watch: {sizes[0]} MiB at first, {sizes[1]} after a minute, {sizes[2]} at the end; ", end="")
    print(f"{100 * part:.1f} % of a core; load {os.getloadavg()[0]:.1f}")
    grown = last.resident > GROWTH * early.resident
    return [f"watch has grown: {sizes} MiB"] if grown else []


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
