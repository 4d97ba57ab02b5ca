"""The command line of watch."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkop.cli import run
from sparkop.cli.watch import _changed, _pauses
from sparkop.errors import ExitCode, UsageError


def test_pauses_are_times_with_units() -> None:
    assert _pauses("2min, 5min,15min") == (120.0, 300.0, 900.0)
    with pytest.raises(UsageError, match="no list of times"):
        _pauses("2,5")


def test_a_wrong_pause_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["watch", "--pauses", "soon", "x.yaml"]) == ExitCode.USAGE
    assert "2min,5min,15min" in capsys.readouterr().err


def test_a_spec_that_is_written_again_is_noticed(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text("a: 1")
    changed = _changed((spec,))
    assert not changed()
    spec.write_text("a: 22")
    assert changed()
    spec.unlink()
    assert changed()
