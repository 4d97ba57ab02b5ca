"""The assignments in a recipe's file: as recipe B's start script reads them, or as a shell would.

Nothing is run: what only a shell can tell is told as that.
"""

from __future__ import annotations

import re
import shlex

from sparkop.records import dataclass
from sparkop.spec.recipe_variables import Recipe

_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)\Z", re.DOTALL)
_MADE_BY_A_SHELL = re.compile(r"[$`]")
_PIECE = r"""'[^']*'|"(?:\\.|[^"\\])*"|`[^`]*`|\$\([^)]*\)|\\.|[^\s'"\\;&|]"""
"""Of a word as a shell reads it: quoted, run, escaped, or one character."""
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
_AROUND = ("export", "declare", "-x", "set", "-a", "+a")
"""Words beside assignments that change none of them."""


@dataclass(frozen=True)
class Unmapped:
    """A variable, or a part of one, that became no field; ``reason`` never holds its value."""

    name: str
    reason: str


def names_in(text: str) -> set[str]:
    """Names of the variables that a file assigns, read in both ways."""
    return set(_plain_lines(text)[0]) | set(_shell_lines(text)[0])


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
