"""`python -m tests.bench tick [--rounds N]`: what "nothing to do" costs, as ratios to two cold ssh.

Brings up a lab of its own with the stand-in engine, applies, and measures in turns (A B A B): two parallel
`ssh`, one shell batch each (the floor); `sparkop diff` and a second `apply` as new processes, the canary left
out, Docker read by the probe; a tick of `watch` on open connections; `sparkop --help` beside bare Python; and
the plan of 64 nodes (simulated). Exit code 1 when a bar is missed. Needs root, and what the lab needs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from sparkop.cli.options import reach_spec
from sparkop.hosts.base import Host
from sparkop.reconcile.nodes import writable_nodes
from sparkop.reconcile.observe import observe
from sparkop.reconcile.reconcile import reconcile
from sparkop.spec.models import ClusterSpec
from tests.bench.rounds import Bar, measure, report
from tests.labkit import inside, temporary_lab
from tests.reconcile.simulation import SIMULATED, Cluster, spec_of

SPEC = Path(__file__).parents[2] / "specs/lab-standin.yaml"
BATCH = (
    "uname -a; id; uptime; df -P /; ip -o addr; ls /sys/class/net /sys/class/infiniband; free -b; "
    "cat /etc/os-release; stat /root; cat /proc/loadavg; sysctl vm.min_free_kbytes; date +%s"
)
"""Twelve cheap checks of a node in one exec; no docker program, which would make the floor higher."""

WITHOUT_CANARY = """
import importlib.abc, importlib.machinery, sys

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "sparkop.reconcile.observe":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        load = spec.loader.exec_module
        def exec_module(module):
            load(module)
            module.worth_asking = lambda *_: False
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
from sparkop.cli import main
main()
"""
"""sparkop whose observation asks the model nothing; all else, the order of imports included, is as ever."""


def main(arguments: list[str]) -> int:
    """Measure and print; exit code 1 when a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench tick")
    parser.add_argument("--rounds", type=int, default=15)
    rounds: int = parser.parse_args(arguments).rounds
    _compile()
    with temporary_lab(engines="standin") as lab, inside(lab):
        _sparkop("apply", "--yes", str(SPEC), canary=True)
        kept = _nothing_to_do(rounds)
    kept = _help(rounds) and kept
    kept = _planning(rounds) and kept
    return 0 if kept else 1


def _compile() -> None:
    """Bytecode, as an installation makes it: this process may run where Python does not write it."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    folder = str(Path(__file__).parents[2] / "sparkop")
    subprocess.run([sys.executable, "-m", "compileall", "-q", folder], env=environment, check=True)


def _nothing_to_do(rounds: int) -> bool:
    spec = reach_spec(str(SPEC), (), ())[0].spec
    with writable_nodes(spec) as hosts:
        _tick(spec, hosts)
        medians = measure(
            {
                "two cold ssh (floor)": _floor,
                "diff": lambda: _sparkop("diff", str(SPEC)),
                "second apply": lambda: _sparkop("apply", str(SPEC)),
                "tick": lambda: _tick(spec, hosts),
            },
            rounds,
        )
    floor = "two cold ssh (floor)"
    bars = [Bar("diff", floor, 2.0), Bar("second apply", floor, 2.0), Bar("tick", floor, 0.3)]
    return report(f"Nothing to do: two nodes, medians of {rounds} rounds", medians, bars)


def _floor() -> None:
    calls = [
        subprocess.Popen(["ssh", f"root@{node}.lab", BATCH], stdout=subprocess.DEVNULL)
        for node in ("spark-1", "spark-2")
    ]
    codes = [call.wait() for call in calls]
    if any(codes):
        raise RuntimeError("the batch of the floor failed")


def _sparkop(*arguments: str, canary: bool = False) -> None:
    program = ["-m", "sparkop"] if canary else ["-c", WITHOUT_CANARY]
    done = subprocess.run([sys.executable, *program, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"sparkop {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")


def _tick(spec: ClusterSpec, hosts: Mapping[str, Host]) -> None:
    reading = observe(spec, hosts, canary=False)
    plan = reconcile(reading.desired, reading.observed, reading.history, time.time())
    if plan.operations or plan.unknown:
        raise RuntimeError(f"there is something to do: {plan}")


def _help(rounds: int) -> bool:
    def run(*words: str) -> None:
        subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)

    medians = measure(
        {"bare python": lambda: run("-c", "pass"), "sparkop --help": lambda: run("-m", "sparkop", "--help")},
        2 * rounds,
    )
    return report("Starting", medians, [Bar("sparkop --help", "bare python", 8.0)])


def _planning(rounds: int) -> bool:
    """64 nodes in under 50 ms, and linear: not more than 5 times what 16 take."""

    def plan_of(nodes: int) -> float:
        cluster = Cluster.make(spec_of(nodes))
        reading = cluster.observe()
        started = time.perf_counter()
        plan = reconcile(reading.desired, reading.observed, reading.history, time.time(), SIMULATED)
        took = time.perf_counter() - started
        if not plan.operations:
            raise RuntimeError("an empty cluster has nothing to do?")
        return took

    medians = measure(
        {
            "bar": lambda: 0.05,
            "plan of 16 nodes": lambda: plan_of(16),
            "plan of 64 nodes": lambda: plan_of(64),
        },
        max(3, rounds // 3),
    )
    bars = [Bar("plan of 64 nodes", "bar", 1.0), Bar("plan of 64 nodes", "plan of 16 nodes", 5.0)]
    return report("Planning an empty cluster", medians, bars)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
