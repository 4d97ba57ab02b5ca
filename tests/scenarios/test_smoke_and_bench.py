"""smoke and bench as a user runs them: over SSH, with the stand-in and with real vLLM."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.labkit import until
from tests.scenarios.conftest import ROOT, STANDIN, VLLM, User

pytestmark = pytest.mark.lab
SMALL = ("--prefill", "512", "--ctx", "2000", "--conc", "1", "2", "--reps", "2")


def test_smoke_tells_a_good_model_from_one_in_circles(user: User) -> None:
    assert user.sparkop("smoke", STANDIN).code == 6, "nothing is served yet"
    user.sparkop("apply", STANDIN, check=0)
    good = user.sparkop("smoke", STANDIN, "-o", "json", check=0).json
    assert {c["name"]: c["verdict"] for c in good["checks"]} == {
        "text": "PASS",
        "streaming": "PASS",
        "tool call": "PASS",
        "reasoning": "PASS",
        "vision": "not offered",
        "thinking with tools": "PASS",
    }
    seeing = user.sparkop("smoke", STANDIN, "--set", "engine.promptLimits.image=1", check=0)
    assert "red before blue" in seeing.out

    user.sparkop("lab", "break", "degenerate", "spark-1", check=0)
    broken = user.sparkop("smoke", STANDIN, check=6)
    user.sparkop("lab", "mend", "degenerate", "spark-1", check=0)
    assert "'!' again and again" in broken.out
    assert "What is 17 * 23?" in broken.out


def test_bench_is_broken_off_and_carries_on_and_status_tells(user: User, tmp_path: Path) -> None:
    user.sparkop("apply", STANDIN, check=0)
    out = tmp_path / "bench.json"
    command = [sys.executable, "-m", "sparkop", "bench", STANDIN, *SMALL, "--out", str(out)]
    running = subprocess.Popen(
        command, cwd=ROOT, env=user.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    until(lambda: out.exists() and bool(json.loads(out.read_text())["decode"]), 90)
    running.send_signal(signal.SIGINT)
    said = running.communicate(timeout=20)[1]
    assert running.returncode == 130, said.decode()
    before = json.loads(out.read_text())
    assert before["finished"] is None

    ran = user.sparkop("bench", STANDIN, *SMALL, "--out", str(out), check=0)
    after = json.loads(out.read_text())
    assert after["decode"][: len(before["decode"])] == before["decode"]
    assert after["prefill"] == before["prefill"]
    assert [(d["kind"], d["C"], d["rep"]) for d in after["decode"]] == [
        (kind, streams, rep) for kind in ("code", "prose") for streams in (1, 2) for rep in (0, 1)
    ]
    assert "decode prose x2" in ran.out
    assert "nothing is left" in user.sparkop("bench", STANDIN, *SMALL, "--out", str(out), check=0).err

    status = user.sparkop("status", STANDIN, "-o", "json", check=0).json
    assert set(status["speeds"]["decode"]) == {"code/1", "code/2", "prose/1", "prose/2"}
    assert status["speeds"]["current"] is True
    assert "measured on" in user.sparkop("status", STANDIN, check=0).out
    assert "nothing to do" in user.sparkop("apply", STANDIN, check=0).err

    refused = user.sparkop("bench", STANDIN, "--set", "engine.maxSequences=2", "--out", str(out), check=64)
    assert "configuration" in refused.err
    (tmp_path / "same.json").write_text(out.read_text())
    compared = user.sparkop("bench", "compare", str(out), str(tmp_path / "same.json"), check=0)
    assert "no difference beyond noise" in compared.out
    assert "B is" not in compared.out


@pytest.mark.vllm
def test_both_with_real_vllm(user: User, tmp_path: Path) -> None:
    """The issue's own commands; the tiny model answers soon, so this takes a minute."""
    user.sparkop("apply", VLLM, check=0, timeout=400)
    found = user.sparkop("smoke", VLLM, "-o", "json", check=0).json
    verdicts = {c["name"]: c["verdict"] for c in found["checks"]}
    assert (verdicts["text"], verdicts["tool call"], verdicts["vision"]) == ("PASS", "PASS", "not offered")

    out = tmp_path / "bench.json"
    user.sparkop("bench", VLLM, "--conc", "1", "2", "--reps", "1", "--out", str(out), check=0, timeout=400)
    measured = json.loads(out.read_text())
    assert set(measured["prefill"]) == {"8192", "32752"}
    assert {(d["kind"], d["C"]) for d in measured["decode"]} == {
        (kind, streams) for kind in ("code", "prose") for streams in (1, 2)
    }
    assert all(r["counted_by"] == "usage" for d in measured["decode"] for r in d["reqs"])
    assert measured["ctx"][0]["prompt_tokens"] > 20_000


def interrupted(user: User, *words: str) -> float:
    """Seconds that a command takes to end when it gets Ctrl-C while it waits for the nodes."""
    command = [sys.executable, "-m", "sparkop", *words]
    with subprocess.Popen(
        command, cwd=ROOT, env=user.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as running:
        threads = Path(f"/proc/{running.pid}/task")
        until(lambda: len(list(threads.iterdir())) > 2, 60)  # it connects to each node in a thread
        running.send_signal(signal.SIGINT)
        began = time.monotonic()
        told = running.communicate(timeout=60)[1]
        assert running.returncode == 130
        assert "interrupted; run the same command again" in told
        return time.monotonic() - began


def test_a_frozen_follower_is_named_soon_and_holds_up_no_ctrl_c(user: User) -> None:
    """The head takes every request, and no token comes: smoke says what hangs, doctor that it is silent."""
    user.sparkop("apply", STANDIN, check=0)
    user.sparkop("lab", "break", "freeze", "spark-2", check=0)
    for command in ("doctor", "smoke"):
        assert interrupted(user, command, STANDIN) < 5, "half a second on a quiet machine; it had been ten"

    began = time.monotonic()
    hung = user.sparkop("smoke", STANDIN, check=6)
    assert time.monotonic() - began < 120, "22 s on a quiet machine; a deadline alone is 180"
    assert "what hangs: spark-2, which has rank 1, does not answer" in hung.out
    assert "sparkop apply" in hung.out
    assert "streaming" not in hung.out, "it would hang as well"
    assert "no token for 10 s: looking at every rank" in hung.err

    user.sparkop("lab", "mend", "freeze", "spark-2", check=0)
    user.sparkop("smoke", STANDIN, check=0)
