"""Every fault of the lab: diff names it, apply mends what can be mended, then all is as before (4.9)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from sparkop.lab.faults import FAULTS
from sparkop.lab.lab import Lab
from tests.drift.rows import fault_names
from tests.scenarios.conftest import STANDIN, User

pytestmark = pytest.mark.lab

SPEC = (STANDIN, "--set", "ready.canary.deadline=5s")
"""A wedge is told after two canaries; the lab need not wait a minute for each."""


@dataclass(frozen=True)
class Case:
    """``diff`` and ``apply``: exit codes while broken. ``names``: what the diff must say."""

    fault: str
    host: str
    diff: int
    names: str
    apply: int
    mends: tuple[str, ...] = ()
    """More words for the apply after the fault was undone."""


CASES = (
    Case("kill-rank", "spark-2", 2, "rank/1 state: exited (137)", 0),
    Case("exit-zero", "spark-2", 2, "rank/1 state: exited (0)", 0),
    Case("kill-launcher", "spark-1", 2, "rank/0 state: exited", 0),
    Case("kill-guard", "spark-1", 2, "start     memguard", 0),
    Case("missing-weight", "spark-2", 2, "missing model.safetensors", 0),
    Case("corrupt-weight", "spark-1", 2, "unverified model.safetensors", 0),
    Case("image-drift", "spark-2", 2, "copy      image", 0),
    Case("degenerate", "spark-1", 2, "degenerate", 0),
    Case("wedge", "spark-1", 2, "wedged", 0),
    Case("hang", "spark-1", 2, "its counters do not answer either", 0),
    Case("gpu-lost", "spark-2", 2, "has lost its GPU", 0),
    Case("cable", "spark-2", 2, "plug the cable in", 6),
    Case("admin-down", "spark-2", 2, "ip link set", 6),
    Case("mtu", "spark-2", 2, "mtu: 1500 -> 9000", 6),
    Case("disk-full", "spark-2", 2, "blocked   disk", 6),
    Case("memory-pressure", "spark-2", 2, "killed the ranks", 6, ("--after-trip",)),
    Case("mgmt-cut", "spark-2", 4, "unknown   node", 4),
    Case("freeze", "spark-2", 4, "unknown   node", 4),
    Case("sshd-stop", "spark-2", 4, "refused the connection", 4),
    Case("dockerd-stop", "spark-2", 4, "Docker", 4),
    Case("dockerd-freeze", "spark-2", 4, "Docker", 4),
    Case("power-cut", "spark-2", 4, "unknown   node", 4),
    Case("clock-skew", "spark-2", 0, "converged", 0),  # doctor's to name: no decision goes by a wall clock
)


@pytest.fixture(scope="module")
def serving(engines_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """A cluster that serves; every test leaves it so, or the next one says what is left."""
    user = User(engines_lab, tmp_path_factory.mktemp("user"))
    user.sparkop("apply", *SPEC, check=0)
    yield user
    user.sparkop("stop", *SPEC, "--yes")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.fault)
def test_a_fault_is_named_and_mended(serving: User, case: Case) -> None:
    """Exit codes of design.md; what is physical or out of reach is told and not touched."""
    serving.sparkop("apply", *SPEC, check=0)
    serving.sparkop("lab", "break", case.fault, case.host, check=0)
    try:
        broken = serving.sparkop("diff", *SPEC, check=case.diff)
        assert case.names in broken.out
        serving.sparkop("apply", *SPEC, check=case.apply)
    finally:
        serving.sparkop("lab", "mend", case.fault, case.host)
    serving.sparkop("apply", *SPEC, *case.mends, check=0)
    assert "converged" in serving.sparkop("diff", *SPEC, check=0).out


def test_a_killed_docker_comes_back_and_apply_mends_what_died_with_it(serving: User) -> None:
    """dockerd is started again by its supervisor: unknown for a moment, then a dead rank."""
    serving.sparkop("apply", *SPEC, check=0)
    serving.sparkop("lab", "break", "dockerd-kill", "spark-1", check=0)
    assert serving.sparkop("diff", *SPEC).code in (2, 4)
    serving.sparkop("lab", "mend", "dockerd-kill", "spark-1", check=0)
    serving.sparkop("apply", *SPEC, check=0)
    serving.sparkop("diff", *SPEC, check=0)


def test_a_slow_start_is_waited_for(serving: User) -> None:
    """No fault at all: ten seconds of loading are no reason to start again."""
    serving.sparkop("lab", "break", "slow-start", "spark-1", "--amount", "10", check=0)
    serving.sparkop("diff", *SPEC, check=0)
    serving.sparkop("lab", "break", "kill-rank", "spark-1", check=0)
    ran = serving.sparkop("apply", *SPEC, check=0)
    assert ran.err.count("✓ start rank/0") == 1
    serving.sparkop("lab", "mend", "slow-start", "spark-1", check=0)


def test_every_fault_of_the_lab_is_tried() -> None:
    """A new fault needs a case here, or one of watch's rows (tests/drift)."""
    tried = {case.fault for case in CASES} | {"dockerd-kill", "slow-start"} | fault_names()
    assert tried == set(FAULTS)
