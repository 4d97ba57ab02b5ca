"""The words of ``status``: what a person reads first."""

from __future__ import annotations

import pytest

from sparkop.reconcile.status import status_of
from sparkop.views.status import show_status
from tests.reconcile.simulation import Cluster


def shown(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> str:
    reading = cluster.observe()
    show_status(status_of(reading, cluster.plan()))
    return capsys.readouterr().out


def test_a_deliberate_stop_is_called_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Not "not asked", which looks like a fault."""
    cluster = Cluster.make()
    cluster.apply()
    cluster.stop()
    first, *rest = shown(cluster, capsys).splitlines()
    assert first.split() == ["test", "stopped"]
    assert any("sparkop apply" in line for line in rest)


def test_a_served_model_is_ready_with_its_url_and_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster.make()
    cluster.apply()
    text = shown(cluster, capsys)
    assert text.splitlines()[0].split() == ["test", "ready"]
    assert ":8000/v1" in text
    assert "test-r0" in text
    assert "test-r1" in text
    assert "≠" not in text
