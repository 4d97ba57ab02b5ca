"""Loading a spec: base file, overlays, ``--set``, models; every error at once, with its place."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from functools import cached_property, lru_cache
from pathlib import Path as FilePath

from pydantic import ValidationError

from sparkop.errors import SpecError
from sparkop.records import dataclass
from sparkop.spec.layers import apply_setting, merge, settings
from sparkop.spec.messages import explain_errors
from sparkop.spec.models import ClusterSpec
from sparkop.spec.problems import InvalidSpecError, Problem
from sparkop.spec.traps import name_traps, number_traps
from sparkop.spec.tree import (
    Found,
    MappingNode,
    Node,
    Place,
    Scalar,
    Source,
    data,
    follow,
    leaves,
    show_path,
)
from sparkop.spec.yaml_text import LARGEST_FILE, decode, parse


@dataclass(frozen=True)
class LoadedSpec:
    """A valid spec, what it was made of, and where each value stands."""

    spec: ClusterSpec
    tree: MappingNode
    """The merged layers."""
    paths: tuple[FilePath, ...]
    """Base file, then overlays."""
    sets: tuple[str, ...] = ()

    def find(self, path: Sequence[str | int]) -> Found:
        """The value at a path of YAML keys, or the deepest part of it that was written."""
        return follow(self.tree, path)

    @cached_property
    def origins(self) -> dict[str, Place]:
        """Where each written value stands, by its path: ``nodes[0].ssh`` to ``spec.yaml:4:10``."""
        return {show_path(path): self.find(path).place for path, _ in leaves(self.tree)}

    def refuse(
        self, refusals: Iterable[tuple[Sequence[str | int], str, str]], *, final: Collection[str] = ()
    ) -> InvalidSpecError:
        """The error of rules that refuse the spec: path, message and id of each.

        ``final`` are the ids of rules that can't be set aside; for the others the error says how.
        """
        problems = []
        for path, message, rule in refusals:
            found = self.find(path)
            problems.append(
                Problem(
                    found.place if isinstance(found.node, Scalar) else found.key,
                    message,
                    found.path,
                    defined=found.defined,
                    rule=rule,
                    suggestion=None if rule in final else _override(rule),
                )
            )
        return InvalidSpecError(problems)


def _override(rule: str) -> str:
    return f"to set it aside knowingly: rules.override: [{{id: {rule}, reason: ...}}]"


def load(paths: Sequence[FilePath], sets: Sequence[str] = ()) -> LoadedSpec:
    """The spec of a base file, overlays over it, and ``path=value`` settings over those.

    Raises InvalidSpecError with every problem that can be found at once, or SpecError when a file can't be
    read.
    """
    layers: list[Node] = []
    problems: list[Problem] = []
    for order, path in enumerate(paths):
        root, found = _layer(path, order)
        problems += found
        if root is None and found:
            continue
        if order == 0 and root is None:
            raise InvalidSpecError([_empty(path)])
        if root is not None:
            layers.append(root)
    if any(p.place.source.order == 0 for p in problems) and (not layers or layers[0].place.source.order):
        raise InvalidSpecError(problems)
    tree = layers[0]
    for layer in layers[1:]:
        tree = merge(tree, layer)
    for setting in settings(sets):
        tree, found = apply_setting(tree, setting)
        problems += found
    assert isinstance(tree, MappingNode)
    return LoadedSpec(_valid(tree, problems), tree, tuple(paths), tuple(sets))


def load_text(text: str, name: str = "spec.yaml") -> LoadedSpec:
    """The spec of one text."""
    source, decoded, problems = decode(name, text.encode("utf-8", "surrogatepass"), 0)
    root: Node | None = None
    if decoded is not None:
        root, problems = _root(source, decoded)
    if root is None:
        raise InvalidSpecError(problems or [Problem(Place(source, 1, 1, 2), "the text is empty")])
    assert isinstance(root, MappingNode)
    return LoadedSpec(_valid(root, problems), root, ())


def _valid(tree: Node, problems: Sequence[Problem]) -> ClusterSpec:
    """The spec of a tree whose text had ``problems``. Each place is told once, the text's words first."""
    spec, found = validate(tree)
    told = {problem.place for problem in problems}
    problems = [
        *name_traps(problems, tree),
        *(problem for problem in found if problem.place not in told),
    ]
    if problems or spec is None:
        raise InvalidSpecError(problems)
    return spec


def validate(tree: Node) -> tuple[ClusterSpec | None, list[Problem]]:
    """The models' opinion of a tree. The spec is None when there are problems."""
    traps = list(number_traps(tree))
    try:
        # JSON, because strict reading of JSON takes arrays for tuples but no "8000" for 8000.
        spec = ClusterSpec.model_validate_json(
            json.dumps(data(tree)), strict=True, by_alias=True, by_name=False
        )
    except ValidationError as error:
        told = {problem.path for problem in traps}
        problems = explain_errors(error.errors(include_url=False), tree)
        return None, traps + [problem for problem in problems if problem.path not in told or not problem.path]
    return (None if traps else spec), traps


def _layer(path: FilePath, order: int) -> tuple[Node | None, list[Problem]]:
    try:
        with path.open("rb") as file:
            # One byte more than is accepted: also a device without an end is refused soon.
            content = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise SpecError(f"there is no file {path}", remedy=_other_file(path, order)) from None
    except IsADirectoryError:
        raise SpecError(f"{path} is a folder; a spec is a file") from None
    except OSError as error:
        raise SpecError(f"{path} can't be read: {error.strerror}") from None
    root, problems = _tree(str(path), content, order)
    return root, list(problems)


@lru_cache(maxsize=8)
def _tree(name: str, content: bytes, order: int) -> tuple[Node | None, tuple[Problem, ...]]:
    """The tree of a file's bytes. Remembered, because a lab's spec is loaded again with the lab's overlay."""
    source, text, problems = decode(name, content, order)
    root = None
    if text is not None:
        root, problems = _root(source, text)
    return root, tuple(problems)


def _other_file(path: FilePath, order: int) -> str:
    """The file there with nearly that name, else what else to do."""
    try:
        there = {each.stem: each for each in path.parent.iterdir() if each.suffix in (".yaml", ".yml")}
    except OSError:
        there = {}
    near = get_close_matches(path.stem, there, n=1, cutoff=0.6)
    if near and there[near[0]] != path:
        return f"did you mean {there[near[0]]}?"
    return "sparkop init writes a spec" if order == 0 else "write that overlay, or leave --overlay out"


def _root(source: Source, text: str) -> tuple[Node | None, list[Problem]]:
    root, problems = parse(source, text)
    if root is not None and not isinstance(root, MappingNode):
        message = "a spec is a mapping: `key: value` lines"
        return None, [
            *problems,
            Problem(root.place, message, suggestion="it begins with apiVersion: sparkop/v1"),
        ]
    return root, problems


def _empty(path: FilePath) -> Problem:
    source = Source(str(path), ("",), 0)
    return Problem(Place(source, 1, 1, 2), "the file is empty", suggestion="sparkop init writes a spec")
