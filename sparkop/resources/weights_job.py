"""One transfer job of a node: what it is told, how it is started or found again, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkop.errors import SparkopError, WaitInterruptedError
from sparkop.node.transfer.files import parse_job
from sparkop.resources import hub
from sparkop.resources.base import Context
from sparkop.resources.operations import Action, Operation
from sparkop.resources.weights_files import Checkpoint, job_file, job_place, search_places
from sparkop.resources.weights_follow import Status, follow, progress_text, read_status
from sparkop.resources.weights_program import call, failure
from sparkop.spec.nodes import NodeSpec

HUB_STREAMS = 8
PEER_STREAMS = 2
"""Over a trusted fabric: more gain nothing, the receiver's hash is the limit."""
SSH_STREAMS = 8
"""One ssh connection is one core of encryption on each side; a node with fewer cores uses fewer."""
SOURCE_SILENT = 10.0
"""Seconds without a byte after which the node that is copied from is looked at."""
RESTARTS = 5
"""Times that a process which vanished is started again within one operation."""


def run_job(operation: Operation, context: Context) -> None:
    """Carry out a DOWNLOAD, COPY or RECORD (hash only) of the weights.

    When the user asked to stop, the job is left running and SparkopError says so. Raises SparkopError.
    """
    node = operation.node
    state = context.desired.nodes[node].state
    request = {**_job(operation, context), **_sources(operation, context)}
    identity = parse_job(request).id
    _start(context, node, request, identity)
    restarts = iter(range(RESTARTS))

    def revive() -> bool:
        if call(context.host(node), context.fence(node), "status")["running"]:
            return True
        if next(restarts, None) is None:
            return False
        context.log("the transfer was gone; started again", node)
        _start(context, node, {**request, **_sources(operation, context)}, identity)
        return True

    watch = _SourceWatch(operation, context)

    def tell(status: Status) -> None:
        _tell(context, status)
        watch.look(status)

    status = follow(
        context.host(node),
        state,
        identity,
        clock=context.clock,
        stopped=context.stop.is_set,
        tell=tell,
        revive=revive,
    )
    for problem in status.get("problems") or ():
        context.log(str(problem), node)
    end_of(node, status)
    _tell(context, status)


class _SourceWatch:
    """Looks at the node that is copied from when nothing comes any more: it may be gone."""

    def __init__(self, operation: Operation, context: Context) -> None:
        self._source = str(operation.parameters.get("from") or "")
        self._context = context
        self._received = -1
        self._since = context.clock.monotonic()

    def look(self, status: Status) -> None:
        """Raises UnreachableError when the source does not answer."""
        received = int((status.get("bytes") or {}).get("received", 0))
        now = self._context.clock.monotonic()
        if received != self._received:
            self._received, self._since = received, now
        elif self._source and now - self._since > SOURCE_SILENT:
            read_status(self._context.host(self._source), self._context.desired.nodes[self._source].state)
            self._since = now


