"""Log lines on stdout, each with its rank, or the launcher's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.text import Text

from sparkop.reconcile.logs import LogLine
from sparkop.views.channels import reader_gone
from sparkop.views.console import out, talk

_STYLES = ("cyan", "magenta", "green", "yellow")


def show_logs(lines: Iterator[LogLine]) -> None:
    """Print until the lines end. Of a rank that is gone it is said where its lines come from."""
    said = set()
    for line in lines:
        if reader_gone():
            return
        if line.kept and line.rank not in said:
            said.add(line.rank)
            talk().print(Text(f"rank {line.rank} has no container; its log as kept: {line.node}:{line.kept}"))
        out().print(Text.assemble((f"r{line.rank} | ", _STYLES[line.rank % len(_STYLES)]), line.text))


def show_launcher(lines: Iterable[str]) -> None:
    """The launcher's log: what commands told on this machine."""
    for line in lines:
        out().print(Text.assemble(("launcher | ", "blue"), line))
