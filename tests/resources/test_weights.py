"""The weights resource with real processes on both nodes and a hub over HTTP (A2, A4, B2, S2)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkop.resources.operations import Action
from tests.node.hub_standin import Hub, running
from tests.resources.weights_world import World

FILES = {
    "config.json": b"{}\n",
    "model-00001-of-00002.safetensors": b"\2\0\0\0\0\0\0\0{}",
    "model-00002-of-00002.bin": os.urandom(20 << 20) + b"tail",
    "sub folder/ä.bin": os.urandom(2 << 20),
    "empty.txt": b"",
}
Make = Callable[..., World]


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running(Hub("org/name", "c" * 40, dict(FILES))) as hub:
        yield hub


@pytest.fixture
def make(tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "controller"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    worlds = []

    def make(*names: str, **weights: Any) -> World:
        worlds.append(World.make(tmp_path, hub, names or ("one", "two"), **weights))
        return worlds[-1]

    yield make
    for world in worlds:
        world.end()


def assert_complete(folder: Path) -> None:
    for name, data in FILES.items():
        assert (folder / name).read_bytes() == data, name
    left = [path.name for path in folder.rglob(".sparkop-*")]
    assert left == []


def test_head_downloads_while_the_other_copies_and_then_nothing_is_left_to_do(make: Make, hub: Hub) -> None:
    world = make()
    plan = world.look()
    assert [(o.action, o.node, dict(o.parameters)) for o in plan.operations] == [
        (Action.DOWNLOAD, "one", {}),
        (Action.COPY, "two", {"from": "one"}),
    ]
    assert plan.operations[0].cost.bytes == sum(map(len, FILES.values()))
    world.do(plan.operations)
    for node in world.nodes.values():
        assert_complete(node.home / "models" / "it is ü")
    size = sum(map(len, FILES.values()))
    assert hub.sent <= size * 1.1, "the second node must not ask the hub"
    asked = len(hub.log)
    again = world.look()
    assert (again.operations, again.blockers, again.unknown) == ((), (), ())
    assert len(hub.log) == asked, "a second diff needs no network"
