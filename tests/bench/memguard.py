"""`python -m tests.bench memguard [--rounds N]`: from crossing the floor to the end of growth, at 6 GB/s.

Our guard (loading and serving) beside earlyoom and a loop that looks once a second, as the recipe's does, in
one run. Memory falls in one of two ways:

``figures``   a file over /proc/meminfo falls by the clock at 6 GB/s: exact, the same for all, takes no memory
``real``      a program takes memory in steps, as fast as this machine gives it, at most 6 GB/s

The floor is set 700 MiB under what is available; the program takes at most 1.5 GiB and gives up under 3 GiB.
All run in process namespaces of their own, so that nobody can kill anything else. Bars: overshoot at most
100 MiB while loading and 350 MiB while serving, never later than earlyoom in the worst case, and under 0.5 %
of one core far from the floor. Exit code 1 when one is missed. Needs root and earlyoom.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from sparkop.node.memguard.reading import Meminfo
from sparkop.resources.guard import program
from tests.node.memguard_docker import docker

MIB, GIB = 1 << 20, 1 << 30
RATE = 6e9
ABOVE = 700 * MIB
"""Bytes between what is available at first and the floor."""
MOST = 1536 * MIB
MOST_FIGURES = 12 * GIB
LEAST = 3 * GIB
"""MemAvailable of this machine under which nothing is taken any more."""
MADE = 60 * GIB
"""What the made figures begin with."""
FIGURES = "".join(
    f"{name + ':':16}{value} kB\n"
    for name, value in {
        **{"MemTotal": "    125000000", "MemFree": "%13d", "MemAvailable": "%13d"},
        **dict.fromkeys(
            ("Buffers", "Cached", "AnonPages", "Shmem", "SwapTotal", "SwapFree"), "            0"
        ),
    }.items()
)
SHARED = struct.Struct("5d")
"""Process id of the program, crossing, end of growth (monotonic s), lowest available, bytes a second."""
BARS = {"ours, loading": 100 * MIB, "ours, serving": 350 * MIB}
CPU_BAR = 0.5
TRIES = 4
CPU_SECONDS = 20.0

HOG = r"""
import ctypes, mmap, os, sys, time
way, meminfo, shared, go, floor, begin, rate, most, least, figures = sys.argv[1:]
floor, begin, rate, most, least = int(floor), int(begin), float(rate), int(most), int(least)
open("/proc/self/oom_score_adj", "w").write("1000")  # it dies before anything else
source = os.open(meminfo, os.O_RDWR if way == "figures" else os.O_RDONLY)
file = os.open(shared, os.O_RDWR)
told = memoryview(mmap.mmap(file, 4096)).cast("d")  # one store a figure: it may be killed at any moment
libc = ctypes.CDLL(None)
STEP = 4 << 20
taken = mmap.mmap(-1, most)
address = ctypes.addressof(ctypes.c_char.from_buffer(taken))

def available(grown):
    if way == "figures":
        value = (begin - grown) // 1024
        os.pwrite(source, (figures % (value, value)).encode(), 0)
        return begin - grown
    line = os.pread(source, 4096, 0)
    return int(line[line.index(b"MemAvailable:") + 13:].split(None, 1)[0]) * 1024

told[3], told[0] = begin, os.getpid()
while not os.path.exists(go):
    time.sleep(0.005)
began, grown, crossed = time.monotonic(), 0, 0.0
while grown < most:
    due = min(most, int((time.monotonic() - began) * rate))
    if way == "real":
        due = min(due, grown + STEP) // STEP * STEP
        if due > grown:
            libc.madvise(ctypes.c_void_p(address + grown), ctypes.c_size_t(due - grown), 23)  # POPULATE_WRITE
    grown = due
    free, now = available(grown), time.monotonic()
    if free < floor and not crossed:
        crossed = now
    told[3], told[2], told[1], told[4] = free, now, crossed, grown / (now - began)
    if way == "real" and free < least:
        break
    time.sleep(0.0003)
time.sleep(3)
"""

LOOP = r"""
while :; do
  kib=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)
  [ "$kib" -lt %d ] && kill -9 $(cat %s)
  sleep 1
