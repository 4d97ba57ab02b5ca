"""Log lines of the ranks, one after the other, or side by side while they are followed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparkop.errors import BlockedError, SparkopError, UnreachableError, UsageError
from sparkop.hosts.base import ReadableHost
from sparkop.reconcile.observe import observe
from sparkop.resources.labels import ROLE_RANK, ours
from sparkop.resources.masking import mask
from sparkop.resources.observed import Observed
from sparkop.resources.registry import GROUP_RESOURCES
from sparkop.spec.models import ClusterSpec


@dataclass(frozen=True)
class LogLine:
    """One line of one rank, masked."""

    rank: int
    node: str
    text: str


@dataclass(frozen=True)
class _Source:
    rank: int
    node: str
    container: str


def rank_logs(
    spec: ClusterSpec,
    hosts: Mapping[str, ReadableHost],
    *,
    rank: int | None = None,
    tail: int = 40,
    follow: bool = False,
) -> Iterator[LogLine]:
    """The last ``tail`` lines of each rank; with ``follow`` new lines of all as they come.

    Raises UsageError for a rank that the spec has not, BlockedError when there is no container of it, and
    UnreachableError for an unknown node, after the lines of the others.
    """
    observed = observe(spec, hosts, canary=False, render=False, resources=GROUP_RESOURCES).observed
    sources = _sources(spec, observed, rank)
    if follow:
        yield from _side_by_side(hosts, sources, tail)
        return
    for source in sources:
        yield from _lines(hosts[source.node], source, tail, follow=False)
    if rank is None:
        for node, unknown in observed.unknown.items():
            raise UnreachableError(unknown.reason, node=node)


def _sources(spec: ClusterSpec, observed: Observed, rank: int | None) -> list[_Source]:
    found = [
        _Source(stamp.rank, node, container.name)
        for node, document in observed.documents.items()
        for container, stamp in ours(document, spec.name, ROLE_RANK)
        if rank in (None, stamp.rank)
    ]
    if not found:
        raise _no_rank(spec, observed, rank)
    return sorted(found, key=lambda source: source.rank)


def _no_rank(spec: ClusterSpec, observed: Observed, rank: int | None) -> SparkopError:
    numbers = [str(number) for number in range(len(spec.nodes))]
    if rank is not None and str(rank) not in numbers:
        return UsageError(
            f"there is no rank {rank}: the ranks are {', '.join(numbers)}",
            remedy=f"sparkop logs --rank {numbers[-1]}",
        )
    for node, unknown in observed.unknown.items():
        return UnreachableError(unknown.reason, node=node)
    return BlockedError(
        f"there is no container of rank {rank}" if rank is not None else "there is no rank container",
        cause="the cluster was stopped or never started, or the rank was removed",
        remedy="sparkop status",
    )


def _lines(host: ReadableHost, source: _Source, tail: int, *, follow: bool) -> Iterator[LogLine]:
    for text in host.log_lines(source.container, tail=tail, follow=follow):
        yield LogLine(source.rank, source.node, mask(text))


def _side_by_side(
    hosts: Mapping[str, ReadableHost], sources: Sequence[_Source], tail: int
) -> Iterator[LogLine]:
    arrived: queue.Queue[LogLine | SparkopError | None] = queue.Queue(maxsize=1000)

    def pump(source: _Source) -> None:
        try:
            for line in _lines(hosts[source.node], source, tail, follow=True):
                arrived.put(line)
            arrived.put(None)
        except SparkopError as error:
            arrived.put(error)

    for source in sources:
        threading.Thread(target=pump, args=(source,), daemon=True).start()
    left = len(sources)
    while left:
        item = arrived.get()
        if item is None:
            left -= 1
        elif isinstance(item, SparkopError):
            raise item
        else:
            yield item
