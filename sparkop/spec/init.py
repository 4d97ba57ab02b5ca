"""A spec for the user's machines, made of a recipe's: comments and order stay as they are there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sparkop.errors import UsageError
from sparkop.records import dataclass
from sparkop.spec.edit import edit
from sparkop.spec.load import LoadedSpec, load_text
from sparkop.spec.nodes import SshSpec, parse_ssh
from sparkop.spec.problems import printable
from sparkop.spec.recipes import recipe_text
from sparkop.spec.secrets import mask_line, spans
from sparkop.spec.show import yaml_scalar
from sparkop.spec.tree import Path, SequenceNode, leaves

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,62}[A-Za-z0-9])?\Z")


@dataclass(frozen=True)
class Found:
    """What a node said of itself."""

    hostname: str
    fabric: str | None = None
    """In words, for a comment."""


@dataclass(frozen=True)
class Wishes:
    """What the user asked for. ``targets`` are ssh targets, the head first."""

    recipe: str
    targets: tuple[str, ...]
    name: str | None = None


def new_spec(wishes: Wishes, found: Mapping[int, Found] | None = None) -> str:
    """The text of a valid spec. ``found`` is by index of the node; what is not in it is left to ``apply``.

    Raises UsageError for an unknown recipe, or a target that is none or comes twice.
    """
    for number, target in enumerate(wishes.targets):
        _check(target, wishes.targets[:number])
    found = found or {}
    text = recipe_text(wishes.recipe)
    recipe = load_text(text)
    names = _names([node.name for node in recipe.spec.nodes], len(wishes.targets), found)
    changes: list[tuple[Path, Any]] = []
    for index, (name, target) in enumerate(zip(names, wishes.targets, strict=True)):
        changes += [(("nodes", index, "name"), name), (("nodes", index, "ssh"), target)]
    if wishes.name is not None:
        changes.append((("name",), wishes.name))
    containers = recipe.spec.engine.container.names
    if containers and len(containers) != len(wishes.targets):
        changes.append((("engine", "container", "names"), None))
    text = edit(_resized(text, recipe, names, wishes.targets), changes)
    text = _headed(text, wishes, names, found)
    load_text(text, "the new spec")
    return text


def _check(target: str, before: Sequence[str]) -> None:
    try:
        parsed = parse_ssh(target)
    except ValueError as error:
        shown = mask_line(printable(target), spans(printable(target)), 0, 0)[0]
        raise UsageError(f"'{shown}' {error}") from None
    for other in before:
        if parse_ssh(other) == parsed:
            where = "this machine" if parsed == "local" else _host(parsed)
            raise UsageError(f"{where} is named twice: every node is a machine of its own")


def _host(parsed: SshSpec | str) -> str:
    return parsed.host if isinstance(parsed, SshSpec) else parsed


def _names(given: Sequence[str], count: int, found: Mapping[int, Found]) -> list[str]:
    """Host names where they are known, fit and differ; else those of the recipe."""
    names: list[str] = []
    for index in range(count):
        own = given[index] if index < len(given) else f"spark-{index + 1}"
        said = found[index].hostname.split(".")[0] if index in found else ""
        names.append(said if _NAME.match(said) and said not in names else own)
    return names if len(set(names)) == count else [f"spark-{index + 1}" for index in range(count)]


def _resized(text: str, loaded: LoadedSpec, names: Sequence[str], targets: Sequence[str]) -> str:
    """Take the recipe's last nodes away, or put more after them; by lines, so that comments stay."""
    nodes = loaded.tree.entries["nodes"].value
    assert isinstance(nodes, SequenceNode)
    lines = text.split("\n")
    starts = [item.place.line for item in nodes.items]
    end = max(node.place.line for _, node in leaves(nodes))
    if len(targets) < len(starts):
        del lines[starts[len(targets)] - 1 : end]
    dash = " " * (nodes.items[0].place.column - 3)
    while lines[end].startswith(f"{dash}  ") and lines[end].strip().startswith("#"):
        end += 1
    for name, target in list(zip(names, targets, strict=True))[len(starts) :]:
        lines[end:end] = [f"{dash}- name: {name}", f"{dash}  ssh: {yaml_scalar(target)}"]
        end += 2
    return "\n".join(lines)


def _headed(text: str, wishes: Wishes, names: Sequence[str], found: Mapping[int, Found]) -> str:
    """The head of the recipe's file speaks of changing targets, which is done."""
    text = text.replace(
        "Change the two ssh targets below; everything else is found out or", "What is not here"
    )
    text = text.replace(f"specs/{wishes.recipe}.yaml", "spec.yaml")
    text = re.sub(r"# <- [0-9]\. ?", "# ", text)
    text = re.sub(r" +#[ ]*$", "", text, flags=re.MULTILINE)
    head = [
        f"# Written by `sparkop init --recipe {wishes.recipe}`. `sparkop explain` tells what every key means."
    ]
    for index, name in enumerate(names):
        if index in found:
            head.append(
                f"# {name}: {found[index].fabric or 'no active fabric port seen'} (read again at every apply)"
            )
    return "\n".join(head) + "\n#\n" + text
