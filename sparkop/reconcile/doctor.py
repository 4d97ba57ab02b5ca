"""Every check on every node. Reads only, twice: addresses return a second after `netplan apply`, figures that
must not grow need two readings, and what to ping is known only after the first."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from sparkop.engines.common import preload_file
from sparkop.engines.render import engine_of
from sparkop.errors import ExitCode, SparkopError, UsageError
from sparkop.hosts.base import Json, ReadableHost
from sparkop.hosts.document import Document, parse_document
from sparkop.hosts.rails import Rail, joined, rails
from sparkop.hosts.ssh_options import ssh_words
from sparkop.hosts.way import broken
from sparkop.reconcile.nodes import target_of
from sparkop.reconcile.observe import probe_request
from sparkop.records import dataclass
from sparkop.resources.base import Resource
from sparkop.resources.checks import CHECKS
from sparkop.resources.checks.model import Check, Finding, Look, Nodes, State, findings, unknown
from sparkop.resources.checks.ways import SMALL, ping_name
from sparkop.resources.desired import Desired, desire
from sparkop.resources.registry import RESOURCES
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec
from sparkop.spec.suggest import nearest
from sparkop.threads import side_by_side

LOGIN = "ssh.batch"
"""The one check that speaks of nodes which were not read."""
SETTLE = 1.5
"""Seconds before the second reading when the first found the fabric wrong."""
LIMIT = 20.0
"""Seconds that a node gets for both readings: a staged NCCL library is hashed in the first."""
LEAST = 5.0
"""Seconds that it gets for the second, however slow the first was."""
_ASK_THE_HUB = {"weights", "hub", "parity"}
"""Checks that compare with the list of the checkpoint's files."""
_ORDER = (State.OK, State.UNKNOWN, State.WARN, State.FAIL)


@dataclass(frozen=True)
class Result:
    """One check on one node."""

    node: str
    check: str
    state: State
    findings: tuple[Finding, ...]
    """Those of the worst state first."""

    @property
    def evidence(self) -> str:
        """What was seen where it is ok."""
        return "; ".join(found.text for found in self.findings if found.state is State.OK)

    @property
    def complaints(self) -> tuple[Finding, ...]:
        """What is not ok."""
        return tuple(found for found in self.findings if found.state is not State.OK)


@dataclass(frozen=True)
class Report:
    """What doctor found."""

    cluster: str
    nodes: tuple[str, ...]
    results: tuple[Result, ...]
    unreachable: Mapping[str, str] = field(default_factory=dict)
    """Node -> why it was not read."""
    seconds: float = 0.0
    desired: Desired | None = None
    documents: Mapping[str, Document] = field(default_factory=dict)

    def rails(self, node: str) -> tuple[Rail, ...]:
        """The usable rails of a node that was read."""
        return rails(self.documents[node])

    def count(self, state: State) -> int:
        """Checks on nodes that ended so."""
        return sum(result.state is state for result in self.results)

    @property
    def exit_code(self) -> ExitCode:
        """4 when a node, or a part of one that reading failed for, is unknown and nothing failed; an
        unreachable node is 4 in any case: what follows from it is no fault of the others."""
        if self.unreachable:
            return ExitCode.UNREACHABLE
        if self.count(State.FAIL):
            return ExitCode.FAILED
        errors = (found.error for result in self.results for found in result.findings)
        return ExitCode.UNREACHABLE if any(errors) else ExitCode.OK


@dataclass(frozen=True)
class _Read:
    documents: dict[str, Document]
    windows: dict[str, tuple[float, float]]
    failed: dict[str, SparkopError]


