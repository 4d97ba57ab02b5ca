"""Commands: ``python3 transfer.pyz COMMAND STATE``; a JSON request comes in, a JSON answer goes out.

``start`` (a job), ``status``, ``cancel``, ``share`` (what others may read), ``unshare``, ``pipe`` (forced
command of an ssh key), ``release`` (page cache of files), ``key``, ``know``, ``authorise``, ``forbid``,
``withdraw`` (ends and takes back all of it), ``mark``, ``seen``, ``unmark`` (is a folder the same elsewhere).

Each command imports what it needs: a start-up on a small node counts.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import IO, Any, Callable, Dict, List, Mapping, Optional, Tuple

from .files import TransferError, as_transfer_error, no_file, parse_file, parse_job, status_file
from .hashing import release_file
from .ledger import read_json, write_whole

Json = Dict[str, Any]
IMAGES = 8
"""Images on offer, the last ones."""
IMAGE_JOB = "image.job.json"
GRACE = 40.0
"""Seconds that a process gets to end after SIGTERM: one that waits for an answer hears of it 30 s later."""


def main() -> int:
    """Run one command. Exit status 1: the answer is ``{"error": ...}``."""
    command, state = sys.argv[1], os.path.realpath(os.path.expanduser(sys.argv[2]))
    os.umask(os.umask(0) | 0o022)
    try:
        if command == "pipe":
            from . import serve

            serve.answer_on_stdio(state)
            return 0
        os.makedirs(os.path.join(state, "transfer"), exist_ok=True)
        request = json.loads(sys.stdin.buffer.read() or b"{}")
        answer = _COMMANDS[command](state, request)
    except (TransferError, OSError) as failure:
        error = failure if isinstance(failure, TransferError) else as_transfer_error(failure)
        answer = {"error": {"kind": error.kind, "message": error.message, "remedy": error.remedy}}
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    return 1 if "error" in answer else 0


_IMAGE = ("image.lock", "image.log")
_WEIGHTS = ("lock", "transfer.log")
"""Lock and log of jobs: an image and the weights come side by side."""


def _lane(kind: object) -> Tuple[str, str]:
    return _IMAGE if kind == "image" else _WEIGHTS


def _start(state: str, request: Json) -> Json:
    """Begin a job in a process of its own, or tell which one is at work, and whether it reads from
    elsewhere."""
    from .status import Status

    job = parse_job(request)
    name, log = _lane(job.kind)
    kept = os.path.join(state, "transfer", IMAGE_JOB if job.kind == "image" else "job.json")
    lock = _lock(state, name)
    if lock is None:
        identity = read_json(os.path.join(state, status_file(job.kind))).get("id")
        return {"started": False, "id": identity, "moved": _ways(read_json(kept)) != _ways(job.document)}
    write_whole(kept, json.dumps(job.document).encode())
    if os.path.isdir(os.path.join(state, status_file(job.kind))):
        raise no_file(os.path.join(state, status_file(job.kind)))
    Status(state, job).write()  # else the end of the last run is taken for that of this one

    def work() -> None:
        stop = _stop_on_signals()
        if job.kind == "image":
            from .images import ImageRun

            ImageRun(state, job, stop).run()
        else:
            from .run import Run

            Run(state, job, stop).run()

    _detach(state, log, lock, work)
    return {"started": True, "id": job.id}


def _ways(job: Mapping[str, Any]) -> List[Tuple[object, object]]:
    """Where a job's bytes come from: a share that was killed is offered again at another address."""
    return [(source.get("base"), source.get("command")) for source in job.get("sources") or ()]


def _status(state: str, request: Json) -> Json:
    """The last status of a ``kind`` of job, and whether a process works on it."""
    kind = str(request.get("kind"))
    lock = _lock(state, _lane(kind)[0])
    if lock is not None:
        lock.close()
    return {"running": lock is None, "status": read_json(os.path.join(state, status_file(kind)))}


def _cancel(state: str, request: Json) -> Json:
    """End the jobs, or those of a ``kind``; what they have fetched is kept."""
    lanes = [_lane(request["kind"])] if "kind" in request else [_WEIGHTS, _IMAGE]
    return {"cancelled": True in [_end(state, lock) for lock, _ in lanes]}


def _share(state: str, request: Json) -> Json:
    """Offer files or ``images`` (ids) to other nodes; with an ``address`` also on a TCP port.

    With ``to`` and ``from``, the way to the node that asks must be the fabric's.
    What else is on offer stays so. Repeating it changes nothing.
    """
    if request.get("to"):  # the bytes leave from here: our own route counts, not only the receiver's
        from . import peering

        peering.check_route(request["to"], request.get("from") or "", request.get("interface") or "")
    with open(os.path.join(state, "transfer", "offer.lock"), "w") as one:
        fcntl.flock(one, fcntl.LOCK_EX)
        try:
            return _offer(state, request, one)
        finally:
            fcntl.flock(one, fcntl.LOCK_UN)  # also for the server, which lives on with the same file open


