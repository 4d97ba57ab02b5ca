"""A failure as a person reads it: what, where, why, what next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkop.errors import SparkopError, UnreachableError
from sparkop.resources.events import Event
from sparkop.views.console import print_line, talk

if TYPE_CHECKING:
    from rich.text import Text


def error_lines(error: SparkopError) -> list[Text]:
    """What happened and on which node, the evidence, the likely cause, the next command."""
    from rich.text import Text

    head = Text("sparkop: ", style="bold red")
    if error.node:
        head.append(f"{error.node}: ", style="bold")
    head.append(error.message, style="")
    lines = [head]
    if error.detail:
        lines.extend(Text(f"  {line}", style="dim") for line in error.detail.splitlines())
    if error.cause:
        lines.append(Text.assemble(("  likely cause: ", "yellow"), error.cause))
    if remedy := _remedy(error):
        lines.append(Text.assemble(("  do: ", "green"), remedy))
    return lines


def _remedy(error: SparkopError) -> str | None:
    """What to do; of a node that was lost in the middle of whatever went on, the same everywhere."""
    if error.remedy is None and isinstance(error, UnreachableError):
        return "see whether the node is up (sparkop status tells which answer), then the same command again"
    return error.remedy


def show_error(error: SparkopError) -> None:
    """Write the failure to stderr."""
    for line in error_lines(error):
        talk().print(line)


def print_error(error: SparkopError) -> None:
    """The failure as data, on one line: who asks for JSON gets JSON, also from commands that print a line an
    event."""
    told = {"message": str(error.message), "node": error.node, "cause": error.cause, "remedy": _remedy(error)}
    print_line({"error": {**told, "detail": error.detail, "exit": int(error.exit_code)}})


def show_note(event: Event) -> None:
    """Say on stderr what a reading command waits for."""
    talk().print(f"{event.node}: {event.text}" if event.node else event.text, style="dim")
