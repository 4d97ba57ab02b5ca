"""Read every node, in parallel, and make what is desired of what was read."""

from __future__ import annotations

import threading
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sparkop.engines.common import has_key
from sparkop.engines.paths import ENGINE_FILE, key_path, state_directory
from sparkop.engines.render import engine_of
from sparkop.errors import SparkopError
from sparkop.hosts.base import Json, ReadableHost
from sparkop.hosts.document import Document, parse_document
from sparkop.hosts.way import broken
from sparkop.reconcile.history import history_of
from sparkop.reconcile.patience import patiently
from sparkop.records import dataclass
from sparkop.resources import lost_gpu
from sparkop.resources.base import Clock, RealClock, Resource
from sparkop.resources.compare import with_verb
from sparkop.resources.desired import Desired, desire
from sparkop.resources.endpoint import look_at
from sparkop.resources.events import Listener, ignore
from sparkop.resources.group import elsewhere, examine, found_ranks
from sparkop.resources.kept import lost
from sparkop.resources.observed import History, KeyState, Observed
from sparkop.resources.operations import Unknown
from sparkop.resources.registry import RESOURCES
from sparkop.serving.canary import EndpointState, Serving
from sparkop.spec.models import ClusterSpec
from sparkop.threads import Later, side_by_side

DEEP_TIMEOUT = 4 * 3600.0
"""Seconds that a node gets to hash its weights; 470 GB take 47 to 94 s of a Spark's own disk."""


SETTLE = 1.5
"""Seconds before rails that a running group has lost are looked at again."""


STALE = 5.0
"""Seconds that the API may take for its tokens until the nodes, read before, are read again."""


@dataclass(frozen=True)
class Reading:
    """One observation, with what is desired for it."""

    desired: Desired
    observed: Observed
    history: History


def observe(
    spec: ClusterSpec,
    hosts: Mapping[str, ReadableHost],
    *,
    canary: bool = True,
    render: bool = True,
    deep: bool = False,
    timeout: float = 30.0,
    agreed: frozenset[str] = frozenset(),
    clock: Clock | None = None,
    resources: Sequence[Resource] = RESOURCES,
    emit: Listener = ignore,
    stop: threading.Event | None = None,
    believed: EndpointState | None = None,
    brief: bool = False,
) -> Reading:
    """One probe a node, all at once; with ``canary`` also a tiny generation, and whether the ranks have
    their GPUs, when a rank runs on the head. Without good tokens, or when they took long, the nodes are read
    once more: a rank may have died meanwhile, and what is told is what holds now.

    Never raises for a node: what does not answer, or answers something that can't be believed, is in
    ``observed.unknown``. Can't write: hosts are taken as ReadableHost. ``deep``: weights are hashed again
    instead of being believed by the ledger. Without ``render`` no rank is made of the spec, so that a spec
    which the engine refuses can be stopped and its logs read. ``agreed``: see ``History.agreed``.
    ``timeout`` in seconds. What takes long is told to ``emit``. ``believed``: of the API, a moment
    ago (``serving.canary.look``). ``brief``: nothing is done by what is found, and somebody waits for it
    (``serving.canary.glance``).
    Raises SpecError for what the engine refuses, WaitInterruptedError at once when ``stop`` is set.
    """
    clock = clock or RealClock()
    outside = {resource.kind: resource.prepare(spec) for resource in resources}
    requests = {node.name: probe_request(spec, node.name, outside, resources) for node in spec.nodes}
    if deep:
        timeout = max(timeout, DEEP_TIMEOUT)
        for request in requests.values():
            request["deep"] = True
    read = partial(
        _read,
        spec,
        hosts,
        outside=outside,
        render=render,
        timeout=timeout,
        agreed=agreed,
        clock=clock,
        emit=emit,
        stop=stop,
    )
    reading, key = read(requests)
    if not canary or not worth_asking(reading.desired, reading.observed, reading.history):
        return reading
    began = clock.monotonic()
    head, ranks = hosts[spec.head.name], found_ranks(reading.desired, reading.observed)
    asked = Later(lambda: lost_gpu.loss_in(ranks, lost_gpu.ask(hosts, ranks)), "gpus")
    endpoint = patiently(
        lambda: look_at(reading.desired, head, key, clock, believed, brief=brief),
        lambda: "the API has given no token",
        emit,
        stop,
    )
    loss = asked.result()
    if loss is not None and loss.certain:
        endpoint = EndpointState(Serving.GPU_LOST, loss.text)
    told = replace(reading, observed=replace(reading.observed, endpoint=endpoint, loss=loss))
    if endpoint.serving is Serving.READY and clock.monotonic() - began <= STALE:
        return told
    again, _ = read({name: {**request, "deep": False} for name, request in requests.items()})
    return _of_now(told, again, deep=deep)


def _of_now(told: Reading, again: Reading, *, deep: bool) -> Reading:
    """The nodes as they are now, with the weights that were hashed before, and with what the API said when
    there is still a group to ask. Ranks that were started meanwhile are yet to give tokens."""
    before, documents = told.observed, dict(again.observed.documents)
    for name in documents if deep else ():
        documents[name] = replace(documents[name], weights=before.documents[name].weights)
    observed = replace(again.observed, documents=documents)
    if not worth_asking(again.desired, observed, again.history):
        return replace(again, observed=observed)
    if _running(again) == _running(told):
        return replace(again, observed=replace(observed, endpoint=before.endpoint, loss=before.loss))
    endpoint = EndpointState(Serving.LOADING, "the ranks were started while it was asked")
    return replace(again, observed=replace(observed, endpoint=endpoint))


