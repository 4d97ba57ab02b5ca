"""The speeds that were measured last: kept in the head's state folder, shown by status, a bar for watch."""

from __future__ import annotations

import json
import statistics
import time
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any

from sparkop.engines.paths import state_directory
from sparkop.hosts.base import Host
from sparkop.hosts.document import Document, parse_document
from sparkop.reconcile.lease import hold, new_holder
from sparkop.records import dataclass
from sparkop.resources.base import RealClock
from sparkop.resources.events import Listener, ignore
from sparkop.serving.figures import MetricNames
from sparkop.spec.hashing import desired_hash, matches
from sparkop.spec.models import ClusterSpec

FILE = "bench.json"
"""In the head's state folder."""
FAR_BELOW = 0.5
"""Part of the measured rate under which serving is called slow."""


@dataclass(frozen=True)
class Speeds:
    """Medians in tokens a second. ``decode`` by ``kind/streams``, all streams together."""

    at: str
    """ISO 8601, with the zone of the machine that measured."""
    configuration: str
    prefill: Mapping[str, float] = field(default_factory=dict)
    decode: Mapping[str, float] = field(default_factory=dict)
    current: bool = True
    """The configuration that was measured is the one that is asked for now."""


def configuration(spec: ClusterSpec) -> str:
    """Hash of all that speed depends on."""
    return desired_hash(_measured_part(spec))


def _measured_part(spec: ClusterSpec) -> dict[str, Any]:
    return {
        "nodes": len(spec.nodes),
        "weights": [spec.weights.repository, spec.weights.revision],
        "image": spec.image,
        "engine": spec.engine,
        "memory": [spec.memory.kv_cache, spec.memory.gpu_fraction],
    }


def speeds_of(document: Mapping[str, Any]) -> Speeds:
    """The headline figures of a bench document."""
    decode: dict[str, list[float]] = {}
    for run in document["decode"]:
        if run.get("aggregate") is not None:
            decode.setdefault(f"{run['kind']}/{run['C']}", []).append(run["aggregate"])
    return Speeds(
        at=document["finished"] or document["ts"],
        configuration=document["configuration"],
        prefill={size: entry["median"] for size, entry in document["prefill"].items() if entry["runs"]},
        decode={name: round(statistics.median(rates), 3) for name, rates in decode.items()},
    )


def store(spec: ClusterSpec, hosts: Mapping[str, Host], speeds: Speeds, emit: Listener = ignore) -> None:
    """Write the figures on the head, under the lease (a watch yields for a moment).

    Raises LeaseHeldError, UnreachableError.
    """
    documents: dict[str, Document] = {}
    for node in spec.nodes:
        request = {"sections": ["state"], "cluster": spec.name, "state": state_directory(spec, node)}
        documents[node.name] = parse_document(hosts[node.name].probe(request), node=node.name)
    content = {"version": 1, **asdict(speeds)}
    del content["current"]
    text = json.dumps(content, indent=1, sort_keys=True) + "\n"
    with hold(
        spec, hosts, documents, command="bench", holder=new_holder(), clock=RealClock(), emit=emit
    ) as held:
        head = spec.head.name
        hosts[head].act(
            "file.write",
            {"path": FILE, "content": b64encode(text.encode()).decode(), "mode": 0o644},
            held.fences[head],
        )


def speeds_in(spec: ClusterSpec, document: Document | None) -> Speeds | None:
    """The figures in the head's document; None when there are none, or none that can be read."""
    found = (document.state or {}).get(FILE) if document is not None else None
    if not isinstance(found, dict):
        return None
    try:
        stamp = str(found["configuration"])
        return Speeds(
            at=str(found["at"]),
            configuration=stamp,
            prefill={str(k): float(v) for k, v in found["prefill"].items()},
            decode={str(k): float(v) for k, v in found["decode"].items()},
            current=matches(_measured_part(spec), stamp),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def slow(speeds: Speeds | None, streams: int, rate: float) -> str | None:
    """A warning when ``streams`` together get far less than was measured; for watch.

    ``rate``: tokens a second that came out, over a time in which the engine did nothing but decode for
    that many streams. None when it is fast enough, or nothing comparable was measured.
    """
    if speeds is None or not speeds.current:
        return None
    measured = [r for name, r in speeds.decode.items() if name.rpartition("/")[2] == str(streams)]
    if not measured or rate >= FAR_BELOW * min(measured):
        return None
    return (
        f"{rate:.1f} tok/s for {streams} at a time, {min(measured):.1f} were measured on {speeds.at[:10]}: "
        "look at clocks, cable and memory (sparkop doctor)"
    )


def metric_names(spec: ClusterSpec) -> MetricNames:
    """The engine's names for what bench reads."""
    from sparkop.engines.render import engine_of

    metrics = engine_of(spec).manners.metrics
    return MetricNames(
        running=metrics.running,
        waiting=metrics.waiting,
        kv_usage=metrics.kv_usage,
        accepted=metrics.accepted_tokens,
        drafted=metrics.draft_tokens,
        acceptance=metrics.acceptance,
    )


def now_text() -> str:
    """Now, as documents have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
