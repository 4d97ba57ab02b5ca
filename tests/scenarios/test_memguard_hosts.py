"""The memory guard on real hosts: it kills whatever else fails; what it did is told, not repeated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from sparkop.lab.lab import Lab
from tests.labkit import temporary_lab, until
from tests.scenarios.conftest import STANDIN, User

pytestmark = pytest.mark.lab

STATE = "/root/.sparkop/standin"


@pytest.fixture(scope="module")
def standin_lab() -> Iterator[Lab]:
    with temporary_lab(engines="standin") as running:
        yield running


@pytest.fixture
def serving(standin_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> User:
    """A cluster that serves, whatever the test before left."""
    user = User(standin_lab, tmp_path_factory.mktemp("user"))
    user.sparkop("apply", STANDIN, "--after-trip", check=0)
    return user


def state(user: User, host: str, name: str) -> str:
    """A file of the host's state folder; empty when it is not there."""
    return user.sparkop("lab", "shell", host, "cat", f"{STATE}/{name}").out


def guard_id(user: User, host: str) -> str:
    return user.lab.host(host).docker("ps", "-q", "--filter", "label=sparkop.role=memguard").strip()


def running(user: User, host: str) -> str:
    return user.lab.host(host).docker("ps", "-q", "--filter", "label=sparkop.role=rank").strip()


def test_memory_pressure_is_answered_told_and_not_repeated(serving: User) -> None:
    """The kernel's kill, the record, the group down everywhere, no relaunch, and the way back."""
    until(lambda: "killed by the kernel when need be" in state(serving, "spark-2", "memguard.log"))
    serving.sparkop("lab", "break", "memory-pressure", "spark-2", check=0)
    try:
        until(lambda: "outside_after" in state(serving, "spark-2", "trip.json"))
        told = serving.sparkop("status", STANDIN, check=6).out
        assert "the guard killed standin-r1 while serving" in told
        assert "▁" in told
        assert "something outside the group took it" in told
        assert re.search(r"spark-2: end python3 \(\d+\) [0-9.]+ GiB if it still runs, or let", told)
        assert "lower memory.kvCache" not in told
        serving.sparkop("apply", STANDIN, check=6)
        assert not running(serving, "spark-1"), "the rank that was not killed is down too"
        serving.sparkop("apply", STANDIN, check=6)
    finally:
        serving.sparkop("lab", "mend", "memory-pressure", "spark-2", check=0)
    serving.sparkop("apply", STANDIN, check=6)
    assert not running(serving, "spark-2"), "enough memory alone is no reason: nobody has said so"
    changed = ("--set", "memory.kvCache=48MiB")
    serving.sparkop("apply", STANDIN, *changed, check=0)
    assert state(serving, "spark-2", "trip.json") == ""


def test_it_kills_while_docker_is_frozen_and_the_disk_is_full(serving: User) -> None:
    """The record has its space, and the kernel needs no Docker."""
    until(lambda: "killed by the kernel when need be" in state(serving, "spark-2", "memguard.log"))
    ranks = json.loads(serving.lab.host("spark-2").docker("inspect", running(serving, "spark-2")))
    alive = ["kill", "-0", str(ranks[0]["State"]["Pid"])]
    for fault in ("disk-full", "dockerd-freeze", "memory-pressure"):
        serving.sparkop("lab", "break", fault, "spark-2", check=0)
    try:
        until(lambda: serving.lab.host("spark-2").exec(alive, check=False).returncode != 0)
        until(lambda: state(serving, "spark-2", "trip.json") != "")
    finally:
        for fault in ("memory-pressure", "dockerd-freeze", "disk-full"):
            serving.sparkop("lab", "mend", fault, "spark-2", check=0)


def test_a_paused_guard_is_replaced_and_the_ranks_serve_on(serving: User) -> None:
    """Docker says that it is paused; diff names it, and apply touches nothing else."""
    before = running(serving, "spark-1"), guard_id(serving, "spark-1")
    serving.lab.host("spark-1").docker("pause", before[1])
    assert "guard: paused -> running" in serving.sparkop("diff", STANDIN, check=2).out
    serving.sparkop("apply", STANDIN, check=0)
    assert running(serving, "spark-1") == before[0]
    assert guard_id(serving, "spark-1") != before[1]


def unit_pid(user: User, host: str) -> str:
    """The guard that runs there without a container; empty when none does."""
    return user.lab.host(host).exec(["pgrep", "-f", f"{STATE}/memguard-"], check=False).stdout.strip()


def test_the_guard_as_a_unit_does_the_same_without_docker(serving: User) -> None:
    """Put in the container's place, mended when it was killed, and it kills while Docker is frozen."""
    unit = ("--set", "memory.guard.run=unit")
    ranks = running(serving, "spark-2")
    serving.sparkop("apply", STANDIN, *unit, check=0)
    assert (guard_id(serving, "spark-2"), running(serving, "spark-2")) == ("", ranks)
    serving.lab.host("spark-2").exec(["kill", "-9", unit_pid(serving, "spark-2")])
    assert "guard: exited -> running" in serving.sparkop("diff", STANDIN, *unit, check=2).out
    serving.sparkop("apply", STANDIN, *unit, check=0)
    assert serving.sparkop("diff", STANDIN, *unit, check=0).out
    until(lambda: '"phase": "loading"' in state(serving, "spark-2", "memguard.json"))
    for fault in ("dockerd-freeze", "memory-pressure"):
        serving.sparkop("lab", "break", fault, "spark-2", check=0)
    try:
        until(lambda: state(serving, "spark-2", "trip.json") != "")
    finally:
        for fault in ("memory-pressure", "dockerd-freeze"):
            serving.sparkop("lab", "mend", fault, "spark-2", check=0)
    assert "the guard killed standin-r1" in serving.sparkop("status", STANDIN, *unit, check=6).out
    serving.sparkop("stop", STANDIN, *unit, "--yes", check=0)
    assert unit_pid(serving, "spark-2") == unit_pid(serving, "spark-1") == ""
    assert serving.sparkop("lab", "shell", "spark-2", "ls", f"{STATE}/units").out == ""


def test_after_a_power_cut_the_guard_is_there_before_anyone_asks(serving: User) -> None:
    """Docker starts it; the ranks wait for a human or watch."""
    serving.sparkop("lab", "break", "power-cut", "spark-2", check=0)
    serving.sparkop("lab", "boot", "spark-2", check=0)
    until(lambda: guard_id(serving, "spark-2") != "", 60)
    until(lambda: '"phase": "gate"' in state(serving, "spark-2", "memguard.json"))
    assert not running(serving, "spark-2")


def test_memory_shows_every_node(serving: User) -> None:
    """Available memory, phase and the rank, as JSON."""
    names = {"spark-1": "standin-r0", "spark-2": "standin-r1"}

    def complete() -> bool:
        nodes = serving.sparkop("memory", STANDIN, "-o", "json", check=0).json["nodes"]
        held = {node["node"]: [each["name"] for each in node["containers"]] for node in nodes}
        return held == {node: [name] for node, name in names.items()} and all(
            0 < node["available"] <= node["total"] and node["phase"] == "loading" for node in nodes
        )

    until(complete, 30)
