"""When sparkop goes into a lab by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkop.errors import UnreachableError
from sparkop.inside import INSIDE_VARIABLE, inside
from sparkop.lab import layout
from sparkop.lab.enter import lab_of
from sparkop.lab.overlay import image_reference, model_overlay, overlay_path, write


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(layout.STATE_VARIABLE, str(tmp_path))
    monkeypatch.delenv(layout.LAB_VARIABLE, raising=False)
    monkeypatch.delenv(INSIDE_VARIABLE, raising=False)


def _pretend_up(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "lab.json").write_text("{}")


def test_a_users_own_machine_of_that_name_is_no_labs(tmp_path: Path) -> None:
    """A real Spark may be called spark-1; entering the lab would apply its spec to the wrong machines."""
    _pretend_up(tmp_path, "default")
    assert lab_of({"spark-1", "spark-2"}, {"spark-1", "spark-2"}) is None
    assert lab_of({"spark-1", "spark-2"}, {"spark-1.lab", "192.168.1.5"}) is None
    assert lab_of({"spark-1"}, set()) is None


@pytest.mark.parametrize("addresses", [{"spark-1.lab", "spark-2.lab"}, {"10.77.0.11", "10.77.0.12"}])
def test_lab_names_and_addresses_mean_the_named_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, addresses: set[str]
) -> None:
    _pretend_up(tmp_path, "mine")
    monkeypatch.setenv(layout.LAB_VARIABLE, "mine")
    assert lab_of({"a", "b"}, addresses) == "mine"


def test_lab_nodes_without_a_lab_are_told() -> None:
    with pytest.raises(UnreachableError) as told:
        lab_of({"spark-1"}, {"spark-1.lab"})
    assert told.value.remedy == "sparkop lab up"


def test_inside_wins_over_the_environments_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a command run inside lab A would try to enter lab B."""
    _pretend_up(tmp_path, "a")
    monkeypatch.setenv(INSIDE_VARIABLE, "a:0123")
    monkeypatch.setenv(layout.LAB_VARIABLE, "b")
    assert inside() == "a"
    assert lab_of({"x"}, {"spark-1.lab"}) == "a"


def test_overlay_of_the_engine_that_the_spec_names(tmp_path: Path) -> None:
    paths = layout.LabPaths.of()
    paths.root.mkdir()
    write(paths, {"standin": {"image": {"reference": "registry.lab:5000/x@sha256:1"}}}, models={})
    assert "registry.lab" in overlay_path(None, "lab/standin").read_text()
    for other in (None, "ghcr.io/lab/standin", "lab/unknown", "standin"):
        assert "registry.lab" not in overlay_path(None, other).read_text()
        assert "10.77.0.1" in overlay_path(None, other).read_text()


def test_the_labs_image_by_digest(tmp_path: Path) -> None:
    """A user's overlay may name the lab's image, above the lab's own overlay: the digest has to win then."""
    paths = layout.LabPaths.of()
    paths.root.mkdir()
    write(paths, {"standin": {"image": {"reference": "registry.lab:5000/x@sha256:1"}}}, models={})
    assert image_reference(None, "lab/standin") == "registry.lab:5000/x@sha256:1"
    for other in (None, "ghcr.io/lab/standin", "lab/unknown", "standin"):
        assert image_reference(None, other) is None


def test_only_the_labs_own_model_is_pinned(tmp_path: Path) -> None:
    """A user's own repository in the lab's hub failed with "no revision": it was asked for the model's."""
    paths = layout.LabPaths.of()
    paths.root.mkdir()
    write(paths, {"standin": {}}, models={"sparkop/tiny-chat": "c" * 40})
    pin = model_overlay(None, "sparkop/tiny-chat")
    assert pin is not None
    assert "c" * 40 in pin.read_text()
    assert "revision" not in overlay_path(None, "lab/standin").read_text()
    assert model_overlay(None, "test/own") is None
