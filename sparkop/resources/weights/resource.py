# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""The checkpoint on every node: one node downloads it, the others copy it over the fabric, all is hashed.

What is verified is read from the node's ledger by stat alone (see node/transfer). The work itself is a job
that runs detached on the node; ``perform`` starts it, or finds it, and follows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from sparkop.errors import SparkopError
from sparkop.hosts.base import Json
from sparkop.hosts.document import Disk, Document, Weights
from sparkop.node.transfer.files import File
from sparkop.resources.base import Context, Difference, Resource
from sparkop.resources.compare import human_bytes, unread
from sparkop.resources.desired import Desired, DesiredNode
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Action, Blocker, Cause, Cost, Operation, Unknown
from sparkop.resources.weights import hub
from sparkop.resources.weights import sharing as weights_shared
from sparkop.resources.weights.files import (
    Checkpoint,
    downloader,
    probe_file,
    shown_directory,
    wanted_files,
)
from sparkop.resources.weights.job import run_job
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

KIND = "weights"
COPY_RATE = 400e6
"""Bytes a second of a copy over the fabric, for estimates: what ssh streams moved between two Sparks."""
NAMED = 3
"""Files named in a cause; the rest is counted."""


class WeightFiles(Resource):
    """Absent, wrong or unverified files: fetched, copied or hashed."""

    kind = KIND

    def __init__(self, rate: int = 0) -> None:
        self._rate = rate
        """Bytes a second that a download may take; 0: no limit."""

    def prepare(self, spec: ClusterSpec) -> Checkpoint:
        """The hub's list of the pinned revision, from the controller's memory where it can."""
        weights = spec.weights
        try:
            repository = hub.describe(
                weights.repository,
                weights.revision,
                endpoint=hub.endpoint_of(weights.endpoint),
                manifest=weights.manifest,
            )
            return Checkpoint(repository, wanted_files(repository, weights))
        except SparkopError as error:
            return Checkpoint(None, error=error)

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Json]:
        if not isinstance(outside, Checkpoint) or outside.revision is None:
            return {}
        directory = shown_directory(spec, node, outside.revision)
        files = [probe_file(file) for file in outside.on(node.name, spec).files]
        return {"weights": {"directory": directory, "files": files}, "disk": [directory]}

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        checkpoint = desired.outside.get(KIND)
        if not isinstance(checkpoint, Checkpoint) or checkpoint.repository is None:
            return _not_listed(desired, checkpoint)
        found: dict[str, Weights] = {}
        unknown: list[Unknown] = []
        for node in desired.nodes.values():
            document = observed.documents[node.name]
            if document.weights is None:
                unknown.append(unread(document, KIND, node.name, KIND))
            else:
                found[node.name] = document.weights
        plan = _Plan(desired, observed, checkpoint, found, self._rate)
        plan.make()
        return Difference(
            tuple(plan.operations),
            tuple(plan.blockers),
            tuple(unknown),
            (*_problems(desired, observed, found), *_not_put_together(checkpoint, found)),
        )

    def perform(self, operation: Operation, context: Context) -> None:
        run_job(operation, context.of(operation))


def _not_listed(desired: Desired, checkpoint: object) -> Difference:
    """Of nodes that were read: where all are silent, that is what is in the way, and no human's to mend."""
    if not desired.nodes:
        return Difference()
    error = checkpoint.error if isinstance(checkpoint, Checkpoint) else None
    weights = desired.spec.weights
    cause = Cause(
        "weights.repository", error.message if error else "not read", f"the files of {weights.repository}"
    )
    remedy = (error.remedy if error else None) or "try again"
    if error is not None and error.cause:
        remedy = f"{remedy} ({error.cause})"
    return Difference(blockers=(Blocker(desired.head, KIND, cause, remedy),))


