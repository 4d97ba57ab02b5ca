"""One effect on a node, under the fence. Safe to repeat: an effect that is there already is success.

Stdlib-only, Python 3.8 or newer; carries out each request on standard input, one JSON object a line::

    {"version": 1, "nonce": "...", "action": "file.write", "arguments": {...},
     "fence": {"cluster": "name", "holder": "...", "token": 3, "directory": "~/.sparkop/name"}}

The answer is framed as the probe's: ``{"nonce", "result": {...}}``, or ``{"nonce", "error": {"kind",
"message"}}`` with a kind of ``lease`` (the fence is stale: nothing was done), ``docker``, ``engine`` (Docker
gave no answer: what it did is unknown), ``os``, ``arguments`` or ``internal``.

====================== =============================================================================
action                arguments (and result)
====================== =============================================================================
lease.acquire         ``expected`` (what the contender saw, or null), ``info``, ``force`` (``lease``)
lease.renew           (``lease``)
lease.release         (``lease``)
lease.check           (``lease``)
lease.ask             ``info``: ask the holder to yield; needs no lease (``lease``)
lease.watching        ``info``, ``over``, ``dead``: a watch lives, or ends; needs no lease (``lease``)
file.write            ``path``, ``content`` (base64), ``mode``, ``aside`` (``changed``)
file.remove           ``path``, ``aside``: keep what was there as ``path.damaged-TIME`` (``changed``)
directory.ensure      ``path``, ``mode`` (``changed``)
directory.remove      ``path``: below the state folder, or the folder itself; then folders elsewhere that this
                      program or a transfer has made go too where they are empty; ``keep``: names of files
                      in it that stay; ``ours``: paths in the state folder that go beside those of ground.py;
                      ``apart``: refused where this folder lies within (``changed``, ``left``: names that are
                      not ours)
key.ensure            ``path``, ``config``: null or ``path`` and ``template`` with ``{key}``; ``running``:
                      null, or ``container`` and ``path`` where the key that runs is mounted (``changed``)
intent.write          ``document``, or null to remove it (``changed``)
history.append        ``entry`` with an ``id``, ``limit``; ``replace``: one with that id goes, else it stays
                      (``changed``; see ``newest``). A damaged history is kept aside and begun anew with an
                      entry that says so; an ``entry`` of null: that is all
history.drop          ``id``: the entry with it goes; a damaged history stays as it is (``changed``)
container.run         ``name``, ``config``: the body of Docker's create (``id``, ``changed``)
container.remove      ``name``, ``grace`` in seconds (``changed``)
container.kill        ``name`` (``changed``)
directory.prune       ``path``, ``keep``, ``most`` bytes: of its folders ``name-N`` those with the largest N
                      stay (``changed``)
container.logs.keep   ``name``, ``path``, ``tail`` lines, ``most`` bytes: the end of the log, owner-only; what
                      the second group of one of ``masks`` (pairs of a pattern and whether case matters)
                      matches is covered by ``mask`` unless it is one of ``harmless`` (``bytes``)
container.logs.follow ``name``, ``file``, and masks as above: kept from now on, by a process of its own
                      (``changed``, and ``unreadable`` where the engine gives no logs back)
weights.remove        ``directory``, ``hub``, ``files``, ``keep``: see leaving.py (``changed``)
image.remove          ``reference``, ``spare``: one that is in use stays (``changed``)
unit.start            ``name``, ``labels``, ``argv`` (a Python program first): see units.py (``changed``)
unit.remove           ``name``, ``grace`` in seconds (``changed``)
program.run           ``path`` and ``content`` (base64) of a Python zip file, ``argv``, ``input`` on stdin,
                      ``seconds``: runs to its end, not under the lock (``exit``, ``output``, ``said``)
====================== =============================================================================

Paths are absolute, start with ``~``, or are relative to the state folder.
"""

from __future__ import annotations

import os
import re
import sys
from binascii import a2b_base64
from typing import Any, BinaryIO, Callable

from . import container_act, file_act, lease, unit_act, wire
from .request import ArgumentsError, Request

VERSION = 1
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z")
Step = Callable[[Request], "dict[str, Any]"]


