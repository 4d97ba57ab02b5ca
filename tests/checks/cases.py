"""Recorded cases of checks: a folder ``tests/data/checks/<check>/<case>`` with two files.

``in.yaml``::

    about: where it was seen, or why it matters
    spec: specs/deepseek-v4.1-flash.yaml    # default
    set: [fabric.mtu=9000]                  # changes of the spec
    change:                                 # of the two good Sparks of ../base.json; items of lists by name
      spark-2:
        fabric.interfaces.enp1s0f0np0.mtu: 1500
        health: null                        # null: not read;  .absent as a value: no such key
        errors.docker: "PermissionError: ..."
    earlier: {spark-2: {...}}               # what a first reading had otherwise
    read: {spark-1: [10.0, 10.2]}           # between which moments of the controller
    hub: listed | denied | away             # default: not asked
    away: {spark-2: {message: "...", cause: "...", remedy: "..."}}    # nothing was read: why, in ssh's words

``out.yaml``: node -> what the check says, one line each: ``ok: evidence`` or
``state [ports]: text; do: remedy``.
A node that the check does not apply to is left out.

``python -m tests.checks.cases`` writes the answers anew; read the difference before you commit it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from sparkop.engines.render import engine_of
from sparkop.errors import BlockedError, UnreachableError
from sparkop.hosts.document import parse_document
from sparkop.reconcile.doctor import LOGIN, silent
from sparkop.resources.checks import CHECKS
from sparkop.resources.checks.model import Check, Finding, Look, Nodes, findings
from sparkop.resources.desired import desire
from sparkop.resources.weights.files import Checkpoint, wanted_files
from sparkop.resources.weights.hub import RemoteFile, Repository
from sparkop.spec.load import load
from sparkop.spec.models import ClusterSpec

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests/data/checks"
BASE = FOLDER / "base.json"
SPEC = "specs/deepseek-v4.1-flash.yaml"
ABSENT = ".absent"
KEYS = {"about", "spec", "set", "change", "earlier", "read", "hub", "away"}


@dataclass(frozen=True)
class Case:
    """One folder."""

    path: Path
    check: Check
    question: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.name}"

    @property
    def expected(self) -> Any:
        return YAML(typ="safe").load((self.path / "out.yaml").read_text(encoding="utf-8")) or {}

    def answer(self) -> dict[str, list[str]]:
        """What the check says now, in the form of ``out.yaml``."""
        return {node: [told(found) for found in made] for node, made in self.found().items()}

    def found(self, names: Mapping[str, str] | None = None) -> dict[str, list[Finding]]:
        """Node -> findings. ``names``: what interfaces are called instead."""
        return {look.name: made for look, made in self.looks(names)} | self._unread()

    def spec(self) -> ClusterSpec:
        return spec_of(self.question.get("spec", SPEC), tuple(self.question.get("set", ())))

    def looks(self, names: Mapping[str, str] | None = None) -> Iterator[tuple[Look, list[Finding]]]:
        """Of each node that was read, and that the check has something to say of."""
        spec = self.spec()
        away = self.question.get("away", {})
        documents = read(spec, self.question.get("change", {}), names)
        documents = {name: document for name, document in documents.items() if name not in away}
        earlier = read(spec, self.question["earlier"], names) if "earlier" in self.question else {}
        outside = {"weights": _checkpoint(spec, self.question["hub"])} if "hub" in self.question else {}
        desired = desire(spec, engine_of(spec), documents, outside)
        windows = {name: tuple(window) for name, window in self.question.get("read", {}).items()}
        nodes = Nodes(documents)
        looks = [
            Look(desired, node, nodes, earlier, windows) for node in spec.nodes if node.name in documents
        ]
        yield from ((look, made) for look in looks if (made := findings(self.check, look)))

    def _unread(self) -> dict[str, list[Finding]]:
        if self.check.id != LOGIN:
            return {}
        away = self.question.get("away", {})
        nodes = {node.name: node for node in self.spec().nodes}
        return {
            name: list(silent(nodes[name], UnreachableError(**why)).findings) for name, why in away.items()
        }


def told(found: Finding) -> str:
    remedy = f"; do: {found.remedy}" if found.remedy else ""
    ports = f" [{', '.join(found.ports)}]" if found.ports else ""
    return f"{found.state}{ports}: {found.text}{remedy}"


@cache
def spec_of(path: str, sets: tuple[str, ...]) -> ClusterSpec:
    return load([ROOT / path], list(sets)).spec


@cache
def _base() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(BASE.read_text(encoding="utf-8"))
    return found


def read(
    spec: ClusterSpec, changes: Mapping[str, Any], names: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The documents of the spec's nodes, changed; ``names``: of interfaces, old and new."""
    unknown = set(changes) - set(_base())
    assert not unknown, f"no such node: {unknown}"
    documents = {}
    for node in spec.nodes:
        raw = deepcopy(_base()[node.name])
        for where, value in (changes.get(node.name) or {}).items():
            _set(raw, where, value)
        raw = _renamed(raw, names or {})
        documents[node.name] = parse_document(raw, node=node.name)
    return documents


