"""A running ``sparkop watch``, what it says, and a stage on which things are broken for it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from sparkop.lab.faults import FAULTS, Target
from tests.scenarios.conftest import ROOT, User

Event = dict[str, Any]
QUICK = ",".join(["0s"] * 100)
"""Pauses between restarts: one fault follows the other here."""


class Watcher:
    """A process that watches, and what it has said. ``words``: more of its command line."""

    def __init__(
        self,
        user: User,
        spec: str,
        *words: str,
        period: float = 3.0,
        pauses: str = QUICK,
        name: str = "watch",
    ) -> None:
        self.user = user
        self.path = user.home / f"{name}.jsonl"
        self.log = self.path.open("a+")
        self.words = ["watch", spec, *words, "--period", f"{period:g}", "--pauses", pauses, "-o", "json"]
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "sparkop", *self.words],
            cwd=ROOT,
            env=self.user.environment,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )

    def again(self) -> None:
        """Start it anew, with the same words; it goes on in the same log."""
        self.process = self._start()

    def said(self) -> list[Event]:
        lines = self.path.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def until(self, wanted: Callable[[Event], bool], seconds: float, since: int = 0) -> int:
        """Wait for an event after the first ``since`` ones; returns how many there are by then."""
        end = time.monotonic() + seconds
        while True:
            said = self.said()
            for number, event in enumerate(said[since:], since + 1):
                if wanted(event):
                    return number
            assert self.process.poll() is None, f"watch ended: {self.path.read_text()[-2000:]}"
            assert time.monotonic() < end, f"not within {seconds} s; said: {self.said()[since:]}"
            time.sleep(0.1)

    def at(self, number: int) -> float:
        """When the event was said that ``until`` has returned; seconds since 1970."""
        return datetime.fromisoformat(self.said()[number - 1]["timestamp"]).timestamp()

    def kill(self) -> None:
        """As a power cut would: no good-bye."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def end(self) -> int:
        """Ask it to end; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


def serves(event: Event) -> bool:
    """A group was started and tokens came."""
    return bool(event["event"] == "serving")


def verdict(word: str) -> Callable[[Event], bool]:
    return lambda event: event.get("verdict") == word


def told(what: str) -> Callable[[Event], bool]:
    """A fault that only a human can mend, or that hides a node."""
    return lambda event: event["event"] == "fault" and what in event["what"]


def noted(text: str) -> Callable[[Event], bool]:
    return lambda event: event["event"] in ("note", "held") and text in event["text"]


def mended(what: str) -> Callable[[Event], bool]:
    return lambda event: event["event"] == "mended" and what in event["what"]


def planned(event: Event) -> bool:
    return bool(event["event"] == "planned")


def converged(event: Event) -> bool:
    return bool(event["event"] == "looked" and event["converged"])


def done(action: str, resource: str) -> Callable[[Event], bool]:
    return lambda event: event["event"] == f"{action}-done" and event["resource"].startswith(resource)


_CLUSTERS = {"lab": "lab", "lab-standin": "standin"}
_ASK = """
import json, os, sys, time, urllib.request
key = open(os.path.expanduser("~/.sparkop/%s/api_key" % sys.argv[1])).read().strip()
body = {"model": "tiny-chat", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
url, end = "http://127.0.0.1:8000/v1/chat/completions", time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    try:
        asked = urllib.request.Request(url, json.dumps(body).encode(), headers)
        answer = json.load(urllib.request.urlopen(asked, timeout=end - time.monotonic()))
        if answer["choices"][0]["message"]["content"].strip():
            print("yes")
            break
    except (OSError, ValueError):
        time.sleep(0.5)
"""


class Stage:
    """A cluster that serves under a watch, and hands that break it."""

    def __init__(self, user: User, spec: str, words: Sequence[str], watcher: Watcher) -> None:
        self.user, self.spec, self.words, self.watcher = user, spec, tuple(words), watcher

    def sparkop(self, command: str, *words: str, check: int | None = None) -> Any:
        """A command about the cluster that is watched."""
        return self.user.sparkop(command, self.spec, *self.words, *words, check=check, timeout=600)

    def break_(self, fault: str, host: str, **more: Any) -> None:
        FAULTS[fault].breaks(self._target(host, **more))

    def mend(self, fault: str, host: str, **more: Any) -> None:
        FAULTS[fault].mends(self._target(host, **more))

    def _target(self, host: str, **more: Any) -> Target:
        return Target(self.user.lab, self.user.lab.host(host), **more)

    def shell(self, host: str, script: str) -> str:
        """Run a script as root of a host; what it printed."""
        return self.user.lab.host(host).exec(["sh", "-ec", script]).stdout

    def ranks(self) -> list[str]:
        """Ids of the ranks that run on hosts which are on, in the hosts' order."""
        ask = ("ps", "-q", "--no-trunc", "--filter", "label=sparkop.role=rank")
        return [line for host in self.user.lab.hosts if host.pid for line in host.docker(*ask).split()]

    def remembered(self) -> list[Event]:
        """The story so far, as ``sparkop events`` tells it."""
        found: list[Event] = self.sparkop("events", "-n", "500", "-o", "json", check=0).json
        return found

    def tokens(self, seconds: float) -> bool:
        """Whether a client on the head is answered with text within so many seconds."""
        name = _CLUSTERS[Path(self.spec).stem]
        return "yes" in self.shell("spark-1", f"python3 -IS -c '{_ASK}' {name} {seconds:g}")


@contextmanager
def stage(
    user: User,
    spec: str,
    *words: str,
    period: float = 3.0,
    pauses: str = QUICK,
    seconds: float = 90,
    name: str = "watch",
) -> Iterator[Stage]:
    """Serve a copy of the spec, which may be edited, and watch it."""
    copy = user.home / Path(spec).name
    shutil.copy(ROOT / spec, copy)
    user.sparkop("apply", str(copy), *words, check=0, timeout=600)
    watcher = Watcher(user, str(copy), *words, period=period, pauses=pauses, name=name)
    try:
        watcher.until(verdict("serving"), seconds)
        yield Stage(user, str(copy), words, watcher)
    finally:
        watcher.kill()
        watcher.log.close()