def chosen_checks(only: Sequence[str]) -> tuple[Check, ...]:
    """The checks with these ids, or whose id begins with one of them and a dot; all when none is given.
    A word can be several with commas between.

    Raises UsageError for a word that fits none.
    """
    only = [word.strip() for words in only for word in words.split(",")]
    fitting = [[c for c in CHECKS if c.id == word or c.id.startswith(f"{word}.")] for word in only]
    ids = [check.id for check in CHECKS]
    groups = dict.fromkeys(name.partition(".")[0] for name in ids)
    for word, fits in zip(only, fitting, strict=True):
        if not fits:
            raise _no_such("check", word, [*ids, *groups], ids)
    return tuple(c for c in CHECKS if not only or any(c in fits for fits in fitting))


def chosen_nodes(spec: ClusterSpec, nodes: Sequence[str]) -> tuple[str, ...]:
    """Names of the nodes to tell of; all when none is given. Raises UsageError for a name that is none."""
    names = tuple(node.name for node in spec.nodes)
    for name in nodes:
        if name not in names:
            raise _no_such("node", name, names, names)
    return tuple(name for name in names if not nodes or name in nodes)


def _no_such(kind: str, word: str, near: Sequence[str], listed: Sequence[str]) -> UsageError:
    meant = nearest(word, near)
    one_of = f"one of: {', '.join(listed)}"
    return UsageError(f"there is no {kind} {word}", remedy=f"{meant} {one_of}" if meant else one_of)


def examine_nodes(
    spec: ClusterSpec,
    hosts: Mapping[str, ReadableHost],
    *,
    only: Sequence[str] = (),
    nodes: Sequence[str] = (),
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
    resources: Sequence[Resource] = RESOURCES,
) -> Report:
    """Read all nodes in parallel, twice, and check them. All are read even if only some are told of: most
    checks compare. Raises UsageError; never for a node."""
    began = time.monotonic()
    checks, names = chosen_checks(only), chosen_nodes(spec, nodes)
    outside = _outside(spec, checks, resources)
    asked = time.monotonic()
    first = _read_all(hosts, _requests(spec, checks, outside, resources), clock, LIMIT)
    desired = desire(spec, engine_of(spec), first.documents, outside)
    if _fabric_is_wrong(desired, first.documents):
        sleep(SETTLE)
    again = {name: _second_request(Nodes(first.documents), name) for name in first.documents}
    left = max(LEAST, LIMIT - (time.monotonic() - asked))
    second = _read_all(hosts, again, clock, left) if again else first
    documents = {
        name: _merged(document, second.documents[name])
        for name, document in first.documents.items()
        if name in second.documents
    }
    desired = desire(spec, engine_of(spec), documents, outside)
    report = _report(desired, documents, checks, names, earlier=first.documents, windows=first.windows)
    unread = {**first.failed, **second.failed}
    failed = {name: unread[name] for name in names if name in unread}
    return replace(
        report,
        results=(
            *(silent(node, failed[node.name]) for node in spec.nodes if node.name in failed),
            *report.results,
        ),
        unreachable={name: error.reason for name, error in failed.items()},
        seconds=time.monotonic() - began,
    )


def examine_facts(
    spec: ClusterSpec,
    documents: Mapping[str, Document],
    *,
    only: Sequence[str] = (),
    nodes: Sequence[str] = (),
) -> Report:
    """The same on recorded facts. What was not recorded is unknown. Raises UsageError."""
    desired = desire(spec, engine_of(spec), documents)
    return _report(desired, documents, chosen_checks(only), chosen_nodes(spec, nodes))


def _report(
    desired: Desired,
    documents: Mapping[str, Document],
    checks: Sequence[Check],
    names: Sequence[str],
    *,
    earlier: Mapping[str, Document] | None = None,
    windows: Mapping[str, tuple[float, float]] | None = None,
) -> Report:
    nodes = Nodes(documents)
    results = []
    for node in desired.spec.nodes:
        if node.name in documents and node.name in names:
            look = Look(desired, node, nodes, earlier or {}, windows or {})
            results += [made for check in checks if (made := result_of(check, look)) is not None]
    return Report(desired.spec.name, tuple(names), tuple(results), desired=desired, documents=dict(documents))


