"""A recipe's ``.env`` file or exported variables as an overlay of the spec that replaces the recipe."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from sparkop.errors import UsageError
from sparkop.records import dataclass
from sparkop.spec.edit import dump
from sparkop.spec.layers import merge
from sparkop.spec.load import LoadedSpec, validate
from sparkop.spec.models import ClusterSpec
from sparkop.spec.problems import InvalidSpecError
from sparkop.spec.recipe_variables import SPACE_WITH_PARTS, VARIABLES, WORKER, Form, Recipe, Variable
from sparkop.spec.tree import Source, show_path
from sparkop.spec.yaml_text import parse, split_lines

_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)\Z", re.DOTALL)
_KEY_FLAGS = ("--api-key", "--admin-api-key")
_KEY_ADVICE = (
    "put it into the key's file on the head (mode 0600); api.key is generate, and an existing key is kept"
)
_MADE_BY_A_SHELL = re.compile(r"[$`]")
_PIECE = r"""'[^']*'|"(?:\\.|[^"\\])*"|`[^`]*`|\$\([^)]*\)|\\.|[^\s'"\\;&|]"""
"""Of a word as a shell reads it: quoted, run, escaped, or one character."""
_RAW_WORD = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+""", re.DOTALL)
"""A word of arguments, its quotes still in."""
_JSON = re.compile(r"(?:--?[\w.-]+=)?(?P<json>[{\[].*)", re.DOTALL)
_TOKEN = re.compile(rf"(?P<word>(?:{_PIECE})+)|(?P<between>[;&|\s]+)", re.DOTALL)
_HOME_AT_THE_START = re.compile(r"\A\"?\$(?:HOME|\{HOME\})(?=[/\"]|\Z)")
_ASK_A_SHELL = (
    "only a shell can tell what it holds: `set -a; . ./FILE` there, then sparkop import without FILE"
)
_NO_COMMANDS = "is no assignment, and import runs no commands"
_NO_QUOTES = "its value goes on behind a blank, where a shell ends it: put all of it in quotes"
_PROGRAM = re.compile(
    r"[^-{\['\"].*/.*|[\w.-]+\.(sh|py)|bash|sh|env|exec|nohup|sudo|docker|python3?|source|\."
)
"""What may stand behind assignments to be run with them."""
_NUMBERS = re.compile(r"[\[\]\s,]+")


@dataclass(frozen=True)
class Mapped:
    """A variable that became a field."""

    name: str
    field: str
    origin: str
    """``file`` or ``shell``."""


@dataclass(frozen=True)
class Unmapped:
    """A variable, or a part of one, that did not; ``reason`` never holds its value."""

    name: str
    reason: str


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


def names_in(text: str) -> set[str]:
    """Names of the variables that a file assigns, read in both ways."""
    return set(_plain_lines(text)[0]) | set(_shell_lines(text)[0])


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


def read_file(text: str, recipe: Recipe) -> tuple[dict[str, str], list[Unmapped]]:
    """The assignments of a file, and what is none.

    Recipe B reads its ``.env`` itself: carriage returns are dropped, lines that begin with # are comments,
    and a value is taken as it stands, quotes and trailing comments included. Recipe A has no file of its own:
    its variables are exported by a shell, so a file is read as a shell would, but runs nothing.
    """
    return _plain_lines(text) if recipe is Recipe.B else _shell_lines(text)


def _plain_lines(text: str) -> tuple[dict[str, str], list[Unmapped]]:
    found: dict[str, str] = {}
    odd: list[Unmapped] = []
    for number, line in enumerate(text.replace("\r", "").split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _ASSIGNMENT.match(line)
        if match is None:
            odd.append(Unmapped(f"line {number}", "is no assignment"))
        else:
            found[match[1]] = match[2]
    return found, odd


def _shell_lines(text: str) -> tuple[dict[str, str], list[Unmapped]]:
    """Every assignment of a line counts: ``export A=1 B=2``, ``A=1; B=2``, ``A=1 B=2 ./launch.sh``."""
    found: dict[str, str] = {}
    odd: list[Unmapped] = []
    for number, line in _joined(text.replace("\r", "")):
        try:
            commands = _commands(line)
        except ValueError:
            odd.append(Unmapped(f"line {number}", "has a quote that does not end"))
            continue
        runs = False
        for words in commands:
            broken = _broken(words)
            runs |= broken is None and any(not _ASSIGNMENT.match(w) and w not in _AROUND for w in words)
            for word in words:
                match = _ASSIGNMENT.match(word)
                if match is None:
                    continue
                name, raw = match[1], match[2]
                found.pop(name, None)  # the last one counts
                if word is broken:
                    odd.append(Unmapped(name, _NO_QUOTES))
                elif _made_by_a_shell(_HOME_AT_THE_START.sub("", raw)):
                    odd.append(Unmapped(name, _ASK_A_SHELL))
                else:
                    found[name] = "".join(shlex.split(raw))
        if runs:
            odd.append(Unmapped(f"line {number}", _NO_COMMANDS))
    return found, odd


def _broken(words: list[str]) -> str | None:
    """The assignment that a word follows which is neither another one nor a program to run with it.

    ``CAPS=1 2 4`` is a value that somebody forgot to quote; ``CAPS=1 ./launch.sh serve`` is a command.
    """
    last = None
    for word in words:
        if _ASSIGNMENT.match(word):
            last = word
        elif last is not None and word not in _AROUND:
            return None if _PROGRAM.fullmatch(word) else last
    return None


_AROUND = ("export", "declare", "-x", "set", "-a", "+a")
"""Words beside assignments that change none of them."""


def _joined(text: str) -> list[tuple[int, str]]:
    """Lines with their numbers; one that ends in a backslash goes on in the next."""
    lines: list[tuple[int, str]] = []
    open_line = False
    for number, line in enumerate(text.split("\n"), start=1):
        goes_on = line.endswith("\\") and not line.endswith("\\\\")
        part = line[:-1] if goes_on else line
        if open_line:
            lines[-1] = (lines[-1][0], lines[-1][1] + part)
        else:
            lines.append((number, part))
        open_line = goes_on
    return lines


def _commands(line: str) -> list[list[str]]:
    """The words of each command as a shell has them, quotes still in, up to a comment.

    Raises ValueError for an open quote.
    """
    commands: list[list[str]] = [[]]
    place = 0
    while place < len(line):
        found = _TOKEN.match(line, place)
        if found is None:
            raise ValueError("a quote does not end")
        if found["word"] and found["word"].startswith("#"):
            break
        if found["word"]:
            commands[-1].append(found["word"])
        elif found["between"].strip():
            commands.append([])
        place = found.end()
    return commands


def _made_by_a_shell(raw: str) -> bool:
    """Whether the value holds a variable or a command, outside of single quotes and not escaped."""
    pieces = (re.sub(r"\\.", "", piece) for piece in re.findall(_PIECE, raw, re.DOTALL) if piece[0] != "'")
    return any(_MADE_BY_A_SHELL.search(piece) for piece in pieces)


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
            converted = _READERS[variable.form](value)
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


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] in "\"'":
        raise ValueError(
            "begins with a quote, which recipe B takes as a part of the value: take the quotes out"
        )
    return value


def _integer(value: str) -> int:
    if not re.fullmatch(r"[0-9]+", _unquoted(value).strip()):
        comment = "; recipe B takes a trailing comment as a part of the value" if "#" in value else ""
        raise ValueError(f"is no whole number{comment}")
    return int(value)


def _number(value: str) -> float | int:
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", _unquoted(value).strip()):
        raise ValueError("is no number")
    return float(value)


def _numbers(value: str) -> list[int]:
    return [_integer(part) for part in _NUMBERS.split(_unquoted(value)) if part]


def _switch(value: str) -> bool:
    if _unquoted(value).strip() not in ("0", "1"):
        raise ValueError("is neither 0 nor 1")
    return value.strip() == "1"


def _download(value: str) -> str:
    modes = {"rsync": "copy", "direct": "direct"}
    if value.strip() not in modes:
        raise ValueError("is neither rsync nor direct")
    return modes[value.strip()]


def _shell_words(value: str) -> list[str]:
    """As a shell splits them, but JSON that stands there without quotes around it keeps its own."""
    try:
        plain = shlex.split(value)
    except ValueError:
        raise ValueError("has a quote that does not end") from None
    return [_whole_json(raw, word) for raw, word in zip(_RAW_WORD.findall(value), plain, strict=True)]


def _plain_words(value: str) -> list[str]:
    return [_whole_json(word, word) for word in value.split()]


def _whole_json(raw: str, word: str) -> str:
    """``word`` as it was meant. Raises ValueError for JSON that lost its quotes, or was split at a blank."""
    meant, written = _JSON.match(word), _JSON.match(raw)
    if meant is None or _is_json(meant["json"]):
        return word
    if written is not None and _is_json(written["json"]):
        return raw
    if meant["json"].startswith("[") and (raw == word or written is None):
        return word  # brackets that are no JSON, as somebody wrote them
    raise ValueError("has JSON that is split or loses its quotes: put it in single quotes, within the value")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


_READERS: Mapping[Form, Callable[[str], Any]] = {
    Form.TEXT: _unquoted,
    Form.PATH: _unquoted,
    Form.INTEGER: _integer,
    Form.NUMBER: _number,
    Form.BYTES: lambda value: f"{_integer(value)} B",
    Form.GIB: lambda value: f"{_number(value):g} GiB",
    Form.MINUTES: lambda value: f"{_number(value):g} min",
    Form.SWITCH: _switch,
    Form.WORDS: _plain_words,
    Form.SHELL_WORDS: _shell_words,
    Form.COMMAS: lambda value: [part.strip() for part in _unquoted(value).split(",") if part.strip()],
    Form.NUMBERS: _numbers,
    Form.ONE_NAME: lambda value: [_unquoted(value)],
    Form.DOWNLOAD: _download,
}


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
