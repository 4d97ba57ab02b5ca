"""Recorded facts: what the nodes are, in a file. For rendering without the nodes, and for reports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparkop.engines.render import engine_of
from sparkop.errors import SparkopError, SpecError, UnreachableError
from sparkop.hosts.base import ReadableHost
from sparkop.hosts.document import Document, parse_document
from sparkop.reconcile.observe import probe_request
from sparkop.resources.base import Resource
from sparkop.resources.registry import RESOURCES
from sparkop.spec.models import ClusterSpec
from sparkop.threads import side_by_side

_SECTIONS = ("version", "nonce", "machine", "tools", "memory", "fabric", "disk", "docker", "gpu", "errors")
"""What is recorded: what a node is. Never what it keeps: state, file contents, weights."""


def load_facts(path: Path, names: Sequence[str]) -> Mapping[str, Document]:
    """The documents of the named nodes, in their order. Raises SpecError when the file does not hold them."""
    try:
        recorded: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SpecError(
            f"the facts in {path} can't be read: {error}", remedy="record them: sparkop facts"
        ) from error
    if not isinstance(recorded, dict):
        raise SpecError(
            f"the facts in {path} are no mapping of node names", remedy="record them: sparkop facts"
        )
    missing = [name for name in names if name not in recorded]
    if missing:
        raise SpecError(
            f"{path} holds no facts of {', '.join(missing)}",
            cause=f"it was recorded for {', '.join(recorded)}",
            remedy="name the spec's nodes so, or record facts of these nodes: sparkop facts",
        )
    return {name: _document(path, name, recorded[name]) for name in names}


def _document(path: Path, name: str, recorded: object) -> Document:
    """Raises SpecError with the place: the file is the user's, no node has failed."""
    try:
        return parse_document(recorded)
    except UnreachableError as error:
        raise SpecError(
            f"the facts in {path} can't be read: {name}: {error.cause}", remedy="record them: sparkop facts"
        ) from error


def record_facts(
    spec: ClusterSpec,
    hosts: Mapping[str, ReadableHost],
    *,
    gpu: bool = False,
    resources: Sequence[Resource] = RESOURCES,
) -> tuple[dict[str, Any], SparkopError | None]:
    """The raw documents of the nodes that answered, by name, and the first failure of the others.

    Holds no secret: it asks for no contents, keeps only the sections that say what a node is, and no
    container (their labels hold what users set).
    """
    optional = engine_of(spec).optional_files(spec)

    def read(name: str) -> dict[str, Any] | SparkopError:
        request = {**probe_request(spec, name, resources=resources), "gpu": gpu, "contents": []}
        try:
            document = hosts[name].probe(request)
        except SparkopError as error:
            return error
        return _kept(document, optional)

    names = [node.name for node in spec.nodes]
    answers = dict(zip(names, side_by_side(read, names, "facts"), strict=True))
    facts = {name: answer for name, answer in answers.items() if not isinstance(answer, SparkopError)}
    failure = next((answer for answer in answers.values() if isinstance(answer, SparkopError)), None)
    return facts, failure


def _kept(document: Mapping[str, Any], optional: Sequence[str]) -> dict[str, Any]:
    kept = {name: document[name] for name in _SECTIONS if name in document}
    if isinstance(kept.get("docker"), dict):
        kept["docker"] = {**kept["docker"], "containers": []}
    files = document.get("files")
    if isinstance(files, dict):  # a staged library changes what is rendered
        kept["files"] = {path: files[path] for path in optional if path in files}
    return kept
