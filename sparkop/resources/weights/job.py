"""One transfer job of a checkpoint: what it is told. How a job is carried out is in transfer_job.py."""

from __future__ import annotations

from functools import partial
from typing import Any

from sparkop.resources.base import Context
from sparkop.resources.operations import Action, Operation
from sparkop.resources.peers import way
from sparkop.resources.transfer_job import carry_out
from sparkop.resources.transfer_program import call
from sparkop.resources.weights import hub
from sparkop.resources.weights import sharing as weights_shared
from sparkop.resources.weights.files import Checkpoint, job_file, job_place, search_places

HUB_STREAMS = 8


def run_job(operation: Operation, context: Context) -> None:
    """Carry out a DOWNLOAD, COPY or RECORD (hash only) of the weights.

    When the user asked to stop, the job is left running and SparkopError says so. Raises SparkopError.
    """
    _check_shared(operation, context)
    status = carry_out(
        context,
        operation.node,
        _job(operation, context),
        partial(_sources, operation, context),
        source=str(operation.parameters.get("from") or ""),
    )
    for problem in status.get("problems") or ():
        context.log(str(problem), operation.node)


def _check_shared(operation: Operation, context: Context) -> None:
    """Before bytes come or are counted on: the folder is one on all nodes, as the spec says. Where nothing is
    left but to hash, nothing is written: the folder may be mounted read-only."""
    if context.desired.spec.weights.distribution != "shared" or not operation.cost.bytes:
        return
    if operation.action is Action.DOWNLOAD:
        others = [name for name in context.desired.nodes if name != operation.node]
        weights_shared.check(context, operation.node, others)
    elif "shared" in operation.parameters:
        weights_shared.check(context, str(operation.parameters["shared"]), [operation.node])


def _job(operation: Operation, context: Context) -> dict[str, Any]:
    spec = context.desired.spec
    node = context.desired.spec.node(operation.node)
    checkpoint = _checkpoint(context)
    assert checkpoint.repository is not None
    return {
        "kind": "verify" if operation.action is Action.RECORD else "fetch",
        **job_place(spec, node, checkpoint.repository),
        "files": [job_file(file) for file in checkpoint.on(operation.node, spec).files],
        "search": search_places(spec, node),
        "keep_parts": spec.weights.keep_parts,
        "deep": bool(operation.parameters.get("deep", False)),
        "rate": int(operation.parameters.get("rate", 0)),
    }


def _sources(operation: Operation, context: Context) -> dict[str, Any]:
    """Sources and secrets of the job, and what they need on other nodes."""
    if operation.action is Action.RECORD:
        return {}
    if operation.action is Action.DOWNLOAD:
        repository = _checkpoint(context).repository
        assert repository is not None
        token = hub.token()
        return {
            "sources": [{"kind": "hub", "base": repository.base()}],
            "streams": HUB_STREAMS,
            "secrets": {"hub": token} if token else {},
        }
    source = str(operation.parameters["from"])
    return way(context, source, operation.node, _share(source, context))


def release_pages(context: Context, node: str) -> None:
    """Drop the checkpoint's clean pages from the node's cache: on a Spark they take the model's memory.

    Nothing happens on a node where no transfer has run.
    """
    checkpoint = context.desired.outside.get("weights")
    has_run = "transfer.json" in (context.observed.documents[node].state or {})
    if has_run and isinstance(checkpoint, Checkpoint) and checkpoint.repository:
        call(context.host(node), context.fence(node), "release", _share(node, context))


def _share(source: str, context: Context) -> dict[str, Any]:
    checkpoint = _checkpoint(context)
    assert checkpoint.repository is not None
    spec = context.desired.spec
    return {
        **job_place(spec, context.desired.spec.node(source), checkpoint.repository),
        "files": [job_file(file) for file in checkpoint.on(source, spec).files],
    }


def _checkpoint(context: Context) -> Checkpoint:
    found = context.desired.outside["weights"]
    assert isinstance(found, Checkpoint)
    return found
