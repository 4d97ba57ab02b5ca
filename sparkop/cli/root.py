# ruff: noqa: ARG002 (click's own signatures)
"""All commands: one module each, loaded when it is used; every failure ends in words and an exit code."""

from __future__ import annotations

import errno
import gc
import importlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click

from sparkop.cli import INTERRUPTED, after_the_echo
from sparkop.errors import ExitCode, SparkopError
from sparkop.plain import plain
from sparkop.views.channels import mend

if TYPE_CHECKING:
    from sparkop.cli.options import Asked

COMMANDS: dict[str, tuple[str, str]] = {
    "apply": ("sparkop.cli.apply:command", "Make the machines what the spec says."),
    "diff": ("sparkop.cli.diff:command", "Show what differs, why, and what apply would do. Changes nothing."),
    "watch": ("sparkop.cli.watch:command", "Heal the cluster by itself, until you stop it."),
    "events": ("sparkop.cli.events:command", "Show what happened to the cluster, and why."),
    "status": ("sparkop.cli.status:command", "Show nodes, ranks, guard, memory and the API."),
    "memory": ("sparkop.cli.memory:command", "Show every node's memory, page cache, phase and floors, live."),
    "logs": ("sparkop.cli.logs:command", "Show the ranks' logs."),
    "stop": ("sparkop.cli.stop:command", "Stop serving, and remember that a human wanted it so."),
    "rollback": ("sparkop.cli.rollback:command", "Go back to the last spec that was ready."),
    "destroy": ("sparkop.cli.destroy:command", "Remove what sparkop made; the weights only when named."),
    "lease": ("sparkop.cli.lease:group", "Show who writes to the cluster, or fence a dead writer out."),
    "download": ("sparkop.cli.download:command", "Fetch and verify the weights, or find a running download."),
    "smoke": (
        "sparkop.cli.smoke:command",
        "Ask the served model: text, tools, pictures, reasoning, streams.",
    ),
    "bench": ("sparkop.cli.bench:bench", "Measure how fast the model is served; compare two measurements."),
    "validate": ("sparkop.cli.validate:command", "Check specs and show every error with its place."),
    "budget": ("sparkop.cli.budget:command", "Show what the memory of every node will hold, and what fits."),
    "render": ("sparkop.cli.render:command", "Show the rank containers that the spec stands for."),
    "doctor": ("sparkop.cli.doctor:command", "Check every node: what is wrong, where, and the exact fix."),
    "fabric": ("sparkop.cli.fabric:command", "Show the fabric between the nodes, what is wrong marked."),
    "facts": ("sparkop.cli.facts:command", "Record what the nodes are, for render and bug reports."),
    "explain": ("sparkop.cli.explain:command", "Explain a field of the spec."),
    "schema": ("sparkop.cli.schema:command", "Print the JSON Schema of the spec, for editors."),
    "init": ("sparkop.cli.init:command", "Write a spec for your machines."),
    "import": ("sparkop.cli.import_:command", "Turn a recipe's variables into an overlay."),
    "connect": ("sparkop.cli.connect:command", "Set up Pi and other clients on this machine, or undo it."),
    "lab": ("sparkop.cli.lab:lab", "Real hosts on this Linux machine, to try sparkop."),
}
"""Name -> where it is, and its line in ``sparkop --help`` (so that help imports no command)."""


