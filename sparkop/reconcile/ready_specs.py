"""The specs with which a cluster was ready, on the controller: what ``rollback`` goes back to.

Whole specs after overlays and ``--set``, so that a later edit of those files changes nothing here. A
convenience for the human, never proof of the world.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from sparkop.engines.paths import state_directory as state_directory_of
from sparkop.plain import one_line
from sparkop.reconcile.remembered import state_directory
from sparkop.records import dataclass
from sparkop.spec.folders import is_within
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

ORIGIN = "# from "
"""Begins the first line of a kept spec."""
CLEARED = "cleared.json"
"""What a destroy has cleared since the cluster served last."""
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
    (folder / CLEARED).unlink(missing_ok=True)
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


@dataclass(frozen=True)
class Left:
    """What the cluster served with last and is out of sight of a spec: nodes that it has no more, by name,
    and the state folder of each node for which it names another one now."""

    nodes: tuple[str, ...] = ()
    states: Mapping[str, str] = field(default_factory=dict)


def left_by(spec: ClusterSpec) -> Left:
    """What a spec leaves behind, unless a destroy has cleared it."""
    newest = next(iter(ready_specs(spec.name)), None)
    try:
        before = _states(json.loads(newest.text), spec.default_state) if newest else {}
    except (ValueError, KeyError, TypeError, AttributeError):
        return Left()
    cleared = _cleared(spec.name)
    before = {place: each for place, each in before.items() if (place, each[1]) not in cleared}
    states: dict[str, str] = {}
    for node in spec.nodes:
        _, old = before.pop(_place(_document(node)), ("", None))
        new = state_directory_of(spec, node)
        if isinstance(old, str) and not (is_within(old, new) and is_within(new, old)):
            states[node.name] = old
    return Left(tuple(name for name, _ in before.values()), states)


def _states(document: Mapping[str, Any], default: str) -> dict[str, tuple[str, Any]]:
    """Place -> the node's name and its state folder, of a kept spec. Raises for one that is damaged."""
    whole = document.get("stateDirectory") or default
    return {
        _place(node): (str(node["name"]), node.get("paths", {}).get("state") or whole)
        for node in document["nodes"]
    }


def note_cleared(spec: ClusterSpec, nodes: Collection[str]) -> None:
    """A destroy has left nothing of the cluster in the state folders of these nodes: until the cluster has
    served again, no apply warns of them. Raises OSError when the controller's disk is full."""
    folder = _folder(spec.name)
    if not folder.is_dir():
        return  # it has never served from here
    gone = {
        (_place(_document(each)), state_directory_of(spec, each)) for each in spec.nodes if each.name in nodes
    }
    _write(folder / CLEARED, json.dumps(sorted(_cleared(spec.name) | gone)) + "\n")


def _cleared(cluster: str) -> set[tuple[str, str]]:
    """Places and state folders. One that can't be read is none: the warning comes once too often."""
    try:
        found = json.loads((_folder(cluster) / CLEARED).read_text(encoding="utf-8"))
        return {(str(place), str(state)) for place, state in found}
    except (OSError, ValueError, TypeError):
        return set()


def _document(node: NodeSpec) -> dict[str, Any]:
    return node.model_dump(mode="json", by_alias=True, exclude_unset=True)


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