def _renamed(raw: Any, names: Mapping[str, str]) -> Any:
    if isinstance(raw, dict):
        return {names.get(key, key): _renamed(value, names) for key, value in raw.items()}
    if isinstance(raw, list):
        return [_renamed(each, names) for each in raw]
    return names.get(raw, raw) if isinstance(raw, str) else raw


def _set(raw: Any, where: str, value: Any) -> None:
    """Put a value at a dotted place; what stands between double quotes is one step."""
    *path, last = _steps(where)
    for step in path:
        raw = _item(raw, step) if isinstance(raw, list) else raw.setdefault(step, {})
    if isinstance(raw, list):
        if value == ABSENT:
            raw.remove(_item(raw, last))
        else:
            raw[raw.index(_item(raw, last))] = value
    elif value == ABSENT:
        del raw[last]
    else:
        raw[last] = value


def _steps(where: str) -> list[str]:
    parts = where.split('"')
    steps: list[str] = []
    for index, part in enumerate(parts):
        steps += [part] if index % 2 else [step for step in part.split(".") if step]
    return steps


def _item(items: list[Any], name: str) -> Any:
    return next(item for item in items if name in (item.get("name"), str(item.get("index"))))


def _checkpoint(spec: ClusterSpec, hub: str) -> Checkpoint:
    if hub == "denied":
        error = BlockedError(
            "the hub refuses: 403, gated", remedy="huggingface-cli login, and accept the terms"
        )
        return Checkpoint(None, error=error)
    if hub == "away":
        return Checkpoint(None, error=UnreachableError("the hub does not answer", remedy="try again"))
    assert hub == "listed"
    files = tuple(RemoteFile(f"model-{n}.safetensors", 1 << 30, str(n) * 64, None) for n in (1, 2, 3))
    plain = spec.weights.model_copy(
        update={"manifest": None, "required": (), "include": ("*",), "exclude": ()}
    )
    repository = Repository(spec.weights.repository, "http://hub", "main", "c" * 40, files, {})
    return Checkpoint(repository, wanted_files(repository, plain))


def cases() -> Iterator[Case]:
    """All of them, by name."""
    by_id = {check.id: check for check in CHECKS}
    for file in sorted(FOLDER.glob("*/*/in.yaml")):
        question = YAML(typ="safe").load(file.read_text(encoding="utf-8")) or {}
        assert not set(question) - KEYS, f"{file}: unknown keys {set(question) - KEYS}"
        yield Case(file.parent, by_id[file.parent.parent.name], question)


def main() -> None:
    yaml = YAML()
    yaml.width = 4096
    for case in cases():
        with (case.path / "out.yaml").open("w", encoding="utf-8") as stream:
            yaml.dump(case.answer(), stream)


if __name__ == "__main__":
    main()