class LazyGroup(click.Group):
    """Imports a command's module when that command runs; ``--help`` needs none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            from sparkop.spec.suggest import nearest

            near = nearest(args[0], COMMANDS)
            ctx.fail(f"there is no command {args[0]!r}" + (f"; {near}" if near else ""))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from sparkop import __version__

        click.echo(f"sparkop {__version__}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="SPEC may be left out: SPARKOP_SPEC, else ./spec.yaml, else the cluster applied last from here.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version."
)
def cli() -> None:
    """Serve one large model over NVIDIA DGX Sparks, from one ClusterSpec."""


class Terminated(BaseException):
    """SIGTERM, or SIGHUP of a lost terminal, arrived; unwinds as KeyboardInterrupt: leases are given back."""


class Interrupted(BaseException):
    """Ctrl-C on its way through click, which makes an Abort and an empty line of a KeyboardInterrupt."""


_struck: list[type[BaseException]] = []
"""The signals that this command line was ended by."""


def strike(number: int, _frame: FrameType | None = None) -> NoReturn:
    """Unwind for a signal. It is remembered: what it strikes may make a failure of its own of it."""
    _struck.append(KeyboardInterrupt if number == signal.SIGINT else Terminated)
    raise _struck[-1]


def _leave(number: int, _frame: FrameType | None = None) -> NoReturn:
    """One more signal while the one before is being told: nothing is left that could unwind."""
    os._exit(ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.TERMINATED)


def main(argv: list[str] | None = None) -> NoReturn:
    """Run the process's command line. Never returns: it exits with a code of ``ExitCode``."""
    mend()
    signal.signal(signal.SIGTERM, strike)
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # ignored under nohup, in a script behind &
            signal.signal(number, strike)
    code = int(run(sys.argv[1:] if argv is None else argv))
    gc.freeze()  # else the interpreter looks for garbage once more while it ends, for as long
    sys.exit(code)


def run(argv: list[str]) -> int:
    """Run one command line and turn every failure into words on stderr and an exit code.

    With ``-o json`` a failure is a JSON document on stdout too.
    """
    asked: Asked | None = None
    _struck.clear()
    try:
        from sparkop.cli.options import Asked

        asked = Asked()
        result = cli.main(args=argv, prog_name="sparkop", standalone_mode=False, obj=asked)
        sys.stdout.flush()  # a full disk is told here, and not by the interpreter at its end
    except click.exceptions.Abort:
        return _interrupted()  # of a question
    except click.ClickException as error:
        error.show()
        return ExitCode.USAGE
    except SparkopError as error:
        if _struck:
            return _unforeseen(error)
        from sparkop.views.errors import print_error, show_error

        show_error(error)
        if asked is not None and asked.json:
            print_error(error)
        return error.exit_code
    except (Exception, KeyboardInterrupt, Interrupted, Terminated) as error:
        return _unforeseen(error)
    return result if isinstance(result, int) else ExitCode.OK


def _unforeseen(error: BaseException) -> int:
    """What ended the command otherwise: a signal, a full disk, a fault of ours.

    A signal can strike within a lock, a library's cleaning up, or one that is no Python, which then fails in
    its own way: that failure is the interrupt.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is strike:
            signal.signal(number, _leave)
    behind = {*_struck, *(type(each) for each in _chain(error))}
    if KeyboardInterrupt in behind:
        return _interrupted(echoed=bool(_struck))
    if Terminated in behind:
        click.echo("sparkop: terminated; run the same command again to carry on.", err=True)
        return ExitCode.TERMINATED
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        where = error.filename or "where the output goes"
        click.echo(f"sparkop: {where}: {error.strerror}\n  do: make room on this machine", err=True)
        return ExitCode.UNEXPECTED
    return _unexpected(error)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and what each was raised from or while handling."""
    behind: BaseException | None = error
    while behind is not None:
        yield behind
        behind = behind.__cause__ or behind.__context__


def _unexpected(error: BaseException) -> int:
    if os.environ.get("SPARKOP_DEBUG"):
        raise error
    click.echo(
        f"sparkop: unexpected error: {type(error).__name__}: {plain(str(error))}\n"
        "This is a fault of sparkop. SPARKOP_DEBUG=1 shows where.",
        err=True,
    )
    return ExitCode.UNEXPECTED


def _interrupted(*, echoed: bool = True) -> int:
    """``echoed``: a ^C may stand on the line; else what was said when it came has ended it."""
    click.echo(f"{after_the_echo() if echoed else ''}{INTERRUPTED}", err=True)
    return ExitCode.INTERRUPTED
