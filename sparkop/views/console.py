"""The two channels: stdout is data, stderr is talk. NO_COLOR and non-terminals are honoured by rich.

All that views say goes through here, and much of it is text of nodes: what would steer a terminal is taken
out at this one place.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from sparkop.plain import json_plain, plain


class PlainConsole(Console):
    """Colours are rich's own, never those of the text; no markup, as text of nodes may look like it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich does, with every piece of text made plain."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)


@cache
def out() -> Console:
    """Data, on stdout."""
    return PlainConsole(soft_wrap=not sys.stdout.isatty())


@cache
def talk() -> Console:
    """Talk, on stderr."""
    return PlainConsole(stderr=True, soft_wrap=not sys.stderr.isatty())


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json_plain(json.dumps(value, indent=2, ensure_ascii=False)) + "\n")


def print_line(value: Any) -> None:
    """One JSON document on one line of stdout."""
    sys.stdout.write(json_plain(json.dumps(value, ensure_ascii=False)) + "\n")
