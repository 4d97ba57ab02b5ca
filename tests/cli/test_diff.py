"""``sparkop diff`` names what it sees, also where nothing can be planned for it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from sparkop.cli import run
from sparkop.errors import ExitCode
from sparkop.hosts.simulated_node import Answer
from sparkop.reconcile import nodes, observe, reconcile, refuse
from tests.reconcile.simulation import SIMULATED
from tests.reconcile.watching import serving
from tests.spec.samples import MINIMAL, write


def test_a_missing_rank_is_named_beside_a_silent_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It named only the silent node."""
    cluster = serving()
    del cluster.node("spark-1").containers["test-r0"]
    cluster.node("spark-2").answer = Answer.SILENT
    reading = cluster.observe()
    monkeypatch.setattr(nodes, "connect_all", lambda *_, **__: cluster.hosts())
    monkeypatch.setattr(observe, "observe", lambda *_, **__: reading)
    monkeypatch.setattr(reconcile, "reconcile", partial(reconcile.reconcile, resources=SIMULATED))
    monkeypatch.setattr(refuse, "refuse", lambda *_: None)
    assert run(["diff", str(write(tmp_path, MINIMAL))]) == ExitCode.UNREACHABLE
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["unknown", "warning"]
    assert "spark-1: rank/0 container: missing -> running" in lines[1]