def _offer(state: str, request: Json, one: IO[str]) -> Json:
    from . import serve

    for item in request.get("files") or ():
        parse_file(item)
    path = os.path.join(state, "transfer", "share.json")
    before = read_json(path)
    known = [*before.get("images", ()), *request.get("images", ())]
    offer = {
        **before,
        **({key: request.get(key) for key in ("directory", "hub", "files")} if "files" in request else {}),
        "images": list(dict.fromkeys(reversed(known)))[:IMAGES],
        "address": request.get("address"),
        "fabric": request.get("fabric"),
    }
    lock = _lock(state, "share.lock")
    if lock is None:
        running = read_json(os.path.join(state, "transfer", "share.running"))
        if before.get("address") == offer["address"] and running:
            if offer != before:
                write_whole(path, json.dumps(offer).encode())
            return running
        _end(state, "share.lock")
        lock = _lock(state, "share.lock")
        if lock is None:
            raise TransferError("busy", "the share of this node does not end")
    write_whole(path, json.dumps(offer).encode())
    if not request.get("address"):
        lock.close()
        return {"port": None, "token": None}
    token = os.urandom(32).hex()
    try:
        server = serve.bind(state, request["address"], token)
    except OSError as error:
        raise TransferError("place", "can't listen on %s: %s" % (request["address"], error)) from None
    answer = {"port": server.server_address[1], "token": token}
    running_path = os.path.join(state, "transfer", "share.running")
    write_whole(running_path, json.dumps(answer).encode(), mode=0o600)

    def work() -> None:
        fcntl.flock(one, fcntl.LOCK_UN)  # who started us may be killed before it does
        serve.serve_until_idle(server, _stop_on_signals())
        os.unlink(running_path)

    _detach(state, "share.log", lock, work)
    return answer


def _unshare(state: str, _request: Json) -> Json:
    """Offer nothing any more."""
    _end(state, "share.lock")
    path = os.path.join(state, "transfer", "share.json")
    if os.path.exists(path):
        os.unlink(path)
    return {}


def _release(_state: str, request: Json) -> Json:
    """Drop the clean pages of these files from the page cache; returns how many files."""
    from .place import Place

    place = Place(request["directory"], request.get("hub"))
    count = 0
    for item in request["files"]:
        path = place.find(parse_file(item))
        if os.path.isfile(path):
            release_file(path)
            count += 1
    return {"released": count}


def _mark(state: str, request: Json) -> Json:
    from . import shared

    return shared.mark(state, request)


def _seen(_state: str, request: Json) -> Json:
    from . import shared

    return shared.seen(request)


def _unmark(_state: str, request: Json) -> Json:
    from . import shared

    return shared.unmark(request)


def _key(state: str, request: Json) -> Json:
    from . import peering

    return dict(peering.make_key(state, request["comment"]), host_keys=peering.host_keys())


def _know(state: str, request: Json) -> Json:
    from . import peering

    peering.know_hosts(state, request["lines"])
    return {}


def _authorise(state: str, request: Json) -> Json:
    from . import peering

    peering.authorise(state, request["public"])
    return {"host_keys": peering.host_keys()}


def _withdraw(state: str, request: Json) -> Json:
    """End all, offer nothing, take back the keys that were given and forget our own; and the image whose
    transfer was killed before it had its name: by that ``destroy`` finds what we have brought."""
    _cancel(state, {})
    _unshare(state, {})
    job = read_json(os.path.join(state, "transfer", IMAGE_JOB))
    if job:
        from . import images

        with suppress(TransferError):
            images.forget_nameless("sha256:%s" % parse_job(job).files[0].sha256)
    return _forbid(state, request)


def _forbid(state: str, request: Json) -> Json:
    from . import peering

    peering.forbid(request["prefix"])
    peering.remove_key(state)
    return {}


_COMMANDS: Dict[str, Callable[[str, Json], Json]] = {
    "start": _start, "status": _status, "cancel": _cancel, "share": _share, "unshare": _unshare,
    "release": _release, "key": _key, "know": _know, "authorise": _authorise, "forbid": _forbid,
    "withdraw": _withdraw, "mark": _mark, "seen": _seen, "unmark": _unmark,
}  # fmt: skip


def _lock(state: str, name: str) -> Optional[IO[str]]:
    """The lock of a lasting process, for its process id; None when another holds it.

    It is emptied first: the number of a process that was killed passes to others, and would be theirs.
    """
    file = open(os.path.join(state, "transfer", name), "a+")  # noqa: SIM115 - held as long as the process lives
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    file.truncate(0)
    return file


def _end(state: str, name: str) -> bool:
    """Ask the holder of a lock to end, and wait for it; False when nobody holds it."""
    path = os.path.join(state, "transfer", name)
    deadline = time.monotonic() + GRACE
    asked = False
    while True:
        lock = _lock(state, name)
        if lock is not None:
            lock.close()
            return asked
        if time.monotonic() > deadline:
            raise TransferError("busy", "the process behind %s does not end" % path)
        with open(path) as file:
            text = file.read()
        if not asked and text.isdigit():
            asked = True
            with suppress(ProcessLookupError):
                os.kill(int(text), signal.SIGTERM)
        time.sleep(0.05)


def _detach(state: str, log: str, lock: IO[str], work: Callable[[], None]) -> None:
    """Go on in a process that no connection, terminal or parent holds; the lock goes with it."""
    sys.stdout.flush()
    path = os.path.join(
        state, "transfer", log
    )  # opened here: the new process has nobody to tell that it can't
    output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    first = os.fork()
    if first:
        os.waitpid(first, 0)
        os.close(output)
        lock.close()
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    code = 1
    try:
        os.chdir("/")
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, nothing), (1, output), (2, output)):
            os.dup2(source, target)
        lock.write(str(os.getpid()))
        lock.flush()
        work()
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return stop
