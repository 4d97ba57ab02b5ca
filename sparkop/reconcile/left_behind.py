"""Where a cluster has been, on the controller: what no command with a later spec would reach.

One file a node and state folder, from an apply's first operation until a destroy has cleared it, or the user
has removed it. Each is a spec with that node alone, so that ``sparkop destroy FILE`` clears what is left
there and nothing else. A convenience for the human, never proof of the world: nobody looks there until then.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from sparkop.engines.paths import state_directory as state_directory_of
from sparkop.reconcile.ready_specs import folder_of, text_of, write
from sparkop.records import dataclass
from sparkop.spec.folders import is_within
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec


@dataclass(frozen=True)
class Left:
    """A node that a spec does not have, or a state folder that it names no more on one that it has."""

    node: str
    state: str
    file: Path
    """The spec with that node alone."""
    same_node: bool
    other_address: str = ""
    """Where it was, when the spec has a node of its name at another address: that may be the same machine."""


@dataclass(frozen=True)
class _Place:
    """A machine, whatever its name in a spec, and a state folder there."""

    machine: str
    state: str

    def is_same(self, other: _Place) -> bool:
        there = is_within(self.state, other.state) and is_within(other.state, self.state)
        return self.machine == other.machine and there


def left_by(spec: ClusterSpec) -> tuple[Left, ...]:
    """Where the cluster has been by earlier specs, and this one does not reach."""
    now = {_place(spec, node): node.name for node in spec.nodes}
    names = {place.machine: name for place, name in now.items()}
    return tuple(
        _left(path, name, place, names)
        for path, name, place in _kept(spec)
        if not any(place.is_same(each) for each in now)
    )


def _left(path: Path, name: str, place: _Place, names: Mapping[str, str]) -> Left:
    """``names``: machine -> node, of the spec that does not reach it."""
    if place.machine in names:
        return Left(names[place.machine], place.state, path, same_node=True)
    moved = place.machine if name in names.values() else ""
    return Left(name, place.state, path, same_node=False, other_address=moved)


def note_places(spec: ClusterSpec) -> None:
    """The cluster is on these nodes from now on. Raises OSError when the controller's disk is full."""
    for node in spec.nodes:
        path = _file(spec, node)
        for other in _files_of(spec, node):
            if other != path:
                other.unlink(missing_ok=True)  # the machine had another name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write(path, _alone(spec, node))


def note_cleared(spec: ClusterSpec, nodes: Collection[str]) -> None:
    """A destroy has left nothing of the cluster in the state folders of these nodes."""
    for node in spec.nodes:
        for path in _files_of(spec, node) if node.name in nodes else ():
            path.unlink(missing_ok=True)


def is_of_a_node(spec: ClusterSpec, path: Path) -> bool:
    """This spec is one of the files here: whoever names it means that node and no other."""
    return path.absolute().parent == _folder(spec)


def _files_of(spec: ClusterSpec, node: NodeSpec) -> list[Path]:
    own = _place(spec, node)
    return [path for path, _, place in _kept(spec) if place.is_same(own)]


def _kept(spec: ClusterSpec) -> Iterator[tuple[Path, str, _Place]]:
    """Every file with its node's name and place. A damaged one tells nothing until it is written anew."""
    for path in sorted(_folder(spec).glob("*.yaml")):
        try:
            kept = ClusterSpec.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        yield path, kept.head.name, _place(kept, kept.head)


def _alone(spec: ClusterSpec, node: NodeSpec) -> str:
    """The spec with one node, and without what names another."""
    document = json.loads(text_of(spec))
    document["nodes"] = [node.model_dump(mode="json", by_alias=True, exclude_unset=True)]
    document["weights"].pop("downloadOn", None)
    document["image"].pop("pullOn", None)
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _file(spec: ClusterSpec, node: NodeSpec) -> Path:
    place = _place(spec, node)
    key = hashlib.sha256(f"{place.machine}\n{place.state}".encode()).hexdigest()[:8]
    return _folder(spec) / f"{node.name}-{key}.yaml"


def _folder(spec: ClusterSpec) -> Path:
    return folder_of(spec.name) / "nodes"


def _place(spec: ClusterSpec, node: NodeSpec) -> _Place:
    return _Place(_machine(node), state_directory_of(spec, node))


def _machine(node: NodeSpec) -> str:
    """What tells the machines of a cluster apart, whatever their names: where SSH answers. User and key are
    ways to the same one."""
    if node.remote is None:
        return "local"
    host, port = node.remote.host.strip("[]").lower(), node.remote.port or 22
    return host if port == 22 else f"{host} port {port}"
