"""The specs that sparkop ships: in the installed package, or in the repository that it runs from."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from sparkop.errors import UsageError
from sparkop.spec.suggest import nearest

_OF_THE_LAB = "lab"


@cache
def directory() -> Path:
    """The folder of the shipped specs."""
    package = Path(str(files("sparkop")))
    installed = package / "_specs"
    return installed if installed.is_dir() else package.parent / "specs"


def recipes() -> tuple[str, ...]:
    """Names of the recipes, without the lab's own specs."""
    names = sorted(path.stem for path in directory().glob("*.yaml"))
    return tuple(name for name in names if name.split("-")[0] != _OF_THE_LAB)


def recipe_text(name: str) -> str:
    """The spec of a recipe. Raises UsageError for a name that none has."""
    known = recipes()
    if name not in known:
        suggestion = nearest(name, known)
        raise UsageError(
            f"there is no recipe {name}",
            remedy=" ".join(part for part in (suggestion, f"name one of {', '.join(known)}") if part),
        )
    return (directory() / f"{name}.yaml").read_text(encoding="utf-8")
