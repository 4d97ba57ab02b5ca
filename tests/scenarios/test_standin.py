"""The commands of a user's day on real sshd, Docker, registry and hub, with the stand-in engine."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from sparkop.lab.layout import REGISTRY_PORT
from tests.scenarios.conftest import ROOT, STANDIN, User

pytestmark = pytest.mark.lab


def test_apply_diff_break_mend_stop(user: User) -> None:
    """From nothing to tokens, nothing left to do, a dead rank named and mended, a stop that is remembered."""
    first = user.sparkop("apply", STANDIN, check=0)
    assert "http://spark-1.lab:8000/v1" in first.out
    assert "api_key" in first.out

    again = user.sparkop("apply", STANDIN, check=0)
    assert "nothing to do" in again.err

    converged = user.sparkop("diff", "-o", "json", check=0)
    assert STANDIN in converged.err, "which spec was taken is said"
    assert converged.json["converged"] is True
    assert converged.json["operations"] == []
    assert converged.json["unknown"] == []

    user.sparkop("lab", "break", "kill-rank", "spark-2", check=0)
    broken = user.sparkop("diff", STANDIN, "-o", "json", check=2).json
    assert broken["converged"] is False
    steps = [(o["action"], o["resource"], o["node"]) for o in broken["operations"]]
    assert steps.index(("start", "rank/1", "spark-2")) < steps.index(("start", "rank/0", "spark-1"))
    assert not any(o["cost"]["stopsServing"] for o in broken["operations"]), "nothing serves any more"
    assert any("137" in o["cause"]["observed"] for o in broken["operations"])

    user.sparkop("apply", STANDIN, check=0)
    status = user.sparkop("status", STANDIN, "-o", "json", check=0).json
    assert status["endpoint"] == "ready"
    assert [rank["state"] for rank in status["ranks"]] == ["running", "running"]

    logs = user.sparkop("logs", STANDIN, "--rank", "1", "-n", "5", check=0)
    assert logs.out.startswith("r1 | ")

    user.sparkop("stop", STANDIN, check=0)
    stopped = user.sparkop("status", STANDIN, "-o", "json").json
    assert stopped["stoppedByHuman"] is True
    assert all(rank["state"] == "stopped" for rank in stopped["ranks"])


def test_a_cut_fabric_is_a_physical_fault_and_nothing_is_restarted(user: User) -> None:
    user.sparkop("apply", STANDIN, check=0)
    user.sparkop("lab", "break", "cable", "spark-2", check=0)
    found = user.sparkop("diff", STANDIN, "-o", "json", check=2).json
    assert found["operations"] == []
    assert [(b["node"], b["resource"]) for b in found["blockers"]] == [("spark-2", "fabric")]
    assert "cable" in found["blockers"][0]["remedy"]
    user.sparkop("lab", "mend", "cable", "spark-2", check=0)
    user.sparkop("diff", STANDIN, check=0)


def test_a_node_that_is_cut_off_is_unknown_and_not_empty(user: User) -> None:
    user.sparkop("apply", STANDIN, check=0)
    user.sparkop("lab", "break", "mgmt-cut", "spark-2", check=0)
    found = user.sparkop("diff", STANDIN, "-o", "json", check=4).json
    assert found["unknown"] == ["spark-2"]
    assert found["operations"] == []
    user.sparkop("apply", STANDIN, check=4)
    user.sparkop("lab", "mend", "mgmt-cut", "spark-2", check=0)
    user.sparkop("diff", STANDIN, check=0)


def test_power_cut_and_boot(user: User) -> None:
    """A node that comes back has no ranks (restart policy no), but its guard; apply brings the group back."""
    user.sparkop("apply", STANDIN, check=0)
    user.sparkop("lab", "break", "power-cut", "spark-2", check=0)
    assert user.sparkop("diff", STANDIN).code == 4
    user.sparkop("lab", "boot", "spark-2", check=0)
    user.sparkop("apply", STANDIN, check=0)
    user.sparkop("diff", STANDIN, check=0)


@pytest.mark.parametrize("seconds", [0.8, 2.0, 3.5])
def test_apply_killed_anywhere_and_applied_again(user: User, seconds: float) -> None:
    """SIGKILL in the middle leaves nothing that the next apply can't carry on from."""
    user.sparkop("stop", STANDIN)
    command = [sys.executable, "-m", "sparkop", "apply", STANDIN]
    running = subprocess.Popen(
        command, cwd=ROOT, env=user.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        running.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()
    deadline = time.monotonic() + 120
    while (ran := user.sparkop("apply", STANDIN)).code == 5 and time.monotonic() < deadline:
        assert "lease" in ran.err, "a dead holder's lease is waited out, and said"
    assert ran.code == 0, ran.err
    user.sparkop("diff", STANDIN, check=0)


def test_the_key_appears_nowhere_that_it_should_not(user: User) -> None:
    """Not in argv, labels, environment, logs, plans or status (principle 10)."""
    user.sparkop("apply", STANDIN, check=0)
    key = user.sparkop("lab", "run", "--", "ssh", "spark-1", "cat", ".sparkop/standin/api_key").out.strip()
    assert len(key) >= 32
    shown = [
        user.sparkop("status", STANDIN, "-o", "json").out,
        user.sparkop("diff", STANDIN, "-o", "json").out,
        user.sparkop("render", STANDIN, "-o", "json").out,
        user.sparkop("render", STANDIN).out,
        user.sparkop("facts", STANDIN).out,
        user.sparkop("logs", STANDIN, "-n", "1000").out,
    ]
    for host in ("spark-1", "spark-2"):
        look = "docker inspect $(docker ps -aq); ps axww; cat .sparkop/standin/history.json"
        shown.append(user.sparkop("lab", "run", "--", "ssh", host, look).out)
    for text in shown:
        assert text
        assert key not in text


def test_usage_and_invalid_specs_have_their_own_exit_codes(user: User) -> None:
    assert user.sparkop("diff", "nonsense").code == 64
    assert user.sparkop("apply", STANDIN, "--set", "engine.contxt=1").code == 65


def test_rollback_goes_back_and_destroy_leaves_nothing(user: User) -> None:
    """S1, then S2, then back to S1; then everything that sparkop made is gone."""
    own = (STANDIN, "--set", "weights.path=~/models/alone")  # a file that another cluster uses too stays
    assert user.sparkop("rollback", STANDIN, check=6).err.count("no other spec")
    user.sparkop("apply", *own, check=0)
    user.sparkop("apply", *own, "--set", "api.port=8001", check=0)
    user.sparkop("rollback", check=0)
    user.sparkop("diff", *own, check=0)

    assert "free" in user.sparkop("lease", "show", STANDIN, check=0).out
    assert user.sparkop("destroy", *own, "--weights", "wrong-name").code == 64
    user.sparkop("destroy", *own, "--weights", "standin", check=0)
    for host in ("spark-1", "spark-2"):
        ours = "docker ps -aq --filter label=sparkop.cluster=standin"
        look = f"{ours}; ls -d .sparkop/standin models/alone/*"
        left = user.sparkop("lab", "run", "--", "ssh", host, look)
        assert left.out == "", f"{host} still has {left.out}"
        keys = user.sparkop("lab", "run", "--", "ssh", host, "cat .ssh/authorized_keys").out
        assert "sparkop:standin:" not in keys, "the nodes' keys for each other are taken back"


def test_a_node_that_the_registry_does_not_answer_gets_the_image_of_another(user: User) -> None:
    """The registry is asked once, and the image that came over the fabric is no difference."""
    user.sparkop("destroy", STANDIN, "--yes")  # whatever pulled images were there
    spark_2, log = user.lab.host("spark-2"), user.lab.paths.logs / "registry.log"
    before = log.read_text().count("/manifests/")
    no_registry = ["OUTPUT", "-p", "tcp", "--dport", str(REGISTRY_PORT), "-j", "REJECT"]
    spark_2.exec(["iptables", "-A", *no_registry])
    try:
        user.sparkop("apply", STANDIN, check=0)
    finally:
        spark_2.exec(["iptables", "-D", *no_registry])
    assert log.read_text().count("/manifests/") == before + 1
    user.sparkop("diff", STANDIN, check=0)
