"""Log lines of the ranks, one after the other, or side by side while they are followed.

A container that is there tells its own; of one that is gone, its node has kept them (``rank_logs``).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence

from sparkop.errors import BlockedError, SparkopError, UnreachableError, UsageError
from sparkop.hosts import silent_docker
from sparkop.hosts.base import ReadableHost
from sparkop.reconcile.observe import Reading, observe
from sparkop.records import dataclass
from sparkop.resources.labels import ROLE_RANK, ours
from sparkop.resources.masking import mask
from sparkop.resources.rank_logs import log_file
from sparkop.resources.registry import GROUP_RESOURCES
from sparkop.serving.token_zero import harmless
from sparkop.spec.engines import SglangEngine
from sparkop.spec.models import ClusterSpec

STILL_THERE = 10.0
"""Seconds that a node gets to answer when a log that is followed has ended."""
NOTED = 2000
"""Lines of each log in which warnings that mean nothing are looked for."""


@dataclass(frozen=True)
class LogLine:
    """One line of one rank, masked. ``kept``: the file that it comes from, when its container is gone."""

    rank: int
    node: str
    text: str
    kept: str = ""


@dataclass(frozen=True)
class _Source:
    rank: int
    node: str
    container: str = ""
    file: str = ""
    """Instead of a container."""


def rank_logs(
    spec: ClusterSpec,
    hosts: Mapping[str, ReadableHost],
    *,
    rank: int | None = None,
    tail: int = 40,
    follow: bool = False,
) -> Iterator[LogLine]:
    """The last ``tail`` lines of each rank; with ``follow`` new lines of all as they come.

    Raises UsageError for a rank that the spec has not, BlockedError when there is no log of it, and
    UnreachableError for a node that could not be read, after the lines of the others.
    """
    reading = observe(spec, hosts, canary=False, render=False, resources=GROUP_RESOURCES)
    sources = _sources(reading, rank)
    if not sources and rank is not None and rank >= len(spec.nodes):
        raise _no_such_rank(spec, rank)
    live = [source for source in sources if source.container]
    told = False
    for source in sources:
        host = hosts[source.node]
        if source.file:
            for line in _kept(host, source, tail):
                told = True
                yield line
        elif not follow:
            yield from _lines(host, source, tail, follow=False)
    if follow and live:
        yield from _side_by_side(hosts, live, tail)
    unread = _unread(reading, rank)
    if unread is not None:
        raise unread
    if not told and not live:
        raise BlockedError(
            f"there is no log of rank {rank}" if rank is not None else "there is no log of any rank",
            cause="the cluster was never started from here, or it was destroyed",
            remedy="sparkop status",
        )


def _sources(reading: Reading, rank: int | None) -> list[_Source]:
    """The containers that there are; for ranks without one, the file on their node."""
    spec, documents = reading.desired.spec, reading.observed.documents
    found = [
        _Source(stamp.rank, node, container.name)
        for node, document in documents.items()
        for container, stamp in ours(document, spec.name, ROLE_RANK)
    ]
    have = {source.rank for source in found}
    for index, node in enumerate(spec.nodes):
        document = documents.get(node.name)
        if document is not None and document.docker is not None and index not in have:
            found.append(
                _Source(index, node.name, file=f"{reading.desired.nodes[node.name].state}/{log_file(index)}")
            )
    wanted = [source for source in found if rank in (None, source.rank)]
    return sorted(wanted, key=lambda source: source.rank)


def _no_such_rank(spec: ClusterSpec, rank: int) -> UsageError:
    numbers = [str(number) for number in range(len(spec.nodes))]
    return UsageError(
        f"there is no rank {rank}: the ranks are {', '.join(numbers)}",
        remedy=f"sparkop logs --rank {numbers[-1]}",
    )


def _unread(reading: Reading, rank: int | None) -> UnreachableError | None:
    """A node whose rank was asked for and that could not be read."""
    for index, node in enumerate(reading.desired.spec.nodes):
        if rank not in (None, index):
            continue
        if node.name in reading.observed.unknown:
            unknown = reading.observed.unknown[node.name]
            return UnreachableError(unknown.reason, node=node.name, remedy=unknown.remedy)
        document = reading.observed.documents[node.name]
        if document.docker is None:
            told, remedy = silent_docker.why(document), silent_docker.remedy(document)
            return UnreachableError(told, node=node.name, remedy=remedy)
    return None


def _lines(host: ReadableHost, source: _Source, tail: int, *, follow: bool) -> Iterator[LogLine]:
    for text in host.log_lines(source.container, tail=tail, follow=follow):
        yield LogLine(source.rank, source.node, mask(text))


def _kept(host: ReadableHost, source: _Source, tail: int) -> Iterator[LogLine]:
    """The last lines of a file and, where it is short, of the one before it. Empty when there is none."""
    lines: list[bytes] = []
    for path in (source.file, f"{source.file}.1"):
        content = host.read_file(path) if len(lines) < tail else None
        lines = [*content.splitlines(), *lines] if content else lines
    for line in lines[max(0, len(lines) - tail) :]:
        yield LogLine(source.rank, source.node, mask(line.decode("utf-8", "replace")), source.file)


def _side_by_side(
    hosts: Mapping[str, ReadableHost], sources: Sequence[_Source], tail: int
) -> Iterator[LogLine]:
    arrived: queue.Queue[LogLine | SparkopError | None] = queue.Queue(maxsize=1000)

    def pump(source: _Source) -> None:
        try:
            for line in _lines(hosts[source.node], source, tail, follow=True):
                arrived.put(line)
            # Docker's SDK takes a lost connection for the end of the log.
            hosts[source.node].probe({"sections": []}, timeout=STILL_THERE)
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


def harmless_lines(reading: Reading, hosts: Mapping[str, ReadableHost]) -> tuple[str, ...]:
    """What stands in the ranks' logs, looks like a fault and is none. Only of an engine that writes such."""
    if not isinstance(reading.desired.spec.engine, SglangEngine):
        return ()
    live = [source for source in _sources(reading, None) if source.container]
    notes = (harmless_note(hosts[source.node], source.container) for source in live)
    return tuple(dict.fromkeys(note for note in notes if note))


def harmless_note(host: ReadableHost, container: str) -> str:
    """The same of one container; empty when there is nothing, or its log can't be read."""
    try:
        return harmless(host.log_lines(container, tail=NOTED))
    except (SparkopError, OSError):
        return ""
