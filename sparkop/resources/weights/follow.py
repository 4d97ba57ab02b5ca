"""Follows a transfer that runs by itself on a node, through its status file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from sparkop.errors import SparkopError, UnreachableError
from sparkop.hosts.base import ReadableHost
from sparkop.hosts.document import Document
from sparkop.node.transfer.files import status_file
from sparkop.resources.base import Clock
from sparkop.resources.compare import human_bytes
from sparkop.resources.operations import Action

ENDED = ("done", "failed", "cancelled")
POLL = 0.5
"""Seconds between two looks at the status file; the program writes it twice a second."""
IMAGE_WORDS = {"fetching": "comes", "loading": "is unpacked; came", "done": "came"}
SILENT = 15.0
"""Seconds without a change after which the process is looked for."""

QUIET = 10
"""Seconds without a byte after which the progress says so."""

Status = Mapping[str, Any]
Tell = Callable[[Status], None]


def read_status(host: ReadableHost, state: str, kind: str = "weights") -> Status:
    """The status of the node's last transfer; empty when there was none."""
    data = host.read_file(f"{state}/{status_file(kind)}")
    try:
        document = json.loads(data or b"{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def running(documents: Mapping[str, Document]) -> dict[str, Status]:
    """Node -> status of a transfer that had not ended, by its own word and in this boot of the node."""
    found = {}
    for name, document in documents.items():
        status = (document.state or {}).get(status_file("weights"))
        if isinstance(status, Mapping) and status.get("phase") not in (*ENDED, None):
            same_boot = document.machine is None or status.get("boot_id") == document.machine.boot_id
            if same_boot:
                found[name] = status
    return found


def running_told(documents: Mapping[str, Document]) -> tuple[str, ...]:
    """What is said of each, where only what is missing would be told otherwise. One whose status has stood
    still may have been killed: it is not said to run."""
    told = []
    for name, status in running(documents).items():
        machine, written = documents[name].machine, status.get("updated_at")
        if machine is None or not isinstance(written, int | float) or machine.time_s - written > SILENT:
            continue
        done = status.get("bytes") or {}
        sizes = [human_bytes(int(done.get(word) or 0)) for word in ("done", "total")]
        told.append(
            f"{name}: {action_of(status)} of the weights runs: {progress_text(status)}, "
            f"{' of '.join(sizes)}; sparkop download --follow shows it"
        )
    return tuple(told)


def follow(
    host: ReadableHost,
    state: str,
    identity: str,
    *,
    clock: Clock,
    stopped: Callable[[], bool],
    tell: Tell,
    revive: Callable[[], bool] | None = None,
    kind: str = "weights",
) -> Status:
    """Until the transfer ``identity`` ends; returns its last status.

    ``revive`` is called when the status has stood still: True when the process is there, or was started
    again. Without it, who only looks on waits twice as long: another sparkop may start it again. Raises
    SparkopError when it is gone; returns early when ``stopped()``.
    """
    sequence, moved_at = -1, clock.monotonic()
    while True:
        status = _read_or_say_what_goes_on(host, state, kind)
        if status.get("id") == identity:
            if status.get("phase") in ENDED:
                return status
            tell(status)
        if status.get("sequence", 0) != sequence:
            sequence, moved_at = status.get("sequence", 0), clock.monotonic()
        elif clock.monotonic() - moved_at > (SILENT if revive else 2 * SILENT):
            if revive is None or not revive():
                raise SparkopError(
                    "the transfer has ended without a word",
                    node=host.name,
                    cause="its process was killed, or the node was short of memory",
                    remedy="sparkop download carries on from what is there",
                )
            moved_at = clock.monotonic()
        if stopped():
            return status
        clock.sleep(POLL)


def _read_or_say_what_goes_on(host: ReadableHost, state: str, kind: str) -> Status:
    try:
        return read_status(host, state, kind)
    except UnreachableError as error:
        error.remedy = error.remedy or (
            f"if {host.name} has gone down: sparkop apply or sparkop download carries on from what is there "
            "once it is back; if it is up, its transfer goes on by itself: sparkop download --follow"
        )
        raise


def action_of(status: Status) -> Action:
    """What a transfer of weights that runs is called in the plan that has started it."""
    if status.get("kind") == "verify":
        return Action.RECORD
    return Action.COPY if status.get("source") in ("peer", "ssh") else Action.DOWNLOAD


def progress_text(status: Status, source: str = "") -> str:
    """``3 of 9 files from spark-1: model-00002.safetensors``; what is left is told of every operation."""
    origin = f" from {source}" if source else ""
    silent = int(status.get("silent") or 0)
    quiet = f"no byte for {silent} s, " if silent >= QUIET else ""
    quiet = "waits for its source to fetch more, " if status.get("waits") else quiet
    if status.get("kind") == "image":
        return quiet + IMAGE_WORDS.get(str(status.get("phase")), "image") + origin
    files = status.get("files") or {}
    text = f"{quiet}{files.get('done', 0)} of {files.get('total', 0)} files"
    if status.get("phase") == "checking":
        text = f"checking what is there, {text}"
    else:
        text += origin
    active = sorted(status.get("active") or {})
    return f"{text}: {active[0]}" if active else text
