"""What a budget is made from: the shipped numbers, the nodes' copies, or the hub's headers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from sparkop.engines import paths
from sparkop.engines.budget.checkpoint import (
    Checkpoint,
    TensorGroup,
    known,
    read_checkpoint,
    summarise,
)
from sparkop.engines.budget.machine import NodeMemory
from sparkop.errors import BlockedError, SparkopError, SpecError, UnreachableError
from sparkop.hosts.base import ReadableHost
from sparkop.hosts.document import Document, parse_document
from sparkop.reconcile.nodes import readable_nodes
from sparkop.records import dataclass
from sparkop.resources.labels import CLUSTER, ROLE_RANK, ours
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec
from sparkop.spec.text import is_commit
from sparkop.threads import side_by_side

SECONDS = 120.0
"""For a node to read the headers of its checkpoint: hundreds of thousands of tensors take some."""


@dataclass(frozen=True)
class Sources:
    """The checkpoint, and the memory of the nodes that were read."""

    checkpoint: Checkpoint
    memory: dict[str, NodeMemory] = field(default_factory=dict)


def sources(spec: ClusterSpec, origin: str) -> Sources:
    """``origin``: known, nodes or hub.

    Raises SpecError when nothing is known of the model, UnreachableError for a silent node, BlockedError when
    the hub or a checkpoint can't be read.
    """
    name = spec.weights.repository
    if origin == "nodes":
        with readable_nodes(spec) as hosts:
            return read_nodes(spec, hosts)
    if origin == "hub":
        from sparkop.resources.weights.hub import endpoint_of
        from sparkop.resources.weights.hub_headers import read_hub

        config, headers = read_hub(name, spec.weights.revision, endpoint_of(spec.weights.endpoint))
        return Sources(_checkpoint(name, config, summarise(headers), "headers on the hub"))
    shipped = known(name)
    if shipped is None:
        raise SpecError(
            f"sparkop ships no numbers of {name}",
            remedy="read them: sparkop budget --from nodes, or --from hub",
        )
    return Sources(shipped)


def read_nodes(spec: ClusterSpec, hosts: Mapping[str, ReadableHost]) -> Sources:
    """Memory of every node, and the headers of the first node that has the checkpoint, head first."""

    def one(node: NodeSpec) -> Mapping[str, Any]:
        host = hosts[node.name]
        return host.probe(
            {
                "sections": ["memory", "docker", "headers"],
                "labels": [f"{CLUSTER}={spec.name}"],
                "headers": checkpoint_directory(spec, node, host),
            },
            timeout=SECONDS,
        )

    answers = side_by_side(one, spec.nodes, "headers")
    raw = {node.name: answer for node, answer in zip(spec.nodes, answers, strict=True)}
    memory = {name: _memory(spec, parse_document(answer, node=name)) for name, answer in raw.items()}
    for name, answer in raw.items():
        found = answer.get("headers")
        if found and found["config"] is not None:
            groups = [TensorGroup(*group) for group in found["groups"]]
            where = f"headers of {found['files']} files on {name}"
            return Sources(_checkpoint(spec.weights.repository, found["config"], groups, where), memory)
    shipped = known(spec.weights.repository)
    if shipped is not None:
        return Sources(shipped, memory)
    head = spec.head.name
    reason = parse_document(raw[head], node=head).error("headers")
    raise BlockedError(
        f"no node has a checkpoint of {spec.weights.repository} with a config.json",
        node=head,
        cause=reason,
        remedy="download the weights first (sparkop download), or ask the hub: --from hub",
    )


def at_hand(
    spec: ClusterSpec, head: ReadableHost, on_hub: Mapping[str, Any] | None = None
) -> Checkpoint | None:
    """The shipped numbers, else the configuration that lies on the head (no headers are read: it takes one
    small file), else the one ``on_hub``; None when there is none of them."""
    shipped = known(spec.weights.repository)
    if shipped is not None:
        return shipped
    try:
        content = head.read_file(f"{checkpoint_directory(spec, spec.head, head)}/config.json")
        config, where = json.loads(content or b""), "the head's config.json"
    except (SparkopError, OSError, ValueError):
        config, where = on_hub, "the hub's config.json"
    try:
        return read_checkpoint(spec.weights.repository, config or {}, (), where)
    except ValueError:
        return None


def _checkpoint(
    name: str, config: Mapping[str, Any], tensors: list[TensorGroup] | tuple[TensorGroup, ...], where: str
) -> Checkpoint:
    try:
        return read_checkpoint(name, config, tensors, where)
    except ValueError as error:
        shipped = known(name)
        if shipped is not None:
            return shipped
        raise BlockedError(
            f"the budget can't read the configuration of {name}",
            cause=str(error),
            remedy="report it with the model's config.json",
        ) from None


def checkpoint_directory(spec: ClusterSpec, node: NodeSpec, host: ReadableHost) -> str:
    """The checkpoint's folder on the node; of a hub cache the snapshot of the spec's revision."""
    folder = paths.weights_directory(spec, node)
    if not spec.weights.hub_cache:
        return folder
    revision = spec.weights.revision
    if not is_commit(revision):
        snapshots = paths.snapshot(spec, "")
        named = host.read_file(f"{folder}/{snapshots.replace('snapshots/', 'refs/')}{revision}")
        revision = named.decode("ascii", "replace").strip() if named else revision
    return f"{folder}/{paths.snapshot(spec, revision)}"


def _memory(spec: ClusterSpec, document: Document) -> NodeMemory:
    if document.memory is None:
        raise UnreachableError("its memory could not be read", cause=document.error("memory"))
    idle = document.docker is not None and not any(
        container.running for container, _ in ours(document, spec.name, ROLE_RANK)
    )
    figures = document.memory
    return NodeMemory(figures.total, figures.available if idle else None, figures.cached + figures.buffers)
