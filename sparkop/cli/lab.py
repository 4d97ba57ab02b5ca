"""``sparkop lab``: real hosts on this Linux machine."""

from __future__ import annotations

import click

from sparkop.cli.options import output_option

name_option = click.option("--name", metavar="NAME", help='Which lab (default: SPARKOP_LAB, else "default").')


def _say(line: str) -> None:
    click.echo(f"lab: {line}", err=True)


def _size(_context: click.Context, _parameter: click.Parameter, text: str) -> int:
    from sparkop.lab.lab import parse_size

    try:
        return parse_size(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no size: use 4g or 512m") from None


@click.group()
def lab() -> None:
    """Real hosts on this Linux machine: sshd, Docker, a registry, a hub, and faults. Needs root."""


@lab.command()
@name_option
@click.option("--hosts", type=click.IntRange(1, 4), default=2, show_default=True, help="How many hosts.")
@click.option("--memory", default="4g", show_default=True, callback=_size, help="Memory of each host.")
@click.option("--disk", default="24g", show_default=True, callback=_size, help="Disk of each host (sparse).")
@click.option("--share", multiple=True, metavar="DIR", help="Folder that hosts see read-only at the same path.")
@click.option("--images/--no-images", default=True, show_default=True, help="Build and push the engine images.")
def up(name: str | None, hosts: int, memory: int, disk: int, share: tuple[str, ...], images: bool) -> None:
    """Bring the lab up; nothing to do when it is."""
    from sparkop.lab import engines
    from sparkop.lab.lab import LabConfig, engine_shares
    from sparkop.lab.lab import up as bring_up

    shares = engine_shares(share) + (engines.shares() if images else ())
    config = LabConfig(hosts=hosts, memory_bytes=memory, disk_bytes=disk, shares=shares)
    running = bring_up(name, config, _say)
    if images:
        engines.provide(running, _say)
    _say(f"{running.name!r} is up: {', '.join(host.name + '.lab' for host in running.hosts)}")


@lab.command()
@name_option
def down(name: str | None) -> None:
    """Remove the lab and all that is left of it."""
    from sparkop.lab.lab import down as take_down

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


@lab.command()
@name_option
@click.argument("host")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def shell(name: str | None, host: str, command: tuple[str, ...]) -> None:
    """Open a root shell on HOST, or run COMMAND there."""
    from sparkop.lab.host import shell as become_shell
    from sparkop.lab.lab import Lab

    become_shell(Lab.load(name).host(host), command or ("bash", "-l"))


@lab.command()
@name_option
@click.option("-n", "lines", type=click.IntRange(1), default=50, show_default=True, help="Last lines of each.")
@click.argument("host", required=False)
@click.argument("service", required=False)
def logs(name: str | None, lines: int, host: str | None, service: str | None) -> None:
    """Show logs of HOST's services (console, sshd, dockerd, figures); without HOST, the lab's own."""
    from sparkop.lab.layout import LabPaths
    from sparkop.lab.report import tails

    paths = LabPaths.of(name)
    click.echo(tails(paths.host(host).logs if host else paths.logs, service, lines), nl=False)


@lab.command(context_settings={"ignore_unknown_options": True})
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
