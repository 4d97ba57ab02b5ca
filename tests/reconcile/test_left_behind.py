"""Where a cluster has been, and a later spec does not reach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkop.reconcile.left_behind import is_of_a_node, left_by, note_cleared, note_places
from sparkop.reconcile.ready_specs import KEPT, ready_specs, remember_ready
from sparkop.spec.load import load
from sparkop.spec.models import ClusterSpec
from tests.reconcile.simulation import spec_of

A: dict[str, Any] = {"name": "spark-1", "ssh": "a"}
B: dict[str, Any] = {"name": "spark-2", "ssh": "b"}
C: dict[str, Any] = {"name": "spark-3", "ssh": "c"}


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def _left(spec: ClusterSpec) -> list[tuple[str, str]]:
    return [(each.node, each.state) for each in left_by(spec)]


def test_a_node_that_left_the_spec_is_named_and_a_renamed_one_is_not() -> None:
    """Its ranks hold memory and a name in the fabric, and nothing looks there any more."""
    note_places(spec_of(nodes=[A, B]))
    assert _left(spec_of(nodes=[{"name": "alpha", "ssh": "a"}, {"name": "beta", "ssh": "b"}])) == []
    assert _left(spec_of(nodes=[A])) == [("spark-2", "~/.sparkop/test")]
    assert _left(spec_of(name="other", nodes=[A])) == []


def test_a_machine_that_is_written_another_way_is_no_other() -> None:
    """An alias of ssh as the node's name, as text, or as a mapping."""
    note_places(spec_of(nodes=[{"name": "spark-1"}]))
    for ssh in ("spark-1", {"host": "spark-1"}):
        assert _left(spec_of(nodes=[{"name": "alpha", "ssh": ssh}])) == []


@pytest.mark.parametrize(
    "ssh",
    ["root@b", "B:22", {"host": "b", "user": "root", "port": 22}, {"host": "b", "identityFile": "~/.ssh/id"}],
)
def test_another_user_key_or_way_of_writing_makes_no_other_machine(ssh: Any) -> None:
    """The node serves, and was told as one that had left the spec: the command given destroyed it."""
    note_places(spec_of(nodes=[A, B]))
    assert _left(spec_of(nodes=[A, {"name": "spark-2", "ssh": ssh}])) == []


def test_another_address_may_be_the_same_machine() -> None:
    """Nobody looks there, so the user is asked first, and no command is given that ends what serves."""
    note_places(spec_of(nodes=[A, B]))
    for ssh in ("10.0.0.2", "b:2222"):
        (left,) = left_by(spec_of(nodes=[A, {"name": "spark-2", "ssh": ssh}]))
        assert (left.node, left.other_address, left.same_node) == ("spark-2", "b", False)
    (gone,) = left_by(spec_of(nodes=[A]))
    assert gone.other_address == ""


def test_a_node_stays_left_behind_however_many_specs_have_served_since() -> None:
    """It was forgotten as soon as the next spec had served, or a few others: its rank still ran."""
    note_places(spec_of(nodes=[A, B]))
    for size in range(KEPT + 2):
        now = spec_of(nodes=[A, C], memory={"kvCache": f"{size + 1} MiB"})
        note_places(now)
        remember_ready(now)
    assert all(len(each.nodes or ()) == 2 for each in ready_specs("test"))
    assert _left(now) == [("spark-2", "~/.sparkop/test")]


def test_a_destroy_ends_it_and_another_apply_there_begins_it_again() -> None:
    """Of the nodes where something was cleared, and of these only."""
    old, now = spec_of(nodes=[A, B]), spec_of(nodes=[A, C])
    note_places(old)
    note_places(now)
    note_cleared(old, {"spark-1"})
    assert _left(now) == [("spark-2", "~/.sparkop/test")]
    note_cleared(old, {"spark-2"})
    assert _left(now) == []
    note_places(now)
    assert _left(now) == []
    note_places(old)
    assert _left(now) == [("spark-2", "~/.sparkop/test")]


def test_a_destroy_in_another_state_folder_clears_nothing_of_an_old_one() -> None:
    """Key and history lie there still; trailing slashes make no other folder."""
    note_places(spec_of(nodes=[A]))
    moved = spec_of(nodes=[A], stateDirectory="~/elsewhere")
    note_places(moved)
    note_cleared(moved, {"spark-1"})
    (left,) = left_by(moved)
    assert (left.state, left.same_node) == ("~/.sparkop/test", True)
    note_cleared(spec_of(nodes=[A], stateDirectory="~/.sparkop/test/"), {"spark-1"})
    assert _left(moved) == []


def test_the_file_of_a_node_is_a_spec_of_it_alone() -> None:
    """Others may serve: a destroy by it must not reach them. What names another node is left out."""
    spec = spec_of(
        nodes=[A, {**B, "paths": {"state": "~/own"}}],
        weights={"downloadOn": "spark-1"},
        image={"pullOn": "spark-1"},
    )
    note_places(spec)
    (left,) = left_by(spec_of(nodes=[A]))
    alone = load([left.file], ()).spec
    assert alone.nodes == spec.nodes[1:]
    assert (alone.name, alone.weights.path) == (spec.name, spec.weights.path)
    assert is_of_a_node(alone, left.file)
    assert not is_of_a_node(alone, left.file.parent.parent / "my-cluster.yaml")


def test_a_damaged_file_harms_nothing_and_is_mended() -> None:
    note_places(spec_of(nodes=[A, B]))
    (left,) = left_by(spec_of(nodes=[A]))
    left.file.write_text("[")
    assert _left(spec_of(nodes=[A])) == []
    note_places(spec_of(nodes=[A, B]))
    assert _left(spec_of(nodes=[A])) == [("spark-2", "~/.sparkop/test")]