def _running(reading: Reading) -> set[tuple[str, str, str | None]]:
    """The ranks that run, each start of each by itself."""
    found = found_ranks(reading.desired, reading.observed)
    return {(f.node, f.container.id, f.container.started_at) for f in found if f.container.running}


def _read(
    spec: ClusterSpec,
    hosts: Mapping[str, ReadableHost],
    requests: Mapping[str, Mapping[str, Json]],
    *,
    outside: Mapping[str, Any],
    render: bool,
    timeout: float,
    agreed: frozenset[str],
    clock: Clock,
    emit: Listener,
    stop: threading.Event | None,
) -> tuple[Reading, str | None]:
    """One probe a node, and the API key, which is kept nowhere."""
    read: dict[str, tuple[Document, dict[str, bytes]] | Unknown] = {}

    def probe(name: str) -> None:
        read[name] = _probe(hosts[name], name, requests[name], timeout)

    patiently(
        lambda: side_by_side(probe, requests, "probe"),
        lambda: with_verb([n for n in requests if n not in read], "has not answered", "have not answered"),
        emit,
        stop,
    )
    answers = {name: read[name] for name in requests}  # the spec's order, whichever answered first
    documents = {name: answer[0] for name, answer in answers.items() if isinstance(answer, tuple)}
    unknown = {name: answer for name, answer in answers.items() if isinstance(answer, Unknown)}
    if render and not unknown and len(spec.nodes) > 1 and lost(spec, documents):
        clock.sleep(SETTLE)
        documents = _with_fabric_again(documents, hosts, timeout)
    desired = desire(spec, engine_of(spec), documents, outside, render=render)
    contents = {name: dict(answer[1]) for name, answer in answers.items() if isinstance(answer, tuple)}
    secrets = _take_secrets(spec, contents.get(spec.head.name, {}))
    key = secrets.get(key_path(spec))
    observed = Observed(
        documents=documents,
        unknown=unknown,
        contents=contents,
        key=_key_state(spec, desired, key, secrets.get(ENGINE_FILE)),
        at=clock.time(),
    )
    return Reading(desired, observed, history_of(spec, documents, agreed)), key


def _with_fabric_again(
    documents: Mapping[str, Document], hosts: Mapping[str, ReadableHost], timeout: float
) -> dict[str, Document]:
    """The documents with the fabric of a second reading, where there is one."""
    again = side_by_side(
        lambda name: _probe(hosts[name], name, {"sections": ["fabric"]}, timeout), documents, "fabric"
    )
    fabrics = (answer[0].fabric if isinstance(answer, tuple) else None for answer in again)
    return {
        name: replace(document, fabric=fabric or document.fabric)
        for (name, document), fabric in zip(documents.items(), fabrics, strict=True)
    }


def worth_asking(desired: Desired, observed: Observed, history: History) -> bool:
    """Every node was read, has a fabric, and its rank runs: otherwise the question would only time out. It
    is the API's port of these ranks, too: another's program would be asked, and be given the key."""
    if not observed.complete or not desired.ranks:
        return False
    group = examine(desired, observed, history)
    missing = any(cause.field == "container" for _, _, cause in group.causes)
    dead = any(not found.container.running for found in group.found)
    if missing or dead or not any(found.node == desired.head for found in group.found):
        return False
    return not elsewhere(desired, observed)


def probe_request(
    spec: ClusterSpec,
    node: str,
    outside: Mapping[str, Any] | None = None,
    resources: Sequence[Resource] = RESOURCES,
) -> dict[str, Json]:
    """Everything that the resources want to read on a node, merged."""
    found = spec.node(node)
    request: dict[str, Json] = {
        "cluster": spec.name,
        "state": state_directory(spec, found),
        "files": list(engine_of(spec).optional_files(spec)),
    }
    for resource in resources:
        for key, value in resource.request(spec, found, (outside or {}).get(resource.kind)).items():
            request[key] = _merged(key, request.get(key), value)
    return request


def _merged(key: str, before: Json, value: Json) -> Json:
    if before is None:
        return value
    if isinstance(before, list) and isinstance(value, list):
        return [*before, *(item for item in value if item not in before)]
    if isinstance(before, dict) and isinstance(value, dict):
        return {**before, **value}
    if before == value:
        return before
    raise ValueError(f"two resources want to read different things: {key} {before!r} and {value!r}")


def _probe(
    host: ReadableHost, name: str, request: Mapping[str, Json], timeout: float
) -> tuple[Document, dict[str, bytes]] | Unknown:
    """The document, and the contents asked for: kept apart, as some are secrets."""
    try:
        raw = dict(host.probe(request, timeout=timeout))
        contents = raw.pop("contents", None) or {}
        return parse_document(raw, node=name), {
            path: b64decode(text) for path, text in contents.items() if isinstance(text, str)
        }
    except SparkopError as error:
        return Unknown(name, error.reason, remedy=error.remedy)
    except (OSError, ValueError) as error:
        told = broken(error, name)
        return Unknown(name, told.reason, remedy=told.remedy)


def _take_secrets(spec: ClusterSpec, contents: dict[str, bytes]) -> dict[str, str]:
    """Take the key and the file that hands it over out of what was read: nothing else gets to see them."""
    taken = {path: contents.pop(path) for path in (key_path(spec), ENGINE_FILE) if path in contents}
    return {path: content.decode("ascii", "replace").strip() for path, content in taken.items()}


def _key_state(
    spec: ClusterSpec, desired: Desired, key: str | None, engine_file: str | None
) -> KeyState | None:
    if not has_key(spec) or not key:
        return None
    try:
        wanted = desired.engine.key_file(key).decode().strip()
    except SparkopError as error:
        return KeyState(False, error.cause or error.message, error.remedy or "")
    return KeyState(handed=engine_file == wanted)
