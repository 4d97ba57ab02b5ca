"""The guard's start: everything is opened, locked and rehearsed before the first look."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import os
import signal
import sys
import threading
import time
from typing import Any

from . import engine, reading, record
from .guard import FASTEST, Floors, Guard
from .watcher import Releaser, Watcher

MCL_CURRENT, MCL_FUTURE = 1, 2
SPARED = -900
"""OOM score."""
STACK = 256 << 10
"""Bytes of a thread's stack: all of it is locked."""


def main(argv: list[str] | None = None) -> int:
    """Guards until it is ended.

    What takes time comes before the lock: who waits for another guard's end takes over in that moment.
    """
    asked = arguments(argv)
    signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))
    spare_me()
    log = record.Log(asked.state)
    introduce(asked.identity, log)
    facts: dict[str, Any] = {"rehearsed_s": rehearsed(log)}  # before threads: it forks
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)  # of all threads: who holds the interpreter must go on
    floors = Floors(asked.floor, asked.hard_floor, asked.soft_floor)
    trip = record.TripFile(asked.state)
    meminfo = reading.Meminfo(asked.meminfo)
    guard = Guard(floors, asked.interval, meminfo.read, trip.write)
    watcher = Watcher(asked.cluster, guard, engine.Docker(asked.docker, timeout=2.0), trip, asked.state)
    threading.stack_size(STACK)
    sys.setswitchinterval(0.0005)
    held = alone(asked, log)
    try:
        trip.prepare()
    except OSError as error:
        log.write("no room for the record of a trip: %s" % error)
    trip.start()
    drop_older(asked.state)
    watcher.facts = facts
    watcher.look()
    if watcher.silent:
        watcher.recall()
    watcher.start()
    Releaser(guard, asked.weights, total_memory()).start()
    facts["locked"] = lock_memory(log)
    facts["realtime"] = come_first(log)
    gc.collect()
    gc.freeze()
    gc.disable()
    log.write(
        "guarding %s: floor %d MiB, hard floor %d MiB%s"
        % (asked.cluster, asked.floor >> 20, asked.hard_floor >> 20, "" if held else ", without a lock")
    )
    return guard_for_ever(guard)


def alone(asked: Any, log: record.Log) -> int | None:
    """The lock; None when the disk has no place for it: two guards are better than none."""

    def wait() -> None:
        log.write("another guard guards %s here; waiting for its end" % asked.cluster)
        with contextlib.suppress(OSError):
            record.write_next(asked.state)

    try:
        return record.lock(asked.state, wait)
    except OSError as error:
        log.write("no lock: %s" % error)
        return None


def introduce(path: str | None, log: record.Log) -> None:
    """As a unit: say which process this is."""
    if path:
        try:
            record.write_identity(path)
        except OSError as error:
            log.write("who this is could not be written: %s" % error)


def spare_me() -> None:
    """The kernel's own killer takes others first, where we may ask for that."""
    path = "/proc/self/oom_score_adj"
    with contextlib.suppress(OSError, ValueError), open(path, "r+", encoding="ascii") as stream:
        if int(stream.read()) > SPARED:
            stream.seek(0)
            stream.write(str(SPARED))


def guard_for_ever(guard: Guard) -> int:
    """A reading that fails is told once a minute, and tried again as soon as if memory was at the floor: that
    is not known. Readings that fail for long leave the heartbeat old, by which sparkop replaces the guard."""
    told = -1e9
    while True:
        try:
            pause = guard.tick()
        except Exception as error:
            pause = FASTEST[guard.phase]
            if time.monotonic() - told >= 60.0:
                told = time.monotonic()
                guard.said.put("memory could not be read: %s" % error)
        time.sleep(pause)


def rehearsed(log: record.Log) -> float | None:
    """Seconds that the kill of a process of our own took; None when the kernel does not let us."""
    try:
        took = engine.rehearse()
    except (OSError, AttributeError) as error:
        log.write("kill by the kernel: not possible here (%s); Docker will be asked" % error)
        return None
    log.write("kill rehearsed: %.1f ms" % (took * 1000))
    return took


def lock_memory(log: record.Log) -> bool:
    """Keep all our pages in memory: to wait for one of them is what this guard must never do."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(MCL_CURRENT | MCL_FUTURE) == 0:
        return True
    log.write("memory is not locked: %s" % os.strerror(ctypes.get_errno()))
    return False


def come_first(log: record.Log) -> bool:
    """Look on time also when every core is busy; this thread sleeps nearly always."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError as error:
        log.write("no realtime priority: %s" % error)
        return False
    return True


def drop_older(state: str) -> None:
    """Remove the programs of guards before this one from the state folder. A newer one may be on its way."""
    own = os.path.join(state, os.path.basename(sys.argv[0]))
    with contextlib.suppress(OSError):
        written = os.stat(own).st_mtime
        for name in os.listdir(state):
            path = os.path.join(state, name)
            if name.startswith("memguard-") and name.endswith(".pyz") and os.stat(path).st_mtime < written:
                os.unlink(path)


def total_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * reading.PAGE


def arguments(argv: list[str] | None) -> Any:
    parser = argparse.ArgumentParser(description="Kills the ranks of a node before its memory ends.")
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--floor", type=int, required=True, help="bytes of MemAvailable; under it: the kill")
    parser.add_argument("--hard-floor", type=int, required=True, help="bytes that must never be reached")
    parser.add_argument("--soft-floor", type=int, required=True, help="bytes; under it processes are logged")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two readings at most")
    parser.add_argument("--state", default="/state", help="folder of records and log")
    parser.add_argument("--weights", default="/weights", help="folder of the checkpoint")
    parser.add_argument("--identity", help="file that says which process this is: a unit's")
    parser.add_argument("--meminfo", default="/proc/meminfo")
    parser.add_argument("--docker", default=engine.DOCKER_SOCKET, help="path of Docker's socket")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
