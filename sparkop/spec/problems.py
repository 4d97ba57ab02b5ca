"""Errors of a spec: what is wrong where, and what would be accepted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sparkop.errors import SpecError
from sparkop.records import dataclass
from sparkop.spec.secrets import MASK, is_secret, line_spans, mask_line, without_secrets
from sparkop.spec.tree import Path, Place, show_path

_MOST = 200
"""Errors that are shown; a file that is no spec at all can have thousands."""
_WIDEST = 160
"""Longer source lines are cut around the caret."""


@dataclass(frozen=True)
class Problem:
    """One error. ``message`` reads after the path: ``memory.kvCache: 5 has no unit``."""

    place: Place
    message: str
    path: Path = ()
    accepted: str | None = None
    suggestion: str | None = None
    defined: Place | None = None
    """Where the value was written, when an alias or merge key led to it."""
    hint: str | None = None
    """What the field says to whoever got it wrong: it quotes no value, so nothing in it is masked."""
    rule: str | None = None
    variable: str | None = None
    """The environment variable, and where it was set, that the value was made from."""

    def __str__(self) -> str:
        where = f"{self.place}: "
        subject = f"{show_path(self.path)}: " if self.path else ""
        rule = f" [{self.rule}]" if self.rule else ""
        lines = [f"{where}{subject}{self.message}{rule}", *self._excerpt()]
        if self.variable is not None:
            lines.append(f"    made from the variable {self.variable}")
        if self.defined is not None:
            lines.append(f"    used here through an alias; written at {self.defined}")
        if self.accepted:
            lines.append(f"    accepted: {self.accepted}")
        if self.suggestion:
            lines.append(f"    {self.suggestion}")
        elif self.hint:
            lines.append(f"    {self.hint}")
        return "\n".join(map(printable, lines))

    def without_secrets(self) -> Problem:
        """The same problem in words that quote no secret of its sources."""
        places = [self.place] if self.defined is None else [self.place, self.defined]
        about_secret = is_secret(self.path)

        def words(text: str | None) -> str | None:
            if text is None:
                return None
            for place in places:
                text = without_secrets(text, place)
            # A secret of digits is also told in other notations.
            return re.sub("[0-9]{5,}", MASK, text) if about_secret else text

        return replace(
            self,
            message=words(self.message) or "",
            accepted=words(self.accepted),
            suggestion=words(self.suggestion),
        )

    def _excerpt(self) -> list[str]:
        line = self.place.text.rstrip()
        start, end = self.place.column - 1, max(self.place.end, self.place.column + 1) - 1
        end = min(end, max(len(line), start + 1))
        first, last = 0, len(line)
        if last > _WIDEST:
            first = max(0, start - _WIDEST // 2)
            last = min(last, first + _WIDEST)
        text = "".join(each if each.isprintable() else " " for each in line[first:last])
        if not text.strip():
            return []
        secrets = line_spans(self.place, first, last)
        text, start, end = mask_line(text, secrets, start - first, min(end, last) - first)
        if len(line) > _WIDEST:
            before = "..." if first else ""
            text, start, end = f"{before}{text}...", start + len(before), end + len(before)
        number = str(self.place.line)
        return [f"  {number} | {text}", f"  {' ' * len(number)} | {' ' * start}{'^' * max(1, end - start)}"]

    def as_json(self) -> dict[str, Any]:
        """For ``-o json``."""
        return {
            "file": self.place.source.name,
            "line": self.place.line,
            "column": self.place.column,
            "path": show_path(self.path),
            "message": self.message,
            "accepted": self.accepted,
            "suggestion": self.suggestion,
            "rule": self.rule,
            "variable": self.variable,
        }


class InvalidSpecError(SpecError):
    """A spec with errors; ``problems`` are sorted by layer and line, at least one."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(
            sorted(
                dict.fromkeys(problem.without_secrets() for problem in problems),
                key=lambda p: (p.place.source.order, p.place.line, p.place.column, p.message),
            )
        )
        files = list(dict.fromkeys(problem.place.source.name for problem in self.problems))
        count = len(self.problems)
        super().__init__(
            f"{count} error{'s' if count != 1 else ''} in {', '.join(files)}",
            detail="\n".join([*map(str, self.problems[:_MOST]), *_rest(count - _MOST)]),
        )


def _rest(count: int) -> list[str]:
    return [f"and {count} more"] if count > 0 else []


def printable(text: str) -> str:
    """Control and direction characters of a spec must not steer the terminal of who reads its errors."""
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in text)
