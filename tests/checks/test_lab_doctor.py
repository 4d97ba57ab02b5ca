"""doctor against real hosts: nothing wrong is silent, and each fault is named with node, figure and fix."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from sparkop.lab.faults import FAULTS, Target
from sparkop.lab.lab import Lab
from sparkop.lab.overlay import overlay_path
from sparkop.spec.load import load
from tests.checks.cases import ROOT
from tests.labkit import temporary_lab

pytestmark = pytest.mark.lab

SPEC = ROOT / "specs/lab-standin.yaml"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Two hosts with the stand-in engine's image in the registry."""
    with temporary_lab(engines="standin") as running:
        yield running


def doctor(*options: str) -> tuple[int, dict[str, Any]]:
    """Exit code and report, as a user runs it."""
    done = subprocess.run(
        [sys.executable, "-m", "sparkop", "doctor", str(SPEC), "-o", "json", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def complaints(report: dict[str, Any]) -> dict[tuple[str, str], list[dict[str, str]]]:
    return {(c["node"], c["check"]): c["findings"] for c in report["checks"] if c["state"] != "ok"}


def test_nothing_is_wrong(lab: Lab) -> None:
    """Every complaint here would be a false alarm."""
    code, report = doctor()
    assert complaints(report) == {}
    assert code == 0


@pytest.mark.parametrize(
    ("fault", "check", "figure", "fix"),
    [
        ("mtu", "fabric.mtu", "1500", "sudo ip link set dev enp1s0f0np0 mtu 9000"),
        ("cable", "rdma.active", "not active", "plug the cable in"),
        ("admin-down", "rdma.active", "not active", "sudo ip link set dev enp1s0f0np0 up"),
        ("dockerd-stop", "docker.access", "/var/run/docker.sock", "sudo systemctl start docker"),
        ("disk-full", "disk", "MiB", "make room on spark-2"),
        ("clock-skew", "clock", "ahead of spark-1", "sudo timedatectl set-ntp true"),
    ],
)
def test_a_fault_is_named(lab: Lab, fault: str, check: str, figure: str, fix: str) -> None:
    target = Target(lab, lab.host("spark-2"))
    FAULTS[fault].breaks(target)
    try:
        code, report = doctor()
    finally:
        FAULTS[fault].mends(target)
    found = complaints(report)
    assert code == 6
    assert {node for node, _ in found} == {"spark-2"}
    first = found["spark-2", check][0]
    assert figure in first["text"]
    assert fix in first["remedy"]


def test_a_node_that_refuses_is_unreachable(lab: Lab) -> None:
    target = Target(lab, lab.host("spark-2"))
    FAULTS["sshd-stop"].breaks(target)
    try:
        code, report = doctor()
    finally:
        FAULTS["sshd-stop"].mends(target)
    assert code == 4
    assert "refused" in report["unreachable"]["spark-2"]


def test_an_image_that_drifted(lab: Lab) -> None:
    """Both nodes had it; on one its digest is gone."""
    reference = load([SPEC, overlay_path(lab.name, "lab/standin")], []).spec.image.reference
    for host in ("spark-1", "spark-2"):
        lab.host(host).docker("pull", "-q", str(reference))
    target = Target(lab, lab.host("spark-2"))
    FAULTS["image-drift"].breaks(target)
    try:
        code, report = doctor("--only", "parity")
    finally:
        FAULTS["image-drift"].mends(target)
    assert code == 6
    assert "image: absent" in complaints(report)["spark-2", "parity"][0]["text"]


def test_one_rail_of_two_is_degraded(lab: Lab) -> None:
    """Reported, and no failure: the group runs with less bandwidth."""
    target = Target(lab, lab.host("spark-2"), rail=1)
    FAULTS["admin-down"].breaks(target)
    try:
        code, report = doctor("--only", "rdma")
    finally:
        FAULTS["admin-down"].mends(target)
    assert code == 0
    found = complaints(report)
    assert "roceP2p1s0f0" in found["spark-2", "rdma.active"][0]["text"]
    half = found["spark-2", "rdma.pair"][0]
    assert "roceP2p1s0f0 of cage 0" in half["text"]
    assert half["remedy"] == "sudo ip link set dev enP2p1s0f0np0 up"