done
"""

OURS = """
import sys
sys.path.insert(0, {zipped!r})
from memguard import guard, main
if {serving}:
    guard.SETTLED_SECONDS = 0.2
main.main(sys.argv[1:])
"""


@dataclass(frozen=True)
class Fall:
    """One run: seconds from crossing to the last growth, bytes under the floor, bytes a second."""

    seconds: float
    overshoot: float
    rate: float


@dataclass(frozen=True)
class Stage:
    """Files of one run."""

    folder: Path
    way: str
    floor: int
    begin: int

    @property
    def shared(self) -> Path:
        return self.folder / "shared"

    @property
    def meminfo(self) -> Path:
        return self.folder / "meminfo" if self.way == "figures" else Path("/proc/meminfo")

    @property
    def most(self) -> int:
        """Bytes that the program takes when nobody kills it."""
        return MOST_FIGURES if self.way == "figures" else MOST

    def told(self) -> tuple[float, ...]:
        return SHARED.unpack(self.shared.read_bytes()[: SHARED.size])


def stage(folder: Path, way: str) -> Stage:
    begin = MADE if way == "figures" else Meminfo("/proc/meminfo").read().available
    if way == "real" and begin - MOST < LEAST:
        raise SystemExit(
            f"only {begin / GIB:.1f} GiB are available: too little to take {MOST / GIB:.1f} GiB safely"
        )
    made = Stage(folder, way, begin - ABOVE, begin)
    made.shared.write_bytes(bytes(4096))
    if way == "figures":
        made.meminfo.write_text(FIGURES % (begin // 1024, begin // 1024))
    return made


def guard_words(name: str, made: Stage, earlyoom: str) -> list[str]:
    """The contestant's command."""
    if name == "earlyoom":
        kib = made.floor // 1024
        return [earlyoom, "-M", f"{kib},{kib}", "-s", "100", "-r", "0", "-p"]
    if name == "loop":
        return ["bash", "-c", LOOP % (made.floor // 1024, made.folder / "pid")]
    zipped = made.folder / "memguard.pyz"
    zipped.write_bytes(program())
    floors = ["--floor", str(made.floor), "--hard-floor", str(made.floor - 512 * MIB)]
    code = OURS.format(zipped=str(zipped), serving=name.endswith("serving"))
    places = ["--state", str(made.folder), "--docker", str(made.folder / "docker.sock")]
    words = ["--cluster", "x", *floors, "--soft-floor", str(made.floor), *places]
    return [sys.executable, "-I", "-S", "-c", code, *words]


def fall(name: str, way: str, earlyoom: str) -> Fall | None:
    """One run of one contestant; None when others gave back so much memory that the floor was not reached."""
    with tempfile.TemporaryDirectory(prefix="memguard-") as place, docker(Path(place)) as engine:
        made = stage(Path(place), way)
        engine.ranks[0]["Id"] = "/"  # is in the group of every process
        with started(name, made, earlyoom) as inside:
            wait_for(lambda: made.told()[0] > 0)
            (made.folder / "pid").write_text(f"{made.told()[0]:.0f}")
            engine.pid = int(made.told()[0])
            if name.startswith("ours"):
                log = made.folder / "memguard.log"
                wait_for(lambda: log.exists() and "killed by the kernel when need be" in log.read_text())
            time.sleep(1.0 + random.random())
            (made.folder / "go").touch()
            inside.wait(30)
        _, crossed, ended, lowest, rate = made.told()
        if not crossed and lowest - made.floor < 64 * MIB:
            return Fall(0.0, 0.0, rate)  # the guard's reading came between two steps
        if not crossed:
            return None
        return Fall(ended - crossed, made.floor - lowest, rate)


@contextmanager
def started(name: str, made: Stage, earlyoom: str) -> Iterator[subprocess.Popen[bytes]]:
    """Guard and program in a process namespace of their own; ends when the program has ended."""
    hog = [sys.executable, "-IS", "-c", HOG, made.way, str(made.meminfo), str(made.shared)]
    hog += [
        str(made.folder / "go"),
        str(made.floor),
        str(made.begin),
        str(RATE),
        str(made.most),
        str(LEAST),
        FIGURES,
    ]
    bind = f"mount --bind {made.meminfo} /proc/meminfo; " if made.way == "figures" else ""
    guard = shlex.join(guard_words(name, made, earlyoom))
    script = f"{bind}{shlex.join(hog)} & hog=$!; sleep 0.5; {guard} & wait $hog; exit 0"
    child = subprocess.Popen(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def wait_for(done: object, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not done():  # type: ignore[operator]
        if time.monotonic() > end:
            raise SystemExit("the contestant did not start")
        time.sleep(0.02)


def cpu_share() -> float:
    """Percent of one core that our guard takes while memory is far from the floor, with a rank."""
    with tempfile.TemporaryDirectory(prefix="memguard-") as place, docker(Path(place)) as engine:
        made = stage(Path(place), "figures")
        engine.pid, engine.ranks[0]["Id"] = os.getpid(), "/"
        far = Stage(made.folder, made.way, 2 * GIB, made.begin)
        words = [*guard_words("ours, serving", far, ""), "--meminfo", str(made.meminfo)]
        child = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        try:
            time.sleep(3.0)
            before = cpu_seconds(child.pid)
            time.sleep(CPU_SECONDS)
            return 100 * (cpu_seconds(child.pid) - before) / CPU_SECONDS
        finally:
            child.kill()
            child.wait()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def show(way: str, falls: Mapping[str, list[Fall]]) -> None:
    rate = max(each.rate for found in falls.values() for each in found) / 1e9
    print(
        f"\n{way}: memory falls at up to {rate:.1f} GB/s; median (worst) of {len(next(iter(falls.values())))}"
    )
    for name, found in falls.items():
        seconds = sorted(each.seconds * 1000 for each in found)
        over = sorted(each.overshoot / MIB for each in found)
        middle = len(found) // 2
        print(
            f"  {name:16} growth ended after {seconds[middle]:7.1f} ms ({seconds[-1]:7.1f})"
            f"   overshoot {over[middle]:6.0f} MiB ({over[-1]:6.0f})"
        )


def judge(way: str, falls: Mapping[str, list[Fall]]) -> bool:
    """Print the bars; whether all are kept."""
    kept = True
    latest = max(each.seconds for each in falls["earlyoom"]) * 1000
    for name, most in BARS.items():
        over = max(each.overshoot for each in falls[name])
        late = max(each.seconds for each in falls[name]) * 1000
        good = over <= most and late <= latest
        kept = kept and good
        print(
            f"  {way}, {name}: worst overshoot {over / MIB:.0f} MiB (bar {most / MIB:.0f}), "
            f"worst {late:.1f} ms (earlyoom {latest:.1f}): {'ok' if good else 'MISSED'}"
        )
    return kept


def main(argv: list[str]) -> int:
    """Run it; 1 when a bar is missed."""
    parser = argparse.ArgumentParser(prog="memguard", description=__doc__)
    parser.add_argument("--rounds", type=int, default=8, help="of made figures")
    parser.add_argument("--real", type=int, default=3, help="rounds on real memory")
    parser.add_argument("--earlyoom", default=shutil.which("earlyoom"), help="the program")
    asked = parser.parse_args(argv)
    if not asked.earlyoom:
        raise SystemExit("earlyoom is not installed: apt-get install earlyoom, or name it with --earlyoom")
    names = ("ours, loading", "ours, serving", "earlyoom", "loop")
    kept = True
    for way, rounds in (("figures", asked.rounds), ("real", asked.real)):
        falls: dict[str, list[Fall]] = {name: [] for name in names}
        for _ in range(rounds):
            for name in names:
                runs = (fall(name, way, asked.earlyoom) for _ in range(TRIES))
                falls[name] += list(islice(filter(None, runs), 1))
        missing = [name for name, found in falls.items() if not found]
        if rounds and missing:
            print(f"\n{way}: not measured, others move too much memory here: {', '.join(missing)}")
            kept = kept and way != "figures"
        elif rounds:
            show(way, falls)
            kept = judge(way, falls) and kept
    share = cpu_share()
    good = share < CPU_BAR
    print(f"\nfar from the floor: {share:.2f} % of one core (bar {CPU_BAR} %) {'ok' if good else 'MISSED'}")
    return 0 if kept and good else 1
