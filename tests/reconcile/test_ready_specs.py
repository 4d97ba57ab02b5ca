"""What rollback goes back to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparkop.errors import BlockedError
from sparkop.reconcile.ready_specs import KEPT, last_ready, remember_ready
from sparkop.spec.load import load
from tests.reconcile.simulation import Cluster, spec_of


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_a_kept_spec_loads_as_the_same_spec() -> None:
    """Overlays and --set are in it; a rollback to something slightly different would restart for nothing."""
    spec = spec_of(memory={"kvCache": "32 MiB"}, ready={"deadline": "5 min"})
    path = remember_ready(spec)
    assert load([path], ()).spec == spec


def test_rollback_finds_the_newest_other_spec() -> None:
    """S1 ready, S2 ready: from S2 back to S1; with S2 bad and never ready, also S1."""
    one, two = spec_of(), spec_of(memory={"kvCache": "32 MiB"})
    assert last_ready("test") is None
    first = remember_ready(one)
    assert last_ready("test", other_than=two) == first
    second = remember_ready(two)
    assert last_ready("test") == second
    assert last_ready("test", other_than=two) == first
    assert last_ready("other") is None


def test_only_the_last_few_are_kept(tmp_path: Path) -> None:
    """A disk does not fill up with old specs."""
    for size in range(KEPT + 3):
        newest = remember_ready(spec_of(memory={"kvCache": f"{size + 1} MiB"}))
    assert last_ready("test") == newest
    assert len(list((tmp_path / "sparkop" / "ready" / "test").glob("*.yaml"))) == KEPT


def test_a_bad_spec_and_back_ends_in_the_same_world() -> None:
    """Apply S1, a bad S2 that is never ready, S1 again."""
    cluster = Cluster.make()
    cluster.apply()
    before = cluster.shape()
    good = cluster.spec
    cluster.spec = spec_of(memory={"kvCache": "32 MiB"})
    cluster.manner = "die-1"
    with pytest.raises(BlockedError):
        cluster.apply()
    cluster.manner = "serve"
    cluster.spec = good
    cluster.apply()
    assert cluster.shape() == before
    assert cluster.plan().converged


def test_a_damaged_order_loses_no_spec(tmp_path: Path) -> None:
    """Their files still tell which one is newer."""
    first = remember_ready(spec_of())
    second = remember_ready(spec_of(memory={"kvCache": "32 MiB"}))
    os.utime(first, (1.0, 1.0))
    (first.parent / "order.json").write_text("[")
    assert last_ready("test") == second
    assert last_ready("test", other_than=spec_of(memory={"kvCache": "32 MiB"})) == first
