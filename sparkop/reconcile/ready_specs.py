"""The specs with which a cluster was ready, on the controller: what ``rollback`` goes back to.

Whole specs after overlays and ``--set``, so that a later edit of those files changes nothing here. A
convenience for the human, never proof of the world.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sparkop.engines.paths import state_directory as state_directory_of
from sparkop.plain import one_line
from sparkop.reconcile.remembered import state_directory
from sparkop.records import dataclass
from sparkop.spec.folders import is_within
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
    _write(path, f"{ORIGIN}{one_line(origin or known)}\n{text_of(spec)}")
    if order != _order(spec.name):
        _write(folder / "order.json", json.dumps(order[:KEPT]) + "\n")
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
        path = _folder(cluster) / name
        with suppress(OSError):
            text, origin = path.read_text(encoding="utf-8", errors="replace"), ""
            if text.startswith(ORIGIN):
                first, _, text = text.partition("\n")
                origin = first.removeprefix(ORIGIN)
            found.append(ReadySpec(path, text, path.stat().st_mtime, origin))
    return found


def left_behind(spec: ClusterSpec) -> tuple[str, ...]:
    """Names of nodes that the cluster served with before and that the spec does not have any more: what runs
    there is out of sight."""
    newest = next(iter(ready_specs(spec.name)), None)
    before = (newest.nodes if newest else None) or []
    try:
        known = {
            _place(node.model_dump(mode="json", by_alias=True, exclude_unset=True)) for node in spec.nodes
        }
        return tuple(str(node["name"]) for node in before if _place(node) not in known)
    except (KeyError, TypeError):
        return ()


def states_left(spec: ClusterSpec) -> dict[str, str]:
    """Node -> the state folder that the cluster served with before, where the spec names another one now: the
    old one is out of sight."""
    newest = next(iter(ready_specs(spec.name)), None)
    try:
        document = json.loads(newest.text) if newest else {}
        whole = document.get("stateDirectory") or spec.default_state
        before = {_place(node): node.get("paths", {}).get("state") or whole for node in document["nodes"]}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
    found: dict[str, str] = {}
    for node in spec.nodes:
        old = before.get(_place(node.model_dump(mode="json", by_alias=True, exclude_unset=True)))
        new = state_directory_of(spec, node)
        if isinstance(old, str) and not (is_within(old, new) and is_within(new, old)):
            found[node.name] = old
    return found


def _place(node: Mapping[str, Any]) -> str:
    """What tells the machines of a spec apart, whatever their names in it."""
    return json.dumps(node.get("ssh") or node["name"], sort_keys=True)


def text_of(spec: ClusterSpec) -> str:
    """The spec as JSON, which is YAML too: only what was set, in a stable order."""
    document = spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def kept_path(spec: ClusterSpec) -> Path:
    """The file that keeps a spec, whether it is there or not."""
    return _folder(spec.name) / f"{hashlib.sha256(text_of(spec).encode()).hexdigest()[:12]}.yaml"


def _folder(cluster: str) -> Path:
    return state_directory() / "ready" / cluster


def _order(cluster: str) -> list[str]:
    """File names, newest first; by their time when the order itself can't be read."""
    folder = _folder(cluster)
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


def _write(path: Path, content: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(content, encoding="utf-8")
    draft.replace(path)
