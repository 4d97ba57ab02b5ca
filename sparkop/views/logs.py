"""Log lines of ranks on stdout, each with its rank where there are several."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from sparkop.reconcile.logs import LogLine
from sparkop.views.channels import reader_gone
from sparkop.views.console import out

_STYLES = ("cyan", "magenta", "green", "yellow")


def show_logs(lines: Iterator[LogLine]) -> None:
    """Print until the lines end, or nobody reads them any more."""
    for line in lines:
        if reader_gone():
            return
        out().print(Text.assemble((f"r{line.rank} | ", _STYLES[line.rank % len(_STYLES)]), line.text))
