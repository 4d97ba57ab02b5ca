"""``sparkop lab``: real hosts on this Linux machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from sparkop.cli.options import F, output_option

if TYPE_CHECKING:
    from sparkop.lab.faults import Fault, Target

name_option = click.option("--name", metavar="NAME", help='Which lab (default: SPARKOP_LAB, else "default").')

_COMMAND_FOLLOWS = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""For commands whose arguments are a command with options of its own."""


def _say(line: str) -> None:
    click.echo(f"lab: {line}", err=True)


def _size(_context: click.Context, _parameter: click.Parameter, text: str) -> int:
    from sparkop.lab.lab import LEAST_BYTES, parse_size
    from sparkop.node.transfer.files import size_text

    try:
        size = parse_size(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no size: use 4g or 512m, or 4 GiB") from None
    if size < LEAST_BYTES:
        raise click.BadParameter(f"{size_text(size)} is too little: a host needs {size_text(LEAST_BYTES)}")
    return size


def _memory(context: click.Context, parameter: click.Parameter, text: str) -> int:
    from sparkop.node.transfer.files import size_text

    size = _size(context, parameter, text)
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if size > there and _given(context, "memory"):  # the default is a limit that is not reached
        raise click.BadParameter(f"{size_text(size)} is more than this machine has: {size_text(there)}")
    return size


def _given(context: click.Context, option: str) -> bool:
    return context.get_parameter_source(option) is not ParameterSource.DEFAULT


@click.group()
def lab() -> None:
    """Real hosts on this Linux machine: sshd, Docker, a registry, a hub, and faults. Needs root."""


@lab.command()
@name_option
@click.option("--hosts", type=click.IntRange(1, 4), default=2, show_default=True, help="How many hosts.")
@click.option("--memory", default="4g", show_default=True, callback=_memory, help="Memory of each host.")
@click.option("--disk", default="24g", show_default=True, callback=_size, help="Disk of each host (sparse).")
@click.option(
    "--share", multiple=True, metavar="DIR", help="Folder that hosts see read-only at the same path."
)
@click.option(
    "--engines", "wanted", type=click.Choice(["all", "standin", "none"]), default="all", show_default=True,
    help="Engine images to provide. The real vLLM takes minutes the first time on a machine.",
)  # fmt: skip
@click.pass_context
def up(
    context: click.Context,
    name: str | None,
    hosts: int,
    memory: int,
    disk: int,
    share: tuple[str, ...],
    wanted: str,
) -> None:
    """Bring the lab up; nothing to do when it is, as the given options say."""
    from sparkop.lab import engines
    from sparkop.lab.lab import LabConfig, engine_shares
    from sparkop.lab.up import OPTIONS
    from sparkop.lab.up import up as bring_up

    shares = engine_shares(share) + engines.shares()
    config = LabConfig(hosts=hosts, memory_bytes=memory, disk_bytes=disk, shares=shares)
    running = bring_up(name, config, _say, [option for option in OPTIONS if _given(context, option)])
    if wanted != "none":
        engines.provide(running, _say, vllm=wanted == "all")
    _say(f"{running.name!r} is up: {', '.join(host.name + '.lab' for host in running.hosts)}")


@lab.command()
@name_option
def down(name: str | None) -> None:
    """Remove the lab and all that is left of it."""
    from sparkop.lab.down import down as take_down

    if not take_down(name, _say):
        _say("nothing was up")


@lab.command()
@name_option
@output_option
def ps(name: str | None, output: str) -> None:
    """Show the hosts and what is wrong with them."""
    import json

    from sparkop.lab.lab import Lab
    from sparkop.lab.report import report, table

    rows = report(Lab.load(name))
    click.echo(json.dumps(rows, indent=2) if output == "json" else table(rows))


@lab.command(context_settings=_COMMAND_FOLLOWS)
@name_option
@click.argument("host")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def shell(name: str | None, host: str, command: tuple[str, ...]) -> None:
    """Open a root shell on HOST, or run COMMAND there."""
    from sparkop.lab.host import shell as become_shell
    from sparkop.lab.lab import Lab

    if command[:1] == ("--",):  # click leaves it there when a word stands before it
        command = command[1:]
    become_shell(Lab.load(name).host(host), command or ("bash", "-l"))


@lab.command()
@name_option
@click.option(
    "-n", "lines", type=click.IntRange(1), default=50, show_default=True, help="Last lines of each."
)
@click.argument("host", required=False)
@click.argument("service", required=False)
def logs(name: str | None, lines: int, host: str | None, service: str | None) -> None:
    """Show logs of HOST's services (console, sshd, dockerd, figures); without HOST, the lab's own."""
    from sparkop.lab.lab import Lab
    from sparkop.lab.report import tails

    found = Lab.find(name)
    paths = found.host(host).paths if host else found.paths
    click.echo(tails(paths.logs, service, lines), nl=False)


@lab.command(context_settings=_COMMAND_FOLLOWS)
@name_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(name: str | None, command: tuple[str, ...]) -> None:
    """Run COMMAND inside the lab, as its controller: `sparkop lab run -- ssh spark-1 uname`."""
    from sparkop.lab.enter import enter
    from sparkop.lab.layout import lab_name

    enter(lab_name(name), command)


@lab.command()
@name_option
@click.argument("host")
def boot(name: str | None, host: str) -> None:
    """Power HOST on after a power cut."""
    from sparkop.lab.lab import Lab

    Lab.load(name).boot(host)
    _say(f"{host}: it is on; sshd and Docker answer")


class FaultList(click.Command):
    """``--help`` with the list of faults, which is read from the registry."""

    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from sparkop.lab.faults import FAULTS

        with formatter.section("Faults"):
            formatter.write_dl([(fault.name, fault.text) for fault in FAULTS.values()])


def _aim(
    name: str | None,
    fault: str,
    host: str,
    rail: int | None,
    rank: int | None,
    path: str | None,
    amount: str | None,
) -> tuple[Fault, Target]:
    from sparkop.errors import UsageError
    from sparkop.lab.faults import FAULTS, Target
    from sparkop.lab.lab import Lab
    from sparkop.spec.suggest import nearest

    if fault not in FAULTS:
        raise UsageError(f"no fault {fault!r}", remedy=nearest(fault, FAULTS) or "sparkop lab break --help")
    running = Lab.load(name)
    return FAULTS[fault], Target(running, running.host(host), rail, rank, path, amount)


def fault_options(command: F) -> F:
    """``FAULT HOST [--rail N] [--rank N] [--path DIR] [--amount SIZE]``."""
    for option in (
        click.option("--amount", metavar="SIZE", help="Size or seconds, where the fault says so."),
        click.option("--path", metavar="DIR", help="Folder of the weights on HOST."),
        click.option("--rank", type=click.IntRange(0), help="One rank of HOST."),
        click.option("--rail", type=click.IntRange(0, 1), help="One fabric rail."),
        click.argument("host"),
        click.argument("fault"),
        name_option,
    ):
        command = option(command)
    return command


@lab.command("break", cls=FaultList)
@fault_options
def break_(
    name: str | None,
    fault: str,
    host: str,
    rail: int | None,
    rank: int | None,
    path: str | None,
    amount: str | None,
) -> None:
    """Break HOST in a named way."""
    found, target = _aim(name, fault, host, rail, rank, path, amount)
    _say(f"{target.host.name}: {found.breaks(target)}")


@lab.command(cls=FaultList)
@fault_options
def mend(
    name: str | None,
    fault: str,
    host: str,
    rail: int | None,
    rank: int | None,
    path: str | None,
    amount: str | None,
) -> None:
    """Undo a fault of HOST, as far as it does not heal by itself or by `sparkop apply`."""
    found, target = _aim(name, fault, host, rail, rank, path, amount)
    _say(f"{target.host.name}: {found.mends(target)}")
