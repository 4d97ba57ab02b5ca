"""The reference page of the commands is what the commands say: a changed option must not leave it behind."""

from __future__ import annotations

from pathlib import Path

from sparkop.cli.reference import MEANINGS, reference
from sparkop.errors import ExitCode

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        "python -m sparkop.cli.reference > docs/reference/commands.md"
    )


def test_every_exit_code_is_explained() -> None:
    assert set(MEANINGS) == set(ExitCode)
