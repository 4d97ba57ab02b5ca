"""Clients that the spec lists: drift is planned on the controller, and never keeps ranks away."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sparkop.reconcile.observe import observe
from sparkop.reconcile.reconcile import reconcile
from sparkop.resources.base import Context
from sparkop.resources.clients import Clients
from sparkop.resources.operations import Action
from sparkop.spec.load import load
from sparkop.spec.models import ClusterSpec
from tests.clients.conftest import SPEC


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(tmp_path / "agent"))
    return tmp_path / "agent"


def spec(folder: Path, *sets: str) -> ClusterSpec:
    (folder / "spec.yaml").write_text(SPEC)
    return load([folder / "spec.yaml"], ("nodes=[{name: one, ssh: local}]", *sets)).spec


def context(cluster: ClusterSpec) -> Context:
    """One reading of the clients only; no node is asked for anything."""
    reading = observe(cluster, {"one": Silent()}, canary=False, resources=(Clients(),))
    return Context(reading.desired, reading.observed, {}, {}, lambda _event: None)


class Silent:
    """A node that does not answer: clients do not depend on it."""

    def probe(self, request: object, *, timeout: float) -> dict[str, object]:
        raise OSError("away")


def difference(cluster: ClusterSpec) -> object:
    found = context(cluster)
    return Clients().diff(found.desired, found.observed, None)  # type: ignore[arg-type]


def test_nothing_is_read_unless_the_spec_lists_it(agent: Path, tmp_path: Path) -> None:
    agent.mkdir()
    (agent / "models.json").write_text("broken")
    found = difference(spec(tmp_path))
    assert found == type(found)()


def test_drift_is_planned_mended_and_gone(agent: Path, tmp_path: Path) -> None:
    cluster = spec(tmp_path, "clients.connect=[pi]")
    for action, told in ((Action.CREATE, "absent"), (Action.UPDATE, "another baseUrl")):
        found = context(cluster)
        (operation,) = Clients().diff(found.desired, found.observed, None).operations  # type: ignore[arg-type]
        assert (operation.action, operation.node, operation.resource) == (action, "controller", "clients/pi")
        assert operation.cause.observed == told
        Clients().perform(operation, found)
        assert difference(cluster) == type(difference(cluster))()
        text = (agent / "models.json").read_text()
        (agent / "models.json").write_text(text.replace(":8000/", ":1/"))
    assert json.loads((agent / "models.json").read_text())["providers"].keys() == {"our-sparks"}
    shutil.rmtree(agent)
    assert reconcile_operations(cluster) == ["create:clients/pi@controller"]


def reconcile_operations(cluster: ClusterSpec) -> list[str]:
    reading = observe(cluster, {"one": Silent()}, canary=False, resources=(Clients(),))
    plan = reconcile(reading.desired, reading.observed, reading.history, 0.0, (Clients(),))
    return [operation.key for operation in plan.operations]


def test_a_folder_that_takes_no_file_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation that fails would end the apply before its ranks start."""
    monkeypatch.setenv("PI_CODING_AGENT_DIR", "/dev/null/agent")
    found = context(spec(tmp_path, "clients.connect=[pi]"))
    result = Clients().diff(found.desired, found.observed, None)  # type: ignore[arg-type]
    assert not result.operations
    assert "/dev/null" in result.warnings[0]


@pytest.mark.parametrize("content", ["{", '{"providers": []}'])
def test_a_broken_file_is_a_warning(agent: Path, tmp_path: Path, content: str) -> None:
    """A blocker would keep the model from serving."""
    agent.mkdir()
    (agent / "models.json").write_text(content)
    cluster = spec(tmp_path, "clients.connect=[pi]")
    found = context(cluster)
    result = Clients().diff(found.desired, found.observed, None)  # type: ignore[arg-type]
    assert not result.operations
    assert not result.blockers
    assert not result.unknown
    assert "models.json" in result.warnings[0]