def result_of(check: Check, look: Look) -> Result | None:
    """None when the check does not apply to the node. A check that breaks leaves the others their say."""
    try:
        found = findings(check, look)
    except Exception as error:
        told = f"this check broke on what it read: {type(error).__name__}: {error}"
        found = [unknown(told, "sparkop facts records it: please report it with the file", error=True)]
    found = sorted(found, key=lambda each: -_ORDER.index(each.state))
    if not found:
        return None
    return Result(look.name, check.id, found[0].state, tuple(found))


def _outside(spec: ClusterSpec, checks: Sequence[Check], resources: Sequence[Resource]) -> dict[str, Any]:
    """What lies outside the nodes, where a check needs it: the hub is not asked for a look at the MTU."""
    if not _ASK_THE_HUB & {check.id for check in checks}:
        return {}
    return {resource.kind: resource.prepare(spec) for resource in resources}


def _requests(
    spec: ClusterSpec, checks: Sequence[Check], outside: Mapping[str, Any], resources: Sequence[Resource]
) -> dict[str, dict[str, Json]]:
    sections = {section.partition(".")[0] for check in checks for section in check.sections}
    library = preload_file(spec.engine.nccl)
    staged = [library] if library and any(check.id == "nccl.preload" for check in checks) else []
    more = {
        "contents": [],
        "gpu": "gpu" in sections and spec.engine.container.gpus,
        "health": "health" in sections,
        "engine": "docker" in sections,
        "libraries": staged,
    }
    return {node.name: {**probe_request(spec, node.name, outside, resources), **more} for node in spec.nodes}


def _second_request(nodes: Nodes, name: str) -> dict[str, Json]:
    """The fabric again, with routes and pings to the other ends of its rails."""
    pings: list[dict[str, Json]] = []
    for peer in nodes.documents:
        for own, other in joined(nodes.rails[name], nodes.rails[peer]) if peer != name else ():
            for size in (SMALL, own.mtu):
                pings.append(
                    {
                        "name": ping_name(other.address, size),
                        "address": other.address,
                        "source": own.address,
                        "bytes": size,
                    }
                )
    peers = list(dict.fromkeys(ping["address"] for ping in pings))
    return {"sections": ["fabric", "pings"], "peers": peers, "pings": pings}


def _merged(document: Document, second: Document) -> Document:
    if second.fabric is None:
        return replace(document, errors={**document.errors, **second.errors})
    return replace(
        document,
        fabric=second.fabric,
        pings=second.pings,
        errors={**document.errors, **second.errors},
    )


def _fabric_is_wrong(desired: Desired, documents: Mapping[str, Document]) -> bool:
    checks = chosen_checks(("fabric", "rdma"))
    return any(
        result.state is State.FAIL for result in _report(desired, documents, checks, tuple(documents)).results
    )


def _read_all(
    hosts: Mapping[str, ReadableHost],
    requests: Mapping[str, Mapping[str, Json]],
    clock: Callable[[], float],
    timeout: float,
) -> _Read:
    read = _Read({}, {}, {})

    def one(name: str) -> None:
        try:
            began = clock()
            raw = dict(hosts[name].probe(requests[name], timeout=timeout))
            read.windows[name] = (began, clock())
            raw.pop("contents", None)
            read.documents[name] = parse_document(raw, node=name)
        except SparkopError as error:
            read.failed[name] = error
        except (OSError, ValueError) as error:
            read.failed[name] = broken(error, name)

    side_by_side(one, requests, "doctor")
    in_order = {name: read.documents[name] for name in requests if name in read.documents}
    return _Read(in_order, read.windows, read.failed)


def silent(node: NodeSpec, error: SparkopError) -> Result:
    """What is told of a node that was not read: its login is unknown, for this reason."""
    target = target_of(node)
    try_it = "" if target.local else f"{shlex.join([*ssh_words(target), 'true'])}  # tells more"
    found = unknown(error.reason, error.remedy or try_it, error=True)
    return Result(node.name, LOGIN, State.UNKNOWN, (found,))
