"""Break the distribution of weights to four hosts at random moments (`python -m tests.crash --copy N`).

A repository goes through a chain of four lab hosts while the first one still downloads it. In the middle:
SIGKILL of a transfer or of what serves it, a pulled cable, a node without power, a full disk, wrong bytes in
what a node hands on; over ssh and on a trusted fabric. The broken run ends well, or names a node and what to
do; one more run ends with the same hashes on all hosts, made by another program.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sparkop.lab import hub
from sparkop.lab.faults import FAULTS, Target
from sparkop.lab.host import Host
from sparkop.lab.lab import Lab
from tests.labkit import engine_config, temporary_lab

ROOT = Path(__file__).parent.parent
MIB = 1 << 20
SIZE = 128 * MIB
HUB_RATE = 4 * MIB
"""Of each of the download's eight connections."""
HOSTS = 4
FOLDER = "/root/models/two words"
STATE = "/root/.sparkop/copies"
PATIENCE = 300.0
LONGEST = 6.0
"""Seconds after which a run is broken, at most."""
SPEC = f"""\
apiVersion: sparkop/v1
name: copies
nodes:
{"".join(f"  - {{name: spark-{n}, ssh: root@spark-{n}.lab}}{chr(10)}" for n in range(1, HOSTS + 1))}\
weights: {{repository: test/copies, path: {FOLDER}}}
image: {{reference: lab/standin}}
engine: {{kind: vllm}}
api: {{servedNames: [m]}}
"""

Mend = Callable[[], object]


@dataclass
class Chain:
    """Four hosts, the command line, and chance."""

    lab: Lab
    spec: Path
    chance: random.Random

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "sparkop", "download", str(self.spec), *words]
        environment = {**os.environ, "XDG_STATE_HOME": str(self.lab.paths.root / "xdg"), "NO_COLOR": "1"}
        return subprocess.Popen(
            command, env=environment, cwd=ROOT, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def hosts(self) -> list[Host]:
        return [self.lab.host(f"spark-{n}") for n in range(1, HOSTS + 1)]

    def clear(self) -> None:
        """As before the first download."""
        for host in self.hosts():
            if host.pid is None:
                self.lab.boot(host.name)
            for fault in ("disk-full", "cable"):
                FAULTS[fault].mends(Target(self.lab, host))
            host.exec(["sh", "-c", f"pkill -f transfer.pyz; rm -rf '{FOLDER}' {STATE}"], check=False)

    def sums(self) -> set[str]:
        """Of all files on each host, by sha256sum: one text where all are equal."""
        script = f"cd '{FOLDER}' && find . -type f | sort | xargs -d '\\n' sha256sum"
        return {host.exec(["sh", "-c", script]).stdout for host in self.hosts()}


def kill_transfer(chain: Chain, host: Host) -> Mend:
    """The process that receives is killed."""
    host.exec(["sh", "-c", f"kill -9 $(cat {STATE}/transfer/lock)"], check=False)
    return lambda: None


def kill_sender(chain: Chain, host: Host) -> Mend:
    """What serves the next host is killed: ``pipe`` over ssh, ``share`` on a trusted fabric."""
    host.exec(["pkill", "-9", "-f", "transfer.pyz (pipe|share)"], check=False)
    return lambda: None


def fault(name: str, chain: Chain, host: Host) -> Mend:
    """A fault of the lab, mended after a moment."""
    FAULTS[name].breaks(Target(chain.lab, host))
    return partial(FAULTS[name].mends, Target(chain.lab, host))


def power_cut(chain: Chain, host: Host) -> Mend:
    chain.lab.power_cut(host.name)
    return partial(chain.lab.boot, host.name)


def wrong_bytes(chain: Chain, host: Host) -> Mend:
    """Bytes of what the host has so far are others now: the next host gets those."""
    script = (
        f"f=$(ls '{FOLDER}'/.sparkop-*.partial '{FOLDER}'/*.bin 2>/dev/null | head -1); [ -z \"$f\" ] || "
        f'dd if=/dev/urandom of="$f" bs=64 count=1 seek={chain.chance.randrange(SIZE // 128)} conv=notrunc'
    )
    host.exec(["sh", "-c", script], check=False)
    return lambda: None


WAYS: dict[str, Callable[[Chain, Host], Mend]] = {
    "kill receiver": kill_transfer,
    "kill sender": kill_sender,
    "cable": partial(fault, "cable"),
    "power cut": power_cut,
    "disk full": partial(fault, "disk-full"),
    "wrong bytes": wrong_bytes,
}


def break_once(chain: Chain, way: str, *options: str) -> str:
    """One run broken in the middle, and carried on; a line that tells it. Raises AssertionError."""
    chain.clear()
    host = chain.chance.choice(chain.hosts())
    process = chain.start(*options)
    after = chain.chance.uniform(1.0, LONGEST)
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(after)
        mend = WAYS[way](chain, host)
        time.sleep(2)  # the fault's own length
        mend()
        said, _ = process.communicate(timeout=PATIENCE)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.communicate()
    code = process.returncode
    if code:
        assert code != 1, f"an unexpected error: {said}"
        assert re.search(r"spark-\d", said), f"no node is named: {said}"
        assert "sparkop" in said, f"nothing says what to do: {said}"
    began = time.monotonic()
    carry_on(chain, *options)
    sums = chain.sums()
    assert len(sums) == 1, f"the hosts differ: {sums}"
    took = time.monotonic() - began
    return f"{way:<14} {host.name}  after {after:.1f} s  exit {code}  carried on in {took:.0f} s"


def carry_on(chain: Chain, *options: str) -> None:
    """As a user does: once more, and with --deep where that is what sparkop asks for."""
    for words in ((), ("--deep",), ()):
        process = chain.start(*words, *options)
        said, _ = process.communicate(timeout=PATIENCE)
        if process.returncode == 0 and "--deep" not in said:
            break
        assert process.returncode == 0 or "--deep" in said, f"exit {process.returncode}: {said}"
    process = chain.start("--deep", *options)
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, f"exit {process.returncode}: {said}"


def run(count: int, chance: random.Random) -> int:
    """How many of them failed; each is told as it ends."""
    failures = 0
    with temporary_lab(engine_config(HOSTS)) as lab:
        spec = lab.paths.root / "copies.yaml"
        spec.write_text(SPEC)
        data = chance.randbytes(SIZE)
        files: dict[str, Path | bytes] = {"config.json": b"{}", "a.bin": data, "sub/b.bin": data[: SIZE // 4]}
        hub.add_repository(files, "test/copies")
        hub.turn(hub.Knobs(bytes_per_second=HUB_RATE))
        chain = Chain(lab, spec, chance)
        for number in range(count):
            way = list(WAYS)[number % len(WAYS)]
            trusted = (number + number // len(WAYS)) % 2  # by turns, and each fault both ways in the end
            options = ("--set", "fabric.trusted=true") if trusted else ()
            try:
                told = break_once(chain, way, *options)
                print(f"{number + 1:>3}  {'plain' if options else 'ssh  '}  {told}", flush=True)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                failures += 1
                print(f"{number + 1:>3}  FAILED  {way}: {error}", flush=True)
    print(f"{count - failures} of {count} ended with equal hashes", flush=True)
    return failures
