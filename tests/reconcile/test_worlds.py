"""Golden plans: for every world in tests/data/worlds, the plan's text. And worlds that can't exist."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.reconcile.worlds import FOLDER, ImpossibleWorldError, WorldFile, build, plan_text, read

FILES = sorted(FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_plan_of_a_world_is_what_its_file_says(path: Path) -> None:
    """A changed plan is a changed behaviour: read the difference, then `python -m tests.reconcile.worlds`."""
    world = read(path)
    assert plan_text(world) == world.plan, world.about


def test_there_are_enough_worlds() -> None:
    """Issue 4 asks for fifty and more; a glob that finds nothing would pass silently."""
    assert len(FILES) >= 50
    assert len({read(path).about for path in FILES}) == len(FILES)


BARE = WorldFile(path=Path("x.yaml"), about="", base="converged", plan="")
GUARD = {"sparkop.cluster": "test", "sparkop.role": "memguard"}
IMPOSSIBLE: list[tuple[str, dict[str, Any], str]] = [
    ("a silent node shows nothing", {"spark-2": {"answer": "silent", "disk_free": 5}}, "does not answer"),
    (
        "killed for memory, ended well",
        {"spark-2": {"containers": {"x": {"state": "exited", "oom": True}}}},
        "ended",
    ),
    (
        "runs, never started",
        {"spark-2": {"containers": {"x": {"state": "running", "started": None}}}},
        "never",
    ),
    ("started tomorrow", {"spark-2": {"containers": {"x": {"started": 1e12}}}}, "future"),
    ("no such state", {"spark-2": {"state": {"test-r1": "asleep"}}}, "no such state"),
    ("created, yet started", {"spark-2": {"state": {"test-r1": "created"}}}, "more than created"),
    ("two listeners", {"spark-1": {"listeners": {8000: {"uid": 1}}}}, "two programs"),
    ("active without carrier", {"spark-1": {"interfaces": {0: {"carrier": False}}}}, "carrier"),
    ("more free than there is", {"spark-1": {"disk_free": 1 << 60}}, "free of"),
    ("more used than there is", {"spark-1": {"memory_used": 1 << 60}}, "more memory"),
    ("a mode of nine digits", {"spark-1": {"files": {"api_key": {"mode": 0o17777}}}}, "mode"),
    ("an unknown change", {"spark-1": {"colour": "red"}}, "unknown change"),
    ("an unknown node", {"spark-9": {"image": "absent"}}, "no node"),
]


@pytest.mark.parametrize(
    ("changes", "said"), [(c, s) for _, c, s in IMPOSSIBLE], ids=[n for n, _, _ in IMPOSSIBLE]
)
def test_impossible_worlds_are_refused(changes: dict[str, Any], said: str) -> None:
    """A plan for a world that can't exist proves nothing."""
    with pytest.raises(ImpossibleWorldError, match=said):
        build(replace(BARE, changes=changes))


def test_an_api_without_a_rank_is_refused() -> None:
    """Nobody can be wedged who does not run."""
    with pytest.raises(ImpossibleWorldError, match="without a running rank 0"):
        build(replace(BARE, base="bare", api="wedge"))


def test_a_file_with_unknown_keys_is_refused(tmp_path: Path) -> None:
    """A misspelt key would silently make another world."""
    path = tmp_path / "x.yaml"
    path.write_text("about: x\nbase: bare\nchange: {}\n", encoding="utf-8")
    with pytest.raises(ImpossibleWorldError, match="unknown keys"):
        read(path)