def _problems(desired: Desired, observed: Observed, found: Mapping[str, Weights]) -> tuple[str, ...]:
    """What the last transfer of each complete node found wrong with the checkpoint as a whole."""
    told = []
    for name in desired.nodes:
        status = (observed.documents[name].state or {}).get("transfer.json")
        if name in found and found[name].complete and isinstance(status, Mapping):
            told += [f"{name}: weights: {problem}" for problem in status.get("problems") or ()]
    if desired.spec.weights.distribution == "shared":
        told += weights_shared.doubts(found)
    return tuple(told)


def _not_put_together(checkpoint: Checkpoint, found: Mapping[str, Weights]) -> Iterator[str]:
    """An engine only says that a shard is missing."""
    whole = {file.path for file in checkpoint.files if file.parts}
    for name, weights in found.items():
        for path in weights.missing:
            if weights.exists and path in whole and path in weights.flaws:
                yield (
                    f"{name}: weights: {path} is missing: {weights.flaws[path]}; sparkop apply (or sparkop "
                    "download) puts it together and verifies it"
                )


class _Plan:
    """Who fetches what from where. Filled by `make`."""

    def __init__(
        self,
        desired: Desired,
        observed: Observed,
        checkpoint: Checkpoint,
        found: Mapping[str, Weights],
        rate: int,
    ) -> None:
        self._desired = desired
        self._observed = observed
        self._checkpoint = checkpoint
        self._found = found
        self._rate = rate
        self.operations: list[Operation] = []
        self.blockers: list[Blocker] = []

    def make(self) -> None:
        """Plan every node that was read and is not complete, in the spec's order."""
        spec = self._desired.spec
        incomplete = [name for name, weights in self._found.items() if not weights.complete]
        if not incomplete:
            return
        if spec.weights.distribution == "direct":
            for name in incomplete:
                self._add(Action.DOWNLOAD, name)
            return
        source = self._source()
        if source is None:
            return
        held_up = source in incomplete and not self._add(Action.DOWNLOAD, source)
        fetched = source in incomplete and bytes_to_come(self._of(source).files, self._found[source]) > 0
        previous = source
        for name in incomplete:
            if name != source:
                if spec.weights.distribution == "shared":  # a download looks at all nodes itself
                    self._add(Action.RECORD, name, after=source, shared="" if fetched else source)
                    previous = name
                elif self._copy(name, previous):
                    previous = name
        if held_up:  # nothing comes to the others either; what would hold them up is told with it
            self._tell_waiting()
            self.operations.clear()

    def _tell_waiting(self) -> None:
        """The source's blocker, the first, names the nodes that get nothing because of it."""
        waiting = ", ".join(operation.node for operation in self.operations)
        if waiting:
            source = self.blockers[0]
            self.blockers[0] = replace(
                source, remedy=f"{source.remedy}; until then nothing comes to {waiting}"
            )

    def _source(self) -> str | None:
        """A node that has everything, else the one that downloads; None when that was not read."""
        first = downloader(self._desired.spec)
        complete = [name for name, weights in self._found.items() if weights.complete]
        alone = self._desired.spec.weights.distribution == "copy" and self._checkpoint.kept_parts
        if first in complete or not complete or alone:  # nobody else has the parts
            return first if first in self._found else None
        return complete[0]

    def _copy(self, name: str, source: str) -> bool:
        """False: the node can't take the files, and so can't hand them on."""
        for node in (source, name):
            facts = self._desired.nodes[node].facts
            if facts is None or facts.fabric is None:
                cause = Cause(
                    "weights.distribution", "no fabric address", f"a copy from {source} over the fabric"
                )
                self.blockers.append(
                    Blocker(node, KIND, cause, "mend the fabric, or set weights.distribution: direct")
                )
                return False
        return self._add(Action.COPY, name, source=source)

    def _add(
        self,
        action: Action,
        name: str,
        *,
        source: str | None = None,
        after: str | None = None,
        shared: str = "",
    ) -> bool:
        """Plan it; False when there is no room."""
        node, weights = self._desired.nodes[name], self._found[name]
        checkpoint = self._of(name)
        needed = bytes_to_come(checkpoint.files, weights)
        cause = Cause(KIND, state_of(weights, len(checkpoint.files)), _wanted(checkpoint))
        document = self._observed.documents[name]
        full = self._no_room(node, document, needed)
        if full is None and action is Action.DOWNLOAD:
            full = self._below_free_space(node, document, needed)
        if full is not None:
            self.blockers.append(full)
            return False
        seconds = needed / COPY_RATE if source else None  # how fast a hub is, shows on the way
        needs = [o.key for o in self.operations if after is not None and o.node == after]
        parameters: dict[str, Any] = {"from": source} if source else {}
        if shared:
            parameters["shared"] = shared
        if self._rate and action is Action.DOWNLOAD:
            parameters["rate"] = self._rate
        self.operations.append(
            Operation(
                action, name, KIND, cause, Cost(needed, seconds), needs=tuple(needs), parameters=parameters
            )
        )
        return True

    def _of(self, name: str) -> Checkpoint:
        return self._checkpoint.on(name, self._desired.spec)

    def _no_room(self, node: DesiredNode, document: Document, needed: int) -> Blocker | None:
        disk = self._disk(node, document)
        if disk is None or not needed:
            return None  # the node looks again before it starts
        needed -= _in_staging(document)
        inodes = 3 * len(self._of(node.name).files)
        if needed <= disk.free and not 0 < disk.inodes_free < inodes:
            return None
        short = f"{human_bytes(disk.free)} free" if needed > disk.free else f"{disk.inodes_free} inodes free"
        wanted = human_bytes(needed) if needed > disk.free else f"{inodes} inodes"
        return Blocker(
            node.name,
            KIND,
            Cause("disk", f"{short} at {disk.path}", f"{wanted} still to come"),
            f"make room on {node.name}, or set weights.path to a larger disk",
        )

    def _below_free_space(self, node: DesiredNode, document: Document, needed: int) -> Blocker | None:
        """Less room than the spec asks for; of a download that is half done, half of it."""
        whole, disk = self._desired.spec.weights.free_space, self._disk(node, document)
        if whole is None or disk is None or not needed:
            return None
        asked = whole * (needed - _in_staging(document)) // self._checkpoint.size
        if disk.free >= asked:
            return None
        return Blocker(
            node.name,
            KIND,
            Cause("disk", f"{human_bytes(disk.free)} free at {disk.path}", f"{human_bytes(asked)} free"),
            f"make room on {node.name}, set weights.path to a larger disk, or lower weights.freeSpace",
        )

    def _disk(self, node: DesiredNode, document: Document) -> Disk | None:
        spec = self._desired.spec
        place = shown_directory(spec, spec.nodes[node.index], self._checkpoint.revision or "")
        return (document.disk or {}).get(place)


