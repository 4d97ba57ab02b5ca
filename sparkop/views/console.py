"""The two channels: stdout is data, stderr is talk. NO_COLOR and non-terminals are honoured by rich.

All that views say goes through here, and much of it is text of nodes: what would steer a terminal is taken
out at this one place. rich is imported for what has colours: a plan and a JSON document have none.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from functools import cache
from typing import IO, TYPE_CHECKING, Any

from sparkop.plain import json_plain, plain

if TYPE_CHECKING:
    from rich.console import Console


@cache
def out() -> Console:
    """Data, on stdout."""
    from sparkop.views.plain_console import PlainConsole

    return PlainConsole(soft_wrap=not sys.stdout.isatty())


@cache
def talk() -> Console:
    """Talk, on stderr."""
    from sparkop.views.plain_console import PlainConsole

    return PlainConsole(stderr=True, soft_wrap=not sys.stderr.isatty())


def print_lines(lines: Iterable[str], channel: IO[str] | None = None) -> None:
    """Lines without colours on stdout, or another channel; a terminal breaks those that are too long."""
    (channel or sys.stdout).write("".join(f"{plain(line)}\n" for line in lines))


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json_plain(json.dumps(value, indent=2, ensure_ascii=False)) + "\n")


def print_line(value: Any) -> None:
    """One JSON document on one line of stdout."""
    sys.stdout.write(json_plain(json.dumps(value, ensure_ascii=False)) + "\n")
