"""What a watch knows of the world outside the nodes: asked rarely, but never believed when it is stale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from sparkop.errors import BlockedError
from sparkop.resources.base import Difference
from sparkop.resources.operations import Action, Cause, Operation
from sparkop.resources.weights.files import Checkpoint
from sparkop.spec.models import ClusterSpec
from tests.reconcile.simulation import SIMULATED, PlayedWeights
from tests.reconcile.watching import Watching, serving

QUARTER = 15 * 60.0


@dataclass
class Hub:
    """Whether it answers, and how often it was asked."""

    answers: bool = True
    asked: int = 0


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    played, known = Hub(), PlayedWeights.prepare

    def prepare(resource: PlayedWeights, spec: ClusterSpec) -> Checkpoint:
        played.asked += 1
        if played.answers:
            return known(resource, spec)
        return Checkpoint(None, error=BlockedError("the hub does not answer", remedy="try again"))

    monkeypatch.setattr(PlayedWeights, "prepare", prepare)
    return played


def test_a_hub_that_answers_is_asked_every_quarter_of_an_hour(hub: Hub) -> None:
    watching = Watching(serving())
    before = hub.asked
    watching.run(29)
    assert hub.asked - before == 2


def test_a_hub_that_comes_back_is_believed_at_the_next_look(hub: Hub) -> None:
    """Without its list no group is started: a rank that died meanwhile must not wait for a quarter of an
    hour."""
    cluster = serving()
    hub.answers = False
    watching = Watching(cluster)
    watching.run(2)
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 137)
    watching.run(2)
    assert cluster.started == []
    hub.answers = True
    watching.run(0.25)
    assert cluster.started == ["1@spark-2", "0@spark-1"]


class Elsewhere:
    """One file on the controller, such as a client's configuration, that is as it should be or not."""

    kind = "elsewhere"

    def __init__(self) -> None:
        self.right, self.written = False, 0

    def prepare(self, _spec: object) -> bool:
        return self.right

    def request(self, *_: object) -> dict[str, Any]:
        return {}

    def diff(self, desired: Any, *_: object) -> Difference:
        cause = Cause("file", "another", "as it should be")
        write = Operation(Action.UPDATE, "controller", self.kind, cause)
        return Difference(() if desired.outside[self.kind] else (write,))

    def perform(self, *_: object) -> None:
        self.right, self.written = True, self.written + 1


def test_what_the_watch_has_changed_itself_is_read_again() -> None:
    """Else it would be changed again and again until the quarter of an hour is over."""
    cluster, elsewhere = serving(), Elsewhere()
    watching = Watching(cluster, resources=(*SIMULATED, elsewhere))
    watching.run(QUARTER / 60 - 1)
    assert elsewhere.written == 1