def _unit(request: Request) -> unit_act.Unit:
    name = str(request.argument("name"))
    if not NAME.match(name):
        raise ArgumentsError("%r is no name of a unit" % name)
    return unit_act.Unit(request.folder, name)


def start_unit(request: Request) -> dict[str, Any]:
    unit = _unit(request)
    words = [str(word) for word in request.argument("argv")]
    with request.fenced():
        begun = unit.begin(dict(request.argument("labels")), words)
    unit.wait_started()
    return {"changed": begun}


def remove_unit(request: Request) -> dict[str, Any]:
    unit = _unit(request)
    with request.fenced():
        if not unit.end():
            return {"changed": False}
    unit.wait_ended(float(request.arguments.get("grace", 10.0)))
    with request.fenced():
        unit.forget()
    return {"changed": True}


def run_program(request: Request) -> dict[str, Any]:
    """Run one of our own programs; what has to outlive this call is detached by the program itrequest."""
    import subprocess

    path = request.path()
    with request.fenced():
        file_act.put(path, a2b_base64(request.argument("content")), 0o644)
    done = subprocess.run(
        [sys.executable, "-I", "-S", path, *request.argument("argv")],
        input=str(request.arguments.get("input", "")).encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=float(request.arguments.get("seconds", 60.0)),
    )
    said = done.stderr.decode("utf-8", "replace")[-2000:]
    return {"exit": done.returncode, "output": done.stdout.decode(), "said": said}


UNDER_THE_LOCK: dict[str, Step] = {
    "file.write": file_act.write,
    "file.remove": file_act.remove,
    "directory.ensure": file_act.ensure_directory,
    "directory.remove": file_act.remove_directory,
    "directory.prune": file_act.prune_directory,
    "key.ensure": file_act.ensure_key,
    "intent.write": file_act.write_intent,
    "history.append": file_act.append_history,
    "history.drop": file_act.drop_from_history,
    "container.run": container_act.run,
    "container.kill": container_act.kill,
    "container.logs.keep": container_act.keep_log,
    "container.logs.follow": container_act.follow_log,
    "image.remove": container_act.remove_image,
}
STEP_BY_STEP: dict[str, Step] = {
    "container.remove": container_act.remove,
    "weights.remove": file_act.remove_weights,
    "unit.start": start_unit,
    "unit.remove": remove_unit,
    "program.run": run_program,
}
"""They take their time, and the lock for each of their steps only: the lease must be renewed meanwhile."""
KINDS = (
    (ArgumentsError, "arguments"),
    (lease.LeaseError, "lease"),
    (wire.EngineError, "docker"),
    (wire.SilentEngineError, "engine"),
    (OSError, "os"),
)
"""What the answer calls an error; any other is internal."""


def perform(request: Request) -> dict[str, Any]:
    """Do it. Raises LeaseError, EngineError, OSError, ArgumentsError."""
    action = request.action
    if action in lease.STEPS:
        if action != "lease.acquire" and not os.path.isdir(request.folder):
            return {"lease": lease.STEPS[action](None, request.fence, request.arguments) or {}}
        with lease.locked(request.folder):
            return {"lease": lease.perform(request.folder, action, request.fence, request.arguments)}
    if action in STEP_BY_STEP:
        return STEP_BY_STEP[action](request)
    if action not in UNDER_THE_LOCK:
        raise ArgumentsError("no action %s" % action)
    with request.fenced():
        return UNDER_THE_LOCK[action](request)


def answer(document: dict[str, Any]) -> dict[str, Any]:
    """Perform a request; what went wrong is part of the answer."""
    try:
        return {"result": perform(Request(document))}
    except Exception as error:
        kind = next((name for kind, name in KINDS if isinstance(error, kind)), "internal")
        message = wire.describe(error) if kind in ("engine", "os", "internal") else str(error)
        failure: dict[str, Any] = {"kind": kind, "message": message}
        if isinstance(error, lease.LeaseError):
            failure["lease"] = error.lease
        return {"error": failure}


def main(stdin: BinaryIO, stdout: BinaryIO) -> int:
    for request in wire.requests(stdin):
        nonce = request["nonce"]
        wire.write_answer(stdout, nonce, {"version": VERSION, "nonce": nonce, **answer(request)})
    return 0
