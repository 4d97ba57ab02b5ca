"""The bad specs and their expected errors. `python -m tests.spec.corpus` writes the errors anew."""

from __future__ import annotations

from pathlib import Path

from sparkop.spec.load import load
from sparkop.spec.problems import InvalidSpecError

BAD = Path(__file__).parent.parent / "data" / "specs" / "bad"


def bad_specs() -> list[Path]:
    return sorted(BAD.glob("*.yaml"))


def errors_of(path: Path) -> str:
    """The errors, with the file's name without its folder; `no error` when there is none."""
    try:
        load([path])
    except InvalidSpecError as error:
        return str(error.detail).replace(str(path), path.name) + "\n"
    return "no error\n"


if __name__ == "__main__":
    for each in bad_specs():
        each.with_suffix(".expected").write_text(errors_of(each), encoding="utf-8")
