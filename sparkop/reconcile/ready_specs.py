"""The specs with which a cluster was ready, on the controller: what ``rollback`` goes back to.

Whole specs after overlays and ``--set``, so that a later edit of those files changes nothing here. A
convenience for the human, never proof of the world.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from sparkop.plain import one_line
from sparkop.reconcile.remembered import state_directory
from sparkop.records import dataclass
from sparkop.spec.models import ClusterSpec

ORIGIN = "# from "
"""Begins the first line of a kept spec."""
KEPT = 5
"""Specs of one cluster that are kept, the newest first in ``order.json``."""


@dataclass(frozen=True)
class ReadySpec:
    """One that is kept: its file, its text, when it was ready last (seconds since 1970), and the user's file
    that it was, with overlays and ``--set``, as far as that is known."""

    path: Path
    text: str
    at: float
    origin: str = ""

    @property
    def nodes(self) -> list[Any] | None:
        """Its nodes as they were written; None when it is damaged."""
        try:
            found = json.loads(self.text)["nodes"]
        except (ValueError, KeyError, TypeError):
            return None
        return found if isinstance(found, list) else None


def remember_ready(spec: ClusterSpec, origin: str = "") -> Path:
    """Keep a spec that was seen to serve; the newest one. Atomic; returns its file, which ``apply`` takes;
    the file's time says when that was. ``origin``: the user's words for it; without, those known stay.

    Raises OSError when the controller's disk is full.
    """
    path = kept_path(spec)
    folder, name = path.parent, path.name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    known = next((each.origin for each in ready_specs(spec.name) if each.path == path), "")
    order = [name, *(each for each in _order(spec.name) if each != name)]
    # Written anew each time: a damaged one becomes whole by serving again.
    write(path, f"{ORIGIN}{one_line(origin or known)}\n{text_of(spec)}")
    if order != _order(spec.name):
        write(folder / "order.json", json.dumps(order[:KEPT]) + "\n")
    for forgotten in order[KEPT:]:
        (folder / forgotten).unlink(missing_ok=True)
    return folder / name


def last_ready(cluster: str, *, other_than: ClusterSpec | None = None) -> Path | None:
    """The newest spec of a cluster that was ready, and is not ``other_than``; None when none is known."""
    unwanted = text_of(other_than) if other_than is not None else None
    return next((each.path for each in ready_specs(cluster) if each.text != unwanted), None)


def ready_specs(cluster: str) -> list[ReadySpec]:
    """Every spec that is kept of a cluster, the newest first."""
    found = []
    for name in _order(cluster):
        path = folder_of(cluster) / name
        with suppress(OSError):
            text, origin = path.read_text(encoding="utf-8", errors="replace"), ""
            if text.startswith(ORIGIN):
                first, _, text = text.partition("\n")
                origin = first.removeprefix(ORIGIN)
            found.append(ReadySpec(path, text, path.stat().st_mtime, origin))
    return found


def text_of(spec: ClusterSpec) -> str:
    """The spec as JSON, which is YAML too: only what was set, in a stable order."""
    document = spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def kept_path(spec: ClusterSpec) -> Path:
    """The file that keeps a spec, whether it is there or not."""
    return folder_of(spec.name) / f"{hashlib.sha256(text_of(spec).encode()).hexdigest()[:12]}.yaml"


def folder_of(cluster: str) -> Path:
    """Where specs of a cluster are kept."""
    return state_directory() / "ready" / cluster


def _order(cluster: str) -> list[str]:
    """File names, newest first; by their time when the order itself can't be read."""
    folder = folder_of(cluster)
    try:
        found = json.loads((folder / "order.json").read_text(encoding="utf-8"))
        if isinstance(found, list):
            return [str(name) for name in found]
    except (OSError, ValueError):
        pass
    return [path.name for path in sorted(folder.glob("*.yaml"), key=_age)]


def _age(path: Path) -> float:
    try:
        return -path.stat().st_mtime
    except OSError:
        return 0.0


def write(path: Path, content: str) -> None:
    """Whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(content, encoding="utf-8")
    draft.replace(path)
