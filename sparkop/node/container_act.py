"""Effects on a node's containers and images, through its Docker engine's socket.

Stdlib-only, Python 3.8 or newer. Each is safe to repeat; ``changed`` tells whether it was there already. They
run under the lease's lock, except ``remove``, which waits between its steps.
"""

from __future__ import annotations

import re
import time
from functools import partial
from typing import Any
from urllib.parse import quote

from . import file_act, follow, wire
from .request import Request

MOST_LOG = 64 << 20
"""Bytes of a log that are kept, at most."""


def run(request: Request) -> dict[str, Any]:
    """Create and start it, or start the one that was only created. Another one of that name is an error."""
    config = request.argument("config")
    for mount in (config.get("HostConfig") or {}).get("Mounts") or ():
        mount["Source"] = wire.expand(mount["Source"], request.folder)
    found = _inspected(request)
    if found is None:
        name = quote(str(request.argument("name")), safe="")
        config["Image"] = _image_here(request, str(config.get("Image")))
        created = request.engine.json("POST", "/containers/create?name=%s" % name, config)["Id"]
    else:
        created = found["Id"]
        carried = (found.get("Config") or {}).get("Labels") or {}
        if any(carried.get(key) != value for key, value in (config.get("Labels") or {}).items()):
            raise wire.EngineError(409, "another container is called %s" % request.argument("name"))
        if found["State"]["Status"] != "created":
            return {"id": created, "changed": False}
    try:
        request.engine.request("POST", "/containers/%s/start" % created)
    except (wire.EngineError, OSError):
        _discard(request, created)
        raise
    return {"id": created, "changed": True}


def kill(request: Request) -> dict[str, Any]:
    """SIGKILL to the container."""
    return {"changed": _signal(request, "KILL")}


def remove(request: Request) -> dict[str, Any]:
    """Stop and remove. The lock is free while the container takes its time: the lease must be renewed."""
    grace = float(request.arguments.get("grace", 10.0))
    with request.fenced():
        found = _inspected(request)
        if found is None:
            return {"changed": False}
        stopping = _signal(request, (found.get("Config") or {}).get("StopSignal") or "TERM")
    if stopping and grace > 0:
        _wait_stopped(request, grace)
    with request.fenced():
        _delete(request, "/containers/%s?force=1&v=1" % found["Id"])
    _wait_gone(request, found["Id"])
    record = follow.read(request.folder)
    if record.get("container") == found["Id"]:
        follow.wake(record)  # else one that was paused would never see the end
    return {"changed": True}


def keep_log(request: Request) -> dict[str, Any]:
    """The end of its log into a file, owner-only, with keys and tokens covered."""
    found = _inspected(request)
    if found is None:
        return {"bytes": 0}
    tail = int(request.arguments.get("tail", 10000))
    raw = request.engine.request("GET", _path(request, "/logs?stdout=1&stderr=1&timestamps=1&tail=%d" % tail))
    text = raw if (found.get("Config") or {}).get("Tty") else b"".join(wire.log_parts(raw))
    text = masked(text[-int(request.arguments.get("most", MOST_LOG)) :], request.arguments)
    file_act.put(request.path(), text, 0o600)
    return {"bytes": len(text)}


def follow_log(request: Request) -> dict[str, Any]:
    """Its log from now on, kept by a process of its own."""
    found = _inspected(request)
    if found is None:
        raise wire.EngineError(404, "there is no container %s" % request.argument("name"))
    cover = partial(masked, arguments=request.arguments)
    return follow.start(request.folder, request.engine, found, str(request.argument("file")), cover)


def remove_image(request: Request) -> dict[str, Any]:
    """Remove what stands under a reference, and under the name that a copy of it has."""
    reference = str(request.argument("reference"))
    names = [name for name in (reference, wire.standin(reference)) if name]
    try:
        return {"changed": True in [_delete(request, "/images/%s" % name) for name in names]}
    except wire.EngineError as error:
        if error.status == 409 and request.arguments.get("spare"):
            return {"changed": False}
        raise


def _inspected(request: Request) -> dict[str, Any] | None:
    """The container as inspected; None when there is none of that name."""
    try:
        found = request.engine.json("GET", _path(request, "/json"))
    except wire.EngineError as error:
        if error.status == 404:
            return None
        raise
    return found if isinstance(found, dict) else None


def _path(request: Request, rest: str = "") -> str:
    return "/containers/%s%s" % (quote(str(request.argument("name")), safe=""), rest)


def _image_here(request: Request, reference: str) -> str:
    """The name under which the engine knows an image: one from another node has a tag for its digest."""
    name = wire.standin(reference)
    if name is None or _has_image(request, reference) or not _has_image(request, name):
        return reference
    return name


def _has_image(request: Request, reference: str) -> bool:
    try:
        request.engine.request("GET", "/images/%s/json" % reference)
    except wire.EngineError as error:
        if error.status == 404:
            return False
        raise
    return True


def _discard(request: Request, created: str) -> None:
    """A container that could not be started must not stand in the way of the next try."""
    try:
        if request.engine.json("GET", "/containers/%s/json" % created)["State"]["Status"] == "created":
            request.engine.request("DELETE", "/containers/%s?v=1" % created)
    except (wire.EngineError, OSError):
        pass


def _signal(request: Request, name: str) -> bool:
    """Send a signal; False when there is no such container or it does not run."""
    try:
        request.engine.request("POST", _path(request, "/kill?signal=%s" % name))
    except wire.EngineError as error:
        if error.status in (404, 409):
            return False
        raise
    return True


def _delete(request: Request, path: str) -> bool:
    try:
        request.engine.request("DELETE", path, timeout=request.left())
    except wire.EngineError as error:
        if error.status == 404:
            return False
        if not (error.status == 409 and "already in progress" in error.text):
            raise
    return True


def _wait_stopped(request: Request, seconds: float) -> None:
    try:
        request.engine.request("POST", _path(request, "/wait"), timeout=seconds)
    except (OSError, wire.EngineError):
        return  # still running, or gone meanwhile


def _wait_gone(request: Request, identifier: str) -> None:
    """Removal can go on for a while after the engine has answered."""
    end = time.monotonic() + request.engine.timeout
    while True:
        try:
            request.engine.request("GET", "/containers/%s/json" % identifier)
        except wire.EngineError as error:
            if error.status == 404:
                return
            raise
        if time.monotonic() > end:
            raise wire.EngineError(500, "container %s is still there" % request.argument("name"))
        time.sleep(0.1)


def masked(text: bytes, arguments: dict[str, Any]) -> bytes:
    """The log with keys and tokens covered, as ``container.logs.keep`` is told to."""
    harmless = {word.encode() for word in arguments.get("harmless") or ()}
    cover = str(arguments.get("mask", "")).encode()

    def replacement(found: re.Match[bytes]) -> bytes:
        return found[0] if found[2].lower() in harmless else found[1] + cover

    for pattern, exact in arguments.get("masks") or ():
        text = re.sub(pattern.encode(), replacement, text, flags=0 if exact else re.IGNORECASE)
    return text
