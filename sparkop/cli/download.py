"""``sparkop download``: the weights alone, or a look at a download that already runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkop.cli.options import reach_spec, spec_options
from sparkop.errors import ExitCode, UsageError

if TYPE_CHECKING:
    import threading

    from sparkop.hosts.base import Host
    from sparkop.resources.events import Listener
    from sparkop.spec.models import ClusterSpec


@click.command("download")
@spec_options
@click.option("--follow", is_flag=True, help="Start nothing: show the transfers that run, until they end.")
@click.option("--cancel", is_flag=True, help="End the transfers that run. What they have fetched is kept.")
@click.option(
    "--deep", is_flag=True, help="Hash every file again instead of trusting the ledger; mend what is bad."
)
@click.option("--rate", metavar="SIZE", help="Most bytes a second of the download, for example 20MB.")
@click.option("--update", is_flag=True, help="Ask the hub again: which commit the branch is, and its files.")
def command(
    spec: str | None,
    overlays: tuple[Path, ...],
    sets: tuple[str, ...],
    follow: bool,
    cancel: bool,
    deep: bool,
    rate: str | None,
    update: bool,
) -> int:
    """Fetch, verify and copy the weights, or find a download that runs.

    The work runs on the nodes: Ctrl-C and a lost connection leave it going, and the same command finds it
    again.
    Exit codes: 0 complete, 3 the hub or another node gave no bytes for too long, 4 a node could not be read,
    5 another sparkop writes, 6 failed or blocked.
    """
    from sparkop.cli.interrupts import FINISHES, STOPS_WATCHING, stop_on_interrupt
    from sparkop.reconcile.nodes import writable_nodes
    from sparkop.views.progress import logged_progress

    if follow and cancel:
        raise UsageError("--follow and --cancel exclude each other")
    loaded, _ = reach_spec(spec, overlays, sets)
    if update:
        _update(loaded.spec)
    with (
        stop_on_interrupt(FINISHES if cancel else STOPS_WATCHING) as stop,
        writable_nodes(loaded.spec) as hosts,
        logged_progress(loaded.spec.name) as emit,
    ):
        if cancel:
            _cancel(loaded.spec, hosts, emit, stop)
        elif follow:
            _follow(loaded.spec, hosts, emit, stop)
        else:
            _download(loaded.spec, hosts, emit, stop, deep=deep, rate=_bytes(rate))
    return ExitCode.OK


def _bytes(rate: str | None) -> int:
    from sparkop.spec.quantities import ByteSize

    if rate is None:
        return 0
    try:
        return int(ByteSize.parse(rate))
    except ValueError as error:
        raise UsageError(f"--rate {rate}: {error}") from None


def _update(spec: ClusterSpec) -> None:
    from sparkop.resources.compare import counted
    from sparkop.resources.weights.hub import describe, endpoint_of
    from sparkop.spec.text import is_commit

    weights = spec.weights
    endpoint = endpoint_of(weights.endpoint)
    found = describe(
        weights.repository, weights.revision, endpoint=endpoint, manifest=weights.manifest, refresh=True
    )
    told = f"is {found.commit}"
    if is_commit(weights.revision):
        told = f"is a full commit and can't change; the hub lists {counted(len(found.files), 'file')} of it"
    click.echo(f"{weights.repository} {weights.revision} {told}", err=True)


def _download(
    spec: ClusterSpec,
    hosts: Mapping[str, Host],
    emit: Listener,
    stop: threading.Event,
    *,
    deep: bool,
    rate: int,
) -> None:
    from sparkop.reconcile.converge import converge
    from sparkop.reconcile.transfers import verify_all
    from sparkop.resources.weights.resource import WeightFiles

    if deep:
        verify_all(spec, hosts, emit=emit, stop=stop)
    done = converge(spec, hosts, emit=emit, stop=stop, command="download", resources=(WeightFiles(rate),))
    if not done.interrupted:
        click.echo(f"{spec.weights.repository}: complete and verified on every node")


def _follow(spec: ClusterSpec, hosts: Mapping[str, Host], emit: Listener, stop: threading.Event) -> None:
    from sparkop.reconcile.transfers import follow_all

    if not follow_all(spec, hosts, emit=emit, stop=stop):
        click.echo("no transfer runs on any node")


def _cancel(spec: ClusterSpec, hosts: Mapping[str, Host], emit: Listener, stop: threading.Event) -> None:
    from sparkop.reconcile.transfers import cancel_all

    ended = cancel_all(spec, hosts, emit=emit, stop=stop)
    click.echo(f"ended on {', '.join(ended)}" if ended else "no transfer runs on any node")