def _job(operation: Operation, context: Context) -> dict[str, Any]:
    spec = context.desired.spec
    node = _node_spec(context, operation.node)
    checkpoint = _checkpoint(context)
    assert checkpoint.repository is not None
    return {
        "kind": "verify" if operation.action is Action.RECORD else "fetch",
        **job_place(spec, node, checkpoint.repository),
        "files": [job_file(file) for file in checkpoint.files],
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
    if context.desired.spec.fabric.trusted:
        found = _plain_source(source, context)
    else:
        found = _ssh_source(source, operation.node, context)
    way = {"address": _fabric_address(source, context), "from": _fabric_address(operation.node, context)}
    return {**found, "sources": [{**each, **way} for each in found["sources"]]}


def _plain_source(source: str, context: Context) -> dict[str, Any]:
    """The source serves on its fabric address; a token of the moment is the key."""
    address = _fabric_address(source, context)
    shared = call(context.host(source), context.fence(source), "share", _share(source, context, address))
    host = f"[{address}]" if ":" in address else address
    return {
        "sources": [{"kind": "peer", "base": f"http://{host}:{shared['port']}/"}],
        "streams": PEER_STREAMS,
        "secrets": {"peer": shared["token"]},
    }


def _ssh_source(source: str, node: str, context: Context) -> dict[str, Any]:
    """The receiver reads the source's share over ssh, with a key of its own that can do nothing else."""
    call(context.host(source), context.fence(source), "share", _share(source, context, None))
    comment = key_comment(context.desired.spec.name, node)
    made = call(context.host(node), context.fence(node), "key", {"comment": comment})
    allowed = call(context.host(source), context.fence(source), "authorise", {"public": made["public"]})
    alias = f"sparkop-{source}"
    lines = [f"{alias} {key}" for key in allowed["host_keys"]]
    call(context.host(node), context.fence(node), "know", {"lines": lines})
    state = context.desired.nodes[node].state
    machine = context.observed.documents[source].machine
    assert machine is not None
    command = ssh_command(
        user=machine.user,
        address=_fabric_address(source, context),
        port=_ssh_port(_node_spec(context, source)),
        key=made["path"],
        known_hosts=f"{state}/transfer/known_hosts",
        alias=alias,
    )
    return {"sources": [{"kind": "ssh", "command": command}], "streams": SSH_STREAMS, "secrets": {}}


def ssh_command(*, user: str, address: str, port: int, key: str, known_hosts: str, alias: str) -> list[str]:
    """The receiver's ssh, by nothing but these settings. The answer is the key's forced command."""
    options = {
        "BatchMode": "yes",
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": f'"{known_hosts}"',
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "HostKeyAlias": alias,
        "Ciphers": "^aes128-gcm@openssh.com",
        "Compression": "no",
        "ConnectTimeout": "15",
        "ServerAliveInterval": "10",
        "ServerAliveCountMax": "3",
    }
    settings = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return ["ssh", "-F", "none", "-T", "-i", key, "-p", str(port), *settings, "-l", user, address, "pipe"]


def key_comment(cluster: str, node: str) -> str:
    """Marks the lines of authorized_keys that are ours."""
    return f"sparkop:{cluster}:{node}"


def release_pages(context: Context, node: str) -> None:
    """Drop the checkpoint's clean pages from the node's cache: on a Spark they take the model's memory.

    Nothing happens on a node where no transfer has run.
    """
    checkpoint = context.desired.outside.get("weights")
    if _has_transfers(context, node) and isinstance(checkpoint, Checkpoint) and checkpoint.repository:
        call(context.host(node), context.fence(node), "release", _share(node, context, None))


def withdraw(context: Context, node: str) -> None:
    """End the node's transfer, offer nothing more, and take back the keys that other nodes were given."""
    if _has_transfers(context, node):
        host, fence = context.host(node), context.fence(node)
        call(host, fence, "cancel")
        call(host, fence, "unshare")
        call(host, fence, "forbid", {"prefix": key_comment(context.desired.spec.name, "")})


def _has_transfers(context: Context, node: str) -> bool:
    return "transfer.json" in (context.observed.documents[node].state or {})


def _share(source: str, context: Context, address: str | None) -> dict[str, Any]:
    checkpoint = _checkpoint(context)
    assert checkpoint.repository is not None
    return {
        **job_place(context.desired.spec, _node_spec(context, source), checkpoint.repository),
        "files": [job_file(file) for file in checkpoint.files],
        "address": address,
    }


def _start(context: Context, node: str, request: Mapping[str, Any], identity: str) -> None:
    """Start the job, or find it at work. Another job of the same node gives way."""
    host, fence = context.host(node), context.fence(node)
    answer = call(host, fence, "start", request)
    if not answer["started"] and answer["id"] != identity:
        call(host, fence, "cancel")
        answer = call(host, fence, "start", request)
        if not answer["started"]:
            raise SparkopError(
                "another transfer does not give way", node=node, remedy="sparkop download --cancel"
            )


def _tell(context: Context, status: Status) -> None:
    done = status.get("bytes") or {}
    context.progress(
        progress_text(status),
        done=int(done.get("done", 0)),
        total=int(done.get("total", 0)),
        rate=float(status.get("rate", 0.0)),
    )


def end_of(node: str, status: Status) -> None:
    """Raise what a transfer's last status says, unless it is done."""
    phase = status.get("phase")
    if phase == "done":
        return
    if phase == "failed":
        raise failure(status.get("error") or {}, node)
    if phase == "cancelled":
        raise SparkopError("the transfer was cancelled", node=node, remedy="run the same command again")
    raise WaitInterruptedError(
        "stopped watching; the transfer goes on by itself on the node",
        node=node,
        remedy="sparkop download --follow shows it, sparkop download --cancel ends it",
    )


def _checkpoint(context: Context) -> Checkpoint:
    found = context.desired.outside["weights"]
    assert isinstance(found, Checkpoint)
    return found


def _node_spec(context: Context, name: str) -> NodeSpec:
    return next(node for node in context.desired.spec.nodes if node.name == name)


def _ssh_port(node: NodeSpec) -> int:
    remote = node.remote
    return remote.port if remote is not None and remote.port else 22


def _fabric_address(name: str, context: Context) -> str:
    facts = context.desired.nodes[name].facts
    assert facts is not None
    assert facts.fabric is not None  # `diff` plans no copy without it
    return facts.fabric.address
