"""The reference page of the commands, made from the code: ``python -m sparkop.cli.reference``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from sparkop.cli.root import cli
from sparkop.errors import ExitCode

MEANINGS = {
    ExitCode.OK: "converged, no difference, all checks passed (warnings included)",
    ExitCode.UNEXPECTED: "unexpected error: a fault of sparkop",
    ExitCode.DIFFERS: "diff only: there is a difference",
    ExitCode.TIMED_OUT: "timed out before converged",
    ExitCode.UNREACHABLE: "a node is unreachable or could not be read",
    ExitCode.LEASE_HELD: "another sparkop writes to the cluster",
    ExitCode.FAILED: "failed for good: blocked, guard tripped, doctor or smoke failed",
    ExitCode.USAGE: "the command line is wrong",
    ExitCode.INVALID_SPEC: "the spec is invalid, or refused by a rule",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C",
    ExitCode.TERMINATED: "interrupted by SIGTERM",
}


def reference() -> str:
    """The page, as Markdown."""
    lines = [
        "# Commands",
        "",
        "Made from the code; `python -m sparkop.cli.reference` prints it.",
        "",
        "`SPEC` ends in .yaml or .yml, or holds a slash. It may be left out: then `SPARKOP_SPEC`, else",
        "`./spec.yaml`, else the cluster that was applied last from this machine.",
        "stdout is data, stderr is talk. Where `-o` is text or json, with json a failure is data too: an",
        "object with `error`. A slip in the command line itself is told in words only.",
        "`NO_COLOR` is honoured. `SPARKOP_DEBUG=1` shows where a fault of sparkop is.",
        "",
        "| exit code | meaning |",
        "| --- | --- |",
        *(f"| {int(code)} | {meaning} |" for code, meaning in MEANINGS.items()),
    ]
    with click.Context(cli, info_name="sparkop") as context:
        for name in cli.list_commands(context):
            command = cli.get_command(context, name)
            assert command is not None
            lines += _section(command, name, context)
    return "\n".join(lines) + "\n"


def _section(command: click.Command, name: str, parent: click.Context, depth: int = 2) -> Iterator[str]:
    with click.Context(command, info_name=name, parent=parent) as context:
        yield from ("", f"{'#' * depth} {context.command_path}", "", "```")
        yield " ".join([context.command_path, *command.collect_usage_pieces(context)])
        yield from ("```", "", *_help(command), *_options(command, context))
        if isinstance(command, click.Group):
            for child in command.list_commands(context):
                found = command.get_command(context, child)
                if found is not None and not found.hidden:
                    yield from _section(found, child, context, depth + 1)


def _help(command: click.Command) -> list[str]:
    return [line.replace("\b", "").rstrip() for line in inspect.cleandoc(command.help or "").splitlines()]


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    given = [each for each in command.params if isinstance(each, click.Option)]
    records = [record for each in given if (record := each.get_help_record(context))]
    options = [record for record in records if "--help" not in record[0]]
    if options:
        yield from ("", "| option | |", "| --- | --- |")
        for names, text in options:
            yield f"| `{_cell(names)}` | {_cell(' '.join(text.split()))} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(reference(), end="")  # noqa: T201 (a page on stdout is what it is for)
