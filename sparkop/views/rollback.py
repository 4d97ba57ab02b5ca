"""What ``rollback`` goes back to, and what else there is, on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sparkop.errors import SparkopError
from sparkop.reconcile.ready_specs import ReadySpec, ready_specs
from sparkop.resources.compare import counted
from sparkop.spec.show import masked
from sparkop.spec.tree import show_path
from sparkop.views.console import print_lines
from sparkop.views.quantities import moment

MOST_FIELDS = 8
"""Fields that are named; the others are counted."""


def show_target(target: ReadySpec, what: str, before: str | None) -> None:
    """Which spec, when it was known to serve, and what it changes of the text ``before``."""
    lines = [f"{what} to the spec that was ready at {moment(target.at)}: {target.path}"]
    lines += [f"  it was {target.origin}"] if target.origin else []
    changed = _changed(before, target.text) if before is not None else []
    print_lines([*lines, *(f"  {each}" for each in changed)], sys.stderr)


def show_passed(broken: SparkopError) -> None:
    """What is wrong with the spec that is gone back from: no failure of the rollback."""
    told = f"note: {broken.message.rstrip('.')}; going back does without it"
    print_lines([told, *(f"  {line}" for line in (broken.detail or "").splitlines())], sys.stderr)


def show_others(cluster: str, path: Path) -> None:
    """The other specs that were ready, each as the command that goes to it."""
    kept = ready_specs(cluster)
    text = next((each.text for each in kept if each.path == path), "")
    others = [
        f"  sparkop apply {each.path}  # ready at {moment(each.at)}; {', '.join(_changed(text, each.text))}"
        for each in kept
        if each.path != path and each.nodes is not None
    ]
    if others:
        print_lines(["other specs of this cluster that were ready:", *others], sys.stderr)


def _changed(before: str, after: str) -> list[str]:
    changed = differences(before, after)
    more = changed[MOST_FIELDS:]
    return [*changed[:MOST_FIELDS], *([f"and {counted(len(more), 'more field')}"] if more else [])]


def differences(before: str, after: str) -> list[str]:
    """``memory.kvCache: 53 MiB -> 64 MiB``, by field, of two kept texts; none of one edited by hand."""
    try:
        old, new = (dict(_fields(json.loads(text))) for text in (before, after))
    except ValueError:
        return []
    return [
        _difference(field, old.get(field, "not set"), new.get(field, "not set"))
        for field in sorted(old.keys() | new.keys())
        if old.get(field) != new.get(field)
    ]


def _difference(field: str, old: str, new: str) -> str:
    """A value that may be a secret is not shown."""
    shown = all(masked(line) == line for line in (f"{field}: {old}", f"{field}: {new}"))
    return f"{field}: {old} -> {new}" if shown else f"{field}: changed"


def _fields(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict | list) and value:
        for step, below in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _fields(below, (*path, step))
    else:
        yield show_path(path), value if isinstance(value, str) else json.dumps(value)
