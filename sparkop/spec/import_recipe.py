"""A recipe's ``.env`` file or exported variables as an overlay of the spec that replaces the recipe."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from sparkop.errors import UsageError
from sparkop.records import dataclass
from sparkop.spec.edit import dump
from sparkop.spec.layers import merge
from sparkop.spec.load import LoadedSpec, validate
from sparkop.spec.models import ClusterSpec
from sparkop.spec.problems import InvalidSpecError
from sparkop.spec.recipe_file import Unmapped, read_file
from sparkop.spec.recipe_values import read_value
from sparkop.spec.recipe_variables import SPACE_WITH_PARTS, VARIABLES, WORKER, Form, Recipe, Variable
from sparkop.spec.tree import Source, show_path
from sparkop.spec.yaml_text import parse, split_lines

_KEY_FLAGS = ("--api-key", "--admin-api-key")
_KEY_ADVICE = (
    "put it into the key's file on the head (mode 0600); api.key is generate, and an existing key is kept"
)


@dataclass(frozen=True)
class Mapped:
    """A variable that became a field."""

    name: str
    field: str
    origin: str
    """``file`` or ``shell``."""


@dataclass
class Imported:
    """The overlay, and what became of each variable."""

    recipe: Recipe
    overlay: dict[str, Any] = field(default_factory=dict)
    mapped: list[Mapped] = field(default_factory=list)
    unmapped: list[Unmapped] = field(default_factory=list)

    def put(self, path: str, value: Any) -> None:
        """Set a value of the overlay at a path such as ``nodes[1].fabric.address``."""
        steps = [int(step) if step.isdigit() else step for step in re.split(r"[.\[\]]+", path) if step]
        place: Any = self.overlay
        for step in steps[:-1]:
            place = place.setdefault(step, {})
        place[steps[-1]] = value


def recipe_of(names: set[str]) -> Recipe:
    """The recipe whose variables these are. Raises UsageError when they fit both or none."""
    known = {recipe: {each.name for each in variables} for recipe, variables in VARIABLES.items()}
    votes = {
        recipe: len(names & (known[recipe] - known[other]))
        for recipe, other in ((Recipe.A, Recipe.B), (Recipe.B, Recipe.A))
    }
    if votes[Recipe.A] == votes[Recipe.B]:
        raise UsageError(
            "these variables do not tell which recipe they are of",
            remedy=f"say it: --recipe {Recipe.A.value} or --recipe {Recipe.B.value}",
        )
    return max(votes, key=lambda recipe: votes[recipe])


def convert(
    recipe: Recipe,
    text: str | None,
    shell: Mapping[str, str],
    *,
    nodes: tuple[str, str] = ("spark-1", "spark-2"),
    home: str | None = None,
) -> Imported:
    """The overlay of a file's text and of the shell's variables.

    The shell wins over recipe B's ``.env``, as in the recipe; a file of exports wins over the shell.
    ``nodes`` are the names of head and worker in the spec. Paths below ``home`` are written with ``~``, as
    homes may differ on the nodes. A value that can't be converted is reported, not dropped silently.
    """
    result = Imported(recipe)
    known = {each.name: each for each in VARIABLES[recipe]}
    from_file, odd = read_file(text, recipe) if text is not None else ({}, [])
    result.unmapped += odd
    result.unmapped += [
        Unmapped(name, "the recipe has no such variable") for name in from_file if name not in known
    ]
    filed = {name: (value, "file") for name, value in from_file.items() if name in known}
    exported = {name: (shell[name], "shell") for name in known if name in shell}
    values = filed | exported if recipe is Recipe.B else exported | filed
    for name, variable in known.items():
        if name in values:
            value, origin = values[name]
            _one(result, variable, value, origin, home)
    _together(result, {name: value for name, (value, _) in values.items()})
    _name_nodes(result, nodes)
    return result


def _one(result: Imported, variable: Variable, value: str, origin: str, home: str | None) -> None:
    if not value and not variable.empty_counts:
        return
    if variable.field is None:
        result.unmapped.append(Unmapped(variable.name, variable.reason or ""))
        return
    if variable.form is not Form.FLAG:
        try:
            converted = read_value(variable.form, value)
        except ValueError as error:
            result.unmapped.append(Unmapped(variable.name, str(error)))
            return
        if variable.form is Form.PATH:
            converted = _below_home(converted, home)
        if variable.form in (Form.WORDS, Form.SHELL_WORDS):
            converted = _without_keys(result, variable.name, converted)
        result.put(variable.field, converted)
    result.mapped.append(Mapped(variable.name, variable.field, origin))


def _together(result: Imported, values: Mapping[str, str]) -> None:
    """Variables that act on each other, or on more than one field."""
    if result.recipe is Recipe.A:
        if result.overlay.get("weights", {}).get("keepParts"):
            result.put("weights.freeSpace", SPACE_WITH_PARTS)
        return
    host, user = values.get("WORKER_HOST"), values.get("WORKER_USER")
    if host and not values.get("WORKER_SSH"):
        result.put(f"{WORKER}.ssh", f"{user}@{host}" if user else host)
    elif user and not host and not values.get("WORKER_SSH"):
        result.put(f"{WORKER}.ssh", f"{user}@spark2")
    if values.get("API_KEY"):
        result.put("api.key", "generate")
        result.unmapped.append(Unmapped("API_KEY", f"the key itself is not written: {_KEY_ADVICE}"))
    image = values.get("IMAGE")
    if not image and values.get("KERNEL_PATCH") == "0":
        image = values.get("BASE_IMAGE") or "lmsysorg/sglang:qwen38flashnext"
    if image:
        result.overlay["image"] = {"build": None, "reference": image}
    if values.get("USE_HOST_NCCL") == "0":
        result.put("engine.nccl", result.overlay.get("engine", {}).get("nccl", {}) | {"preload": None})


def _name_nodes(result: Imported, names: tuple[str, str]) -> None:
    """Nodes are merged by name, so an overlay names the ones that it changes."""
    changed = result.overlay.pop("nodes", {})
    if changed:
        result.overlay["nodes"] = [{"name": names[index], **changed[index]} for index in sorted(changed)]


def _without_keys(result: Imported, name: str, words: list[str]) -> list[str]:
    """Words without the key flags and their values, which are reported."""
    kept: list[str] = []
    skip = False
    quote = ""
    for word in words:
        if quote:  # words of a key in quotes: the recipe splits them, and each is a part of the key
            quote = "" if word.endswith(quote) else quote
            continue
        if skip and not word.startswith("--"):
            skip, quote = False, _opened(word)
            continue
        skip = False
        flag = word.split("=")[0].replace("_", "-")
        if not any(len(flag) > len("--api-") and each.startswith(flag) for each in _KEY_FLAGS):
            kept.append(word)
            continue
        skip, quote = "=" not in word, _opened(word.partition("=")[2])
        result.put("api.key", "generate")
        result.unmapped.append(
            Unmapped(
                name,
                f"{flag} is left out: {_KEY_ADVICE}",
            )
        )
    return kept


def _opened(word: str) -> str:
    """The quote that a word opens and does not end."""
    quote = word[:1] if word[:1] in ("'", '"') else ""
    return "" if quote and len(word) > 1 and word.endswith(quote) else quote


def _below_home(path: str, home: str | None) -> str:
    for prefix in ("$HOME", "${HOME}", *([home.rstrip("/")] if home else [])):
        if path == prefix or path.startswith(f"{prefix}/"):
            return "~" + path[len(prefix) :]
    return path


def overlay_text(imported: Imported) -> str:
    """The overlay as YAML, with what could not be mapped as comments. Holds no secret."""
    lines = [
        f"# Variables of the recipe as an overlay of {imported.recipe.value}.yaml, by sparkop import.",
        *(f"#   {each.name} ({each.origin}) -> {each.field}" for each in imported.mapped),
        *(["# Not mapped:"] if imported.unmapped else []),
        *(f"#   {each.name}: {each.reason}" for each in imported.unmapped),
    ]
    body = dump(imported.overlay) if imported.overlay else "{}\n"
    return "\n".join(lines) + "\n" + body


def laid_over(base: LoadedSpec, text: str, name: str, mapped: Sequence[Mapped] = ()) -> ClusterSpec:
    """The spec that an overlay's text makes of ``base``.

    Raises InvalidSpecError with places in ``text``, and the variable of ``mapped`` that a value came from.
    """
    source = Source(name, split_lines(text), 1)
    tree, problems = parse(source, text)
    if tree is None or problems:
        raise InvalidSpecError(problems)
    spec, problems = validate(merge(base.tree, tree))
    if spec is None:
        variables = {each.field: f"{each.name} ({each.origin})" for each in mapped}
        raise InvalidSpecError(
            replace(problem, variable=variables.get(show_path(problem.path))) for problem in problems
        )
    return spec
