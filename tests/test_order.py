"""Which tests begin first where several processes share them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.conftest import LONGEST, pytest_collection_modifyitems

ROOT = Path(__file__).resolve().parents[1]


def test_the_longest_files_come_first_and_the_rest_keeps_its_order() -> None:
    """Begun last, the file of watch would run for minutes while the other processes are idle."""
    files = ["tests/b.py", LONGEST[1], "tests/a.py", LONGEST[0], LONGEST[1]]
    items: list[Any] = [SimpleNamespace(location=(file, at, "test")) for at, file in enumerate(files)]
    pytest_collection_modifyitems(items)
    assert [item.location[1] for item in items] == [3, 1, 4, 0, 2]


def test_the_longest_files_are_there() -> None:
    """One that was renamed would come last again, and nobody would see it."""
    assert [file for file in LONGEST if not (ROOT / file).is_file()] == []