def _wanted(checkpoint: Checkpoint) -> str:
    commit = (checkpoint.revision or "")[:12]
    return f"{len(checkpoint.files)} files, {human_bytes(checkpoint.size)}, of {commit}, verified"


def bytes_to_come(files: tuple[File, ...], weights: Weights) -> int:
    """Bytes of the files that are missing or wrong; those that only have to be hashed cost none."""
    absent = {*weights.missing, *weights.wrong}
    return sum(file.size for file in files if file.path in absent)


def _in_staging(document: Document) -> int:
    """Bytes of unfinished files that an earlier run has left."""
    status = (document.state or {}).get("transfer.json")
    if not isinstance(status, Mapping) or status.get("phase") == "done":
        return 0
    counted: Mapping[str, Any] = status.get("bytes") or {}
    return int(counted.get("staged", 0))


def state_of(weights: Weights, total: int) -> str:
    """``3 of 9 files verified; missing a, b and 2 more; wrong c (empty)``."""
    if not weights.exists:
        return "absent"
    parts = [f"{weights.verified} of {total} files verified"]
    for word, names in (
        ("missing", weights.missing),
        ("wrong", weights.wrong),
        ("unverified", weights.unverified),
    ):
        if names:
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            told = [f"{name} ({weights.flaws[name]})" if name in weights.flaws else name for name in names]
            parts.append(f"{word} {', '.join(told[:NAMED])}{more}")
    return "; ".join(parts)
