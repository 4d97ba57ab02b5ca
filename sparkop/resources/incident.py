"""What is kept of a group before it is replaced: why, the states of all ranks, memory, the engine's counters.

Each rank's log is kept on its own node when its container is removed (``rank``). All of it is masked, for the
owner only, and bounded in size and number.
"""

from __future__ import annotations

import json
from typing import Any

from sparkop.hosts.base import ReadableHost
from sparkop.resources.acts import write_file
from sparkop.resources.base import Context
from sparkop.resources.group import not_running
from sparkop.resources.labels import ROLE_RANK, ours
from sparkop.resources.masking import ON_NODES, mask
from sparkop.resources.operations import Cause
from sparkop.serving.canary import Serving, read_metrics
from sparkop.spec.models import ApiSpec

METRICS_LIMIT = 256 << 10
"""Bytes of /metrics that are kept."""
METRICS_TIMEOUT = 5.0
LOG_LINES = 5000
LOG_BYTES = 4 << 20
"""Of a rank's log: its end."""
KEPT = 20
"""Groups whose evidence a node keeps."""
KEPT_BYTES = 100 << 20
"""Bytes of evidence that a node keeps; the last group's is kept whatever its size."""
STORY = 30
"""Entries of the history that go with it."""


def folder(epoch: int) -> str:
    """Where a group's evidence lies, below the state folder."""
    return f"incidents/epoch-{epoch}"


def keep_log(context: Context, node: str, name: str, *, rank: int, epoch: int) -> None:
    """The end of a rank's log, on its node; what is too old or too much makes room."""
    path = f"{folder(epoch)}/rank-{rank}.log"
    arguments = {"name": name, "path": path, "tail": LOG_LINES, "most": LOG_BYTES, **ON_NODES}
    context.host(node).act("container.logs.keep", arguments, context.fence(node))
    prune(context, node)


def prune(context: Context, node: str) -> None:
    """Remove the oldest evidence, so that a restart loop of months does not fill the disk."""
    limits = {"path": "incidents", "keep": KEPT, "most": KEPT_BYTES}
    context.host(node).act("directory.prune", limits, context.fence(node))


def keep(context: Context, cause: Cause, epoch: int) -> None:
    """Write ``group.json``, and ``metrics.txt`` when the API still gives them, on the head."""
    head = context.desired.head
    place = f"{context.desired.nodes[head].state}/{folder(epoch)}"
    told = mask(json.dumps(evidence(context, cause), indent=1, sort_keys=True))
    write_file(context, head, f"{place}/group.json", told.encode() + b"\n", mode=0o600)
    metrics = _metrics(context.host(head), context.desired.spec.api)
    if metrics:
        write_file(context, head, f"{place}/metrics.txt", metrics, mode=0o600)
    prune(context, head)


def evidence(context: Context, cause: Cause) -> dict[str, Any]:
    """The reading that the decision was made on, without anything that could be a secret."""
    observed = context.observed
    nodes: dict[str, Any] = {}
    for name, document in observed.documents.items():
        nodes[name] = {
            "boot_id": document.machine.boot_id if document.machine else None,
            "memory_available": document.memory.available if document.memory else None,
            "fabric": {
                device.name: {"state": device.state, "counters": dict(device.counters)}
                for device in (document.fabric.devices if document.fabric else ())
            },
            "ranks": [
                {
                    "name": container.name,
                    "rank": stamp.rank,
                    "state": container.state,
                    "exit_code": container.exit_code,
                    "oom_killed": container.oom_killed,
                    "started_at": container.started_at,
                    "finished_at": container.finished_at,
                }
                for container, stamp in ours(document, context.desired.spec.name, ROLE_RANK)
            ],
        }
    return {
        "version": 1,
        "at": observed.at,
        "cause": {"field": cause.field, "observed": cause.observed, "desired": cause.desired},
        "endpoint": _endpoint(context, cause),
        "nodes": nodes,
        "events": _story(context),
    }


def _endpoint(context: Context, cause: Cause) -> dict[str, str]:
    """What the API did; of a group that could not be asked, why."""
    state = context.observed.endpoint
    if state.serving is not Serving.NOT_ASKED:
        return {"serving": str(state.serving), "detail": state.detail}
    down = not_running(context.desired, context.observed)
    if down:
        return {"serving": "not serving", "detail": ", ".join(down)}
    return {"serving": str(state.serving), "detail": cause.told}


def _story(context: Context) -> list[Any]:
    """The last entries of the history, as the head has them."""
    document = context.observed.documents.get(context.desired.head)
    history = (document.state or {}).get("history.json") if document is not None else None
    found = history.get("entries") if isinstance(history, dict) else None
    return found[-STORY:] if isinstance(found, list) else []


def _metrics(head: ReadableHost, api: ApiSpec) -> bytes:
    try:
        found = read_metrics(head, api.port, api.own_address, METRICS_TIMEOUT)
    except OSError:
        return b""
    return (found or b"")[:METRICS_LIMIT]
