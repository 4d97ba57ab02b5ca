"""Takes a lab away, with all that is left of it, whatever crashed."""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
from pathlib import Path

from sparkop.inside import INSIDE_VARIABLE
from sparkop.lab import cgroups
from sparkop.lab.cgroups import Cgroups
from sparkop.lab.host import GONE_SECONDS
from sparkop.lab.lab import Lab, Say, lab_at
from sparkop.lab.layout import MAX_HOSTS, LabError, LabPaths, host_names
from sparkop.lab.lock import locked
from sparkop.lab.processes import in_network, kill, network_of, start_time, wait_for, with_environment

ASKED_SECONDS = 3.0
"""Patience with programs inside after each of two SIGTERMs."""


def down(name: str | None = None, say: Say = lambda _line: None) -> bool:
    """Remove a lab and all that is left of it, whatever crashed. Returns whether there was anything."""
    paths = LabPaths.of(name)
    with locked(paths):
        return clear(paths, say)


def clear(paths: LabPaths, say: Say) -> bool:
    """The same under the lab's lock, which the caller holds."""
    lab = lab_at(paths)
    groups = lab.groups if lab else cgroups.find(paths.cgroup)
    found = paths.root.exists() or groups is not None
    if lab:
        _ask_programs(lab)
    if groups:
        _end_processes(groups, lab)
        _wait_loops(paths)
        groups.remove()
    if paths.root.exists():
        shutil.rmtree(paths.root)
    if found:
        say("everything of the lab is gone")
    return found


def _ask_programs(lab: Lab) -> None:
    """Programs that run inside get SIGTERM while there still are hosts, so that a sparkop says its words and
    gives its lease back; at the second one it leaves at once."""
    for _ in range(2):
        end = time.monotonic() + ASKED_SECONDS
        kill(_programs(lab), signal.SIGTERM)
        while _programs(lab) and time.monotonic() < end:
            time.sleep(0.02)


def _programs(lab: Lab) -> list[int]:
    """What runs inside as the controller: no part of the lab, and not this program or its parents."""
    found = with_environment(f"{INSIDE_VARIABLE}={lab.inside}")
    if pid := lab.pid:
        with contextlib.suppress(OSError):  # it may be ending by itself
            found += in_network(network_of(pid))  # those that went in by themselves
    return sorted({*found}.difference(lab.groups.processes()))


def _end_processes(groups: Cgroups, lab: Lab | None) -> None:
    end = time.monotonic() + GONE_SECONDS
    seen: dict[int, str | None] = {}
    network = None
    if lab and (pid := lab.pid):
        with contextlib.suppress(OSError):  # it may be ending by itself
            network = network_of(pid)
        kill([pid])  # the root of all pid namespaces: the kernel ends the rest
    while True:
        left = groups.processes()
        if lab:
            left += with_environment(f"{INSIDE_VARIABLE}={lab.inside}")
        if network:
            left += in_network(network)  # those that went in by themselves
        seen |= {pid: start_time(pid) for pid in left if pid not in seen}
        # A process leaves its group before it is gone: process 1 of a namespace waits for all others first.
        dying = [pid for pid, start in seen.items() if start and start_time(pid) == start]
        if not left and not dying:
            return
        if time.monotonic() > end:
            raise LabError(
                f"processes of the lab do not end: {left or dying}", remedy="sparkop lab down again"
            )
        kill(left)
        for host in host_names(MAX_HOSTS):
            if groups.frozen(host):  # a frozen process takes its SIGKILL when it thaws
                with contextlib.suppress(LabError):
                    groups.freeze(host, False)
        time.sleep(0.02)


def _wait_loops(paths: LabPaths) -> None:
    """The kernel frees a loop device a moment after the last process of its mount namespace."""

    def mine() -> list[str]:
        found = []
        for file in Path("/sys/block").glob("loop*/loop/backing_file"):
            with contextlib.suppress(OSError):
                if file.read_text().startswith(f"{paths.root}/"):
                    found.append(file.parts[3])
        return found

    wait_for(lambda: not mine(), GONE_SECONDS, "the end of the hosts' loop devices")
