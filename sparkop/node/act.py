"""One effect on a node, under the fence. Safe to repeat: an effect that is there already is success.

Stdlib-only, Python 3.8 or newer; carries out each request on standard input, one JSON object a line::

    {"version": 1, "nonce": "...", "action": "file.write", "arguments": {...},
     "fence": {"cluster": "name", "holder": "...", "token": 3, "directory": "~/.sparkop/name"}}

The answer is framed as the probe's: ``{"nonce", "result": {...}}``, or ``{"nonce", "error": {"kind",
"message"}}`` with a kind of ``lease`` (the fence is stale: nothing was done), ``docker``, ``os``,
``arguments`` or ``internal``.

====================== =============================================================================
action                arguments (and result)
====================== =============================================================================
lease.acquire         ``expected`` (what the contender saw, or null), ``info``, ``force`` (``lease``)
lease.renew           (``lease``)
lease.release         (``lease``)
lease.check           (``lease``)
lease.ask             ``info``: ask the holder to yield; needs no lease (``lease``)
lease.watching        ``info``, ``over``: a watch lives, or ends; needs no lease (``lease``)
file.write            ``path``, ``content`` (base64), ``mode``, ``aside`` (``changed``)
file.remove           ``path``, ``aside``: keep what was there as ``path.damaged-TIME`` (``changed``)
directory.ensure      ``path``, ``mode`` (``changed``)
directory.remove      ``path``: below the state folder, or the folder itself; then folders elsewhere that this
                      program or a transfer has made go too where they are empty (``changed``)
key.ensure            ``path``, ``config``: null or ``path`` and ``template`` with ``{key}``; ``running``:
                      null, or ``container`` and ``path`` where the key that runs is mounted (``changed``)
intent.write          ``document``, or null to remove it (``changed``)
history.append        ``entry`` with an ``id``, ``limit`` (``changed``; see ``newest``). A damaged history is
                      kept aside and begun anew with an entry that says so; an ``entry`` of null: that is all
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

import json
import os
import re
import secrets
import shutil
import stat
import sys
import time
from binascii import a2b_base64
from contextlib import contextmanager
from typing import Any, BinaryIO, Callable, Iterator
from urllib.parse import quote

from . import follow, lease, leaving, unit_act, wire

VERSION = 1
MOST_LOG = 64 << 20
"""Bytes of a log that are kept, at most."""
COUNTED = ("start", "ready", "served", "damaged")
"""Entries of a history that say which group runs, whether it has served, and how often it was restarted."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z")


class ArgumentsError(Exception):
    """The request asks for something that this program does not do."""


class Act:
    """One request."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.action = str(request["action"])
        self.arguments: dict[str, Any] = request.get("arguments") or {}
        self.fence: dict[str, Any] = request["fence"]
        self.folder = os.path.abspath(os.path.expanduser(self.fence["directory"]))
        self.engine = wire.Engine(timeout=float(request.get("timeout") or 60.0))

    def perform(self) -> dict[str, Any]:
        """Do it. Raises LeaseError, EngineError, OSError, ArgumentsError."""
        if self.action in lease.STEPS:
            with lease.locked(self.folder):
                return {"lease": lease.perform(self.folder, self.action, self.fence, self.arguments)}
        steps: dict[str, Callable[[], dict[str, Any]]] = {
            "file.write": self.file_write,
            "file.remove": self.file_remove,
            "directory.ensure": self.directory_ensure,
            "directory.remove": self.directory_remove,
            "directory.prune": self.directory_prune,
            "key.ensure": self.key_ensure,
            "intent.write": self.intent_write,
            "history.append": self.history_append,
            "container.run": self.container_run,
            "container.kill": self.container_kill,
            "container.logs.keep": self.container_logs_keep,
            "container.logs.follow": self.container_logs_follow,
            "image.remove": self.image_remove,
        }
        if self.action == "container.remove":  # waits between its steps, without the lock
            return self.container_remove()
        if self.action == "program.run":  # may take its time: without the lock
            return self.program_run()
        if self.action == "unit.start":  # these two wait without the lock, too
            return self.unit_start()
        if self.action == "unit.remove":
            return self.unit_remove()
        if self.action == "weights.remove":
            return self.weights_remove()
        if self.action not in steps:
            raise ArgumentsError("no action %s" % self.action)
        with self.fenced():
            return steps[self.action]()

    @contextmanager
    def fenced(self) -> Iterator[None]:
        """Nobody can take the lease away while this is held."""
        with lease.locked(self.folder):
            lease.check(lease.read(self.folder), self.fence)
            yield

    def argument(self, name: str) -> Any:
        try:
            return self.arguments[name]
        except KeyError:
            raise ArgumentsError("%s needs %s" % (self.action, name)) from None

    def path(self, name: str = "path") -> str:
        return os.path.abspath(wire.expand(str(self.argument(name)), self.folder))

    # Files

    def file_write(self) -> dict[str, Any]:
        content, path = a2b_base64(self.argument("content")), self.path()
        if self.arguments.get("aside"):
            set_aside(path, unless=content)
        return {"changed": put(path, content, int(self.arguments.get("mode", 0o644)))}

    def file_remove(self) -> dict[str, Any]:
        if self.arguments.get("aside"):
            return {"changed": set_aside(self.path())}
        try:
            os.unlink(self.path())
        except (FileNotFoundError, NotADirectoryError):
            return {"changed": False}
        return {"changed": True}

    def directory_ensure(self) -> dict[str, Any]:
        path, mode = self.path(), int(self.arguments.get("mode", 0o755))
        if os.path.isdir(path):
            if "mode" not in self.arguments or stat.S_IMODE(os.stat(path).st_mode) == mode:
                return {"changed": False}
        else:
            make_folder(self.folder, path)
        os.chmod(path, mode)
        return {"changed": True}

    def directory_remove(self) -> dict[str, Any]:
        path = self.path()
        if os.path.realpath(path) != path or os.path.commonpath([path, self.folder]) != self.folder:
            raise ArgumentsError("%s is not below the state folder" % path)
        if not os.path.isdir(path):
            return {"changed": False}
        if path == self.folder:
            leaving.remove_made(path)
        shutil.rmtree(path)
        if path == self.folder:
            leaving.remove_home(path)
        return {"changed": True}

    def directory_prune(self) -> dict[str, Any]:
        path, keep = self.path(), int(self.argument("keep"))
        left, removed = int(self.argument("most")), False
        for place, (_, folder) in enumerate(numbered(path)):
            left -= size_of(folder)
            if place >= keep or (left < 0 and place):  # the newest stays, whatever its size
                shutil.rmtree(folder)
                removed = True
        return {"changed": removed}

    def key_ensure(self) -> dict[str, Any]:
        """Make the key once, and the file that hands it to the engine; the key itself is never answered.

        A key that is lost is the one that runs, or was handed to the engine last, as far as that is known:
        clients have it.
        """
        path, config = self.path(), self.arguments.get("config")
        key = key_of(path)
        made = key is None
        if key is None:  # a base64 key could begin with a dash, which engines take for a flag
            key = self.key_known() or secrets.token_hex(32)
            put(path, key.encode() + b"\n", 0o600)
        os.chmod(path, 0o600)
        handed = False
        if config:
            text = str(config["template"]).replace("{key}", key)
            handed = put(wire.expand(str(config["path"]), self.folder), text.encode(), 0o600)
        return {"changed": made or handed}

    def key_known(self) -> str | None:
        """The key in the file that a running engine has mounted, else in the one that was made for it."""
        config = self.arguments.get("config")
        if not config:
            return None
        template = str(config["template"]).encode()
        running = self.arguments.get("running")
        mounted = self.mounted(str(running["container"]), str(running["path"])) if running else None
        return key_in(mounted, template) or key_in(
            content_of(wire.expand(str(config["path"]), self.folder)), template
        )

    def mounted(self, container: str, path: str) -> bytes | None:
        """A file as a running container sees it: one that was replaced beside it is still mounted there."""
        name = quote(container, safe="")
        ask = {"AttachStdout": True, "Cmd": ["cat", path]}
        try:
            made = self.engine.json("POST", "/containers/%s/exec" % name, ask)["Id"]
            raw = self.engine.request("POST", "/exec/%s/start" % made, {"Detach": False, "Tty": False})
        except (wire.EngineError, OSError, ValueError, KeyError, TypeError):
            return None  # it is not running, or has no cat
        return b"".join(wire.log_parts(raw))

    def intent_write(self) -> dict[str, Any]:
        path, document = os.path.join(self.folder, "intent.json"), self.argument("document")
        if document is None:
            if not os.path.exists(path):
                return {"changed": False}
            os.unlink(path)
            return {"changed": True}
        return {"changed": put(path, json.dumps(document, sort_keys=True).encode() + b"\n", 0o644)}

    def history_append(self) -> dict[str, Any]:
        entry, limit = self.argument("entry"), int(self.arguments.get("limit", 200))
        path = os.path.join(self.folder, "history.json")
        found = content_of(path)
        entries, damaged = [] if found is None else entries_in(found), False
        if entries is None:
            kept, now, damaged = os.path.basename(set_aside(path) or ""), time.time(), True
            entries = [{"id": "damaged-%d" % now, "event": "damaged", "at": now, "kept": kept}]
        new = [entry] if entry and not any(known_as(e, entry["id"]) for e in entries) else []
        if not new and not damaged:
            return {"changed": False}
        document = {"version": 1, "entries": newest([*entries, *new], limit)}
        return {"changed": put(path, json.dumps(document).encode() + b"\n", 0o600)}

    # Containers

    def container(self) -> dict[str, Any] | None:
        """The container as inspected; None when there is none of that name."""
        try:
            found = self.engine.json("GET", self.container_path("/json"))
        except wire.EngineError as error:
            if error.status == 404:
                return None
            raise
        return found if isinstance(found, dict) else None

    def container_path(self, rest: str = "") -> str:
        return "/containers/%s%s" % (quote(str(self.argument("name")), safe=""), rest)

    def container_run(self) -> dict[str, Any]:
        config = self.argument("config")
        for mount in (config.get("HostConfig") or {}).get("Mounts") or ():
            mount["Source"] = wire.expand(mount["Source"], self.folder)
        found = self.container()
        if found is None:
            name = quote(str(self.argument("name")), safe="")
            config["Image"] = self.image_here(str(config.get("Image")))
            created = self.engine.json("POST", "/containers/create?name=%s" % name, config)["Id"]
        else:
            created = found["Id"]
            carried = (found.get("Config") or {}).get("Labels") or {}
            if any(carried.get(key) != value for key, value in (config.get("Labels") or {}).items()):
                raise wire.EngineError(409, "another container is called %s" % self.argument("name"))
            if found["State"]["Status"] != "created":
                return {"id": created, "changed": False}
        try:
            self.engine.request("POST", "/containers/%s/start" % created)
        except (wire.EngineError, OSError):
            self.discard(created)
            raise
        return {"id": created, "changed": True}

    def image_here(self, reference: str) -> str:
        """The name under which the engine knows an image: one from another node has a tag for its digest."""
        name = wire.standin(reference)
        if name is None or self.has_image(reference) or not self.has_image(name):
            return reference
        return name

    def has_image(self, reference: str) -> bool:
        try:
            self.engine.request("GET", "/images/%s/json" % reference)
        except wire.EngineError as error:
            if error.status == 404:
                return False
            raise
        return True

    def discard(self, created: str) -> None:
        """A container that could not be started must not stand in the way of the next try."""
        try:
            if self.engine.json("GET", "/containers/%s/json" % created)["State"]["Status"] == "created":
                self.engine.request("DELETE", "/containers/%s?v=1" % created)
        except (wire.EngineError, OSError):
            pass

    def container_kill(self) -> dict[str, Any]:
        return {"changed": self.signal("KILL")}

    def signal(self, name: str) -> bool:
        """Send a signal; False when there is no such container or it does not run."""
        try:
            self.engine.request("POST", self.container_path("/kill?signal=%s" % name))
        except wire.EngineError as error:
            if error.status in (404, 409):
                return False
            raise
        return True

    def container_remove(self) -> dict[str, Any]:
        """Stop and remove. The lock is free while the container takes its time: the lease must be renewed."""
        grace = float(self.arguments.get("grace", 10.0))
        with self.fenced():
            found = self.container()
            if found is None:
                return {"changed": False}
            stopping = self.signal((found.get("Config") or {}).get("StopSignal") or "TERM")
        if stopping and grace > 0:
            self.wait_stopped(grace)
        with self.fenced():
            self.delete("/containers/%s?force=1&v=1" % found["Id"])
        self.wait_gone(found["Id"])
        record = follow.read(self.folder)
        if record.get("container") == found["Id"]:
            follow.wake(record)  # else one that was paused would never see the end
        return {"changed": True}

    def delete(self, path: str) -> bool:
        try:
            self.engine.request("DELETE", path)
        except wire.EngineError as error:
            if error.status == 404:
                return False
            if not (error.status == 409 and "already in progress" in error.text):
                raise
        return True

    def wait_stopped(self, seconds: float) -> None:
        try:
            self.engine.request("POST", self.container_path("/wait"), timeout=seconds)
        except (OSError, wire.EngineError):
            return  # still running, or gone meanwhile

    def wait_gone(self, identifier: str) -> None:
        """Removal can go on for a while after the engine has answered."""
        end = time.monotonic() + self.engine.timeout
        while True:
            try:
                self.engine.request("GET", "/containers/%s/json" % identifier)
            except wire.EngineError as error:
                if error.status == 404:
                    return
                raise
            if time.monotonic() > end:
                raise wire.EngineError(500, "container %s is still there" % self.argument("name"))
            time.sleep(0.1)

    def container_logs_keep(self) -> dict[str, Any]:
        found = self.container()
        if found is None:
            return {"bytes": 0}
        tail = int(self.arguments.get("tail", 10000))
        raw = self.engine.request(
            "GET", self.container_path("/logs?stdout=1&stderr=1&timestamps=1&tail=%d" % tail)
        )
        text = raw if (found.get("Config") or {}).get("Tty") else b"".join(wire.log_parts(raw))
        text = masked(text[-int(self.arguments.get("most", MOST_LOG)) :], self.arguments)
        put(self.path(), text, 0o600)
        return {"bytes": len(text)}

    def container_logs_follow(self) -> dict[str, Any]:
        found = self.container()
        if found is None:
            raise wire.EngineError(404, "there is no container %s" % self.argument("name"))
        wanted = self.arguments
        return follow.start(
            self.folder, self.engine, found, str(self.argument("file")), lambda part: masked(part, wanted)
        )

    def image_remove(self) -> dict[str, Any]:
        reference = str(self.argument("reference"))
        names = [name for name in (reference, wire.standin(reference)) if name]
        try:
            return {"changed": True in [self.delete("/images/%s" % name) for name in names]}
        except wire.EngineError as error:
            if error.status == 409 and self.arguments.get("spare"):
                return {"changed": False}
            raise

    def weights_remove(self) -> dict[str, Any]:
        """The lock is free between two files: large ones take their time, and the lease must be renewed."""
        going = leaving.Leaving(self.arguments, self.folder)
        link = going.link()
        if link is not None:
            raise ArgumentsError("%s is a link: what lies behind it is not removed" % link)
        with self.fenced():
            paths = going.paths()
        changed = False
        for path in paths:
            with self.fenced():
                changed = leaving.unlink(path) or changed
        with self.fenced():
            going.tidy()
        return {"changed": changed}

    # Programs

    def unit(self) -> unit_act.Unit:
        name = str(self.argument("name"))
        if not NAME.match(name):
            raise ArgumentsError("%r is no name of a unit" % name)
        return unit_act.Unit(self.folder, name)

    def unit_start(self) -> dict[str, Any]:
        unit = self.unit()
        words = [str(word) for word in self.argument("argv")]
        with self.fenced():
            begun = unit.begin(dict(self.argument("labels")), words, put)
        unit.wait_started()
        return {"changed": begun}

    def unit_remove(self) -> dict[str, Any]:
        unit = self.unit()
        with self.fenced():
            if not unit.end():
                return {"changed": False}
        unit.wait_ended(float(self.arguments.get("grace", 10.0)))
        with self.fenced():
            unit.forget()
        return {"changed": True}

    def program_run(self) -> dict[str, Any]:
        """Run one of our own programs; what has to outlive this call is detached by the program itself."""
        import subprocess

        path = self.path()
        with self.fenced():
            put(path, a2b_base64(self.argument("content")), 0o644)
        done = subprocess.run(
            [sys.executable, "-I", "-S", path, *self.argument("argv")],
            input=str(self.arguments.get("input", "")).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=float(self.arguments.get("seconds", 60.0)),
        )
        said = done.stderr.decode("utf-8", "replace")[-2000:]
        return {"exit": done.returncode, "output": done.stdout.decode(), "said": said}


def masked(text: bytes, arguments: dict[str, Any]) -> bytes:
    """The log with keys and tokens covered, as ``container.logs.keep`` is told to."""
    harmless = {word.encode() for word in arguments.get("harmless") or ()}
    cover = str(arguments.get("mask", "")).encode()

    def replacement(found: re.Match[bytes]) -> bytes:
        return found[0] if found[2].lower() in harmless else found[1] + cover

    for pattern, exact in arguments.get("masks") or ():
        text = re.sub(pattern.encode(), replacement, text, flags=0 if exact else re.IGNORECASE)
    return text


def numbered(folder: str) -> list[tuple[int, str]]:
    """The folders ``name-N`` in a folder, the largest N first."""
    found = []
    for name in wire.listed(folder):
        number, path = wire.number(name.rpartition("-")[2]), os.path.join(folder, name)
        if number is not None and os.path.isdir(path) and not os.path.islink(path):
            found.append((number, path))
    return sorted(found, reverse=True)


def size_of(folder: str) -> int:
    """Bytes of the files directly in a folder."""
    return sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(folder))


def set_aside(path: str, unless: bytes | None = None) -> str | None:
    """Keep a damaged file under another name, beside; that name, or None when there was nothing to keep."""
    content = content_of(path)
    if content is None or content == unless:
        return None
    kept = "%s.damaged-%s" % (path, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
    os.replace(path, kept)
    return kept


def content_of(path: str) -> bytes | None:
    """The bytes of a file; None when there is none."""
    try:
        with wire.regular(path) as stream:
            return stream.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def entries_in(content: bytes) -> list[Any] | None:
    """The entries of a history; None when it is damaged."""
    try:
        entries = json.loads(content.decode())["entries"]
    except (ValueError, KeyError, TypeError):
        return None
    return entries if isinstance(entries, list) else None


def known_as(entry: Any, identifier: str) -> bool:
    return isinstance(entry, dict) and entry.get("id") == identifier


def newest(entries: list[Any], limit: int) -> list[Any]:
    """So many, in their order. Faults that come and go make room before what restarts are counted by."""
    counted = [n for n, each in enumerate(entries) if isinstance(each, dict) and each.get("event") in COUNTED]
    kept = set(counted[max(0, len(counted) - limit // 2) :])
    for number in reversed(range(len(entries))):
        if len(kept) >= limit:
            break
        kept.add(number)
    return [entries[number] for number in sorted(kept)]


def key_in(content: bytes | None, template: bytes) -> str | None:
    """The key that a filled template holds; None when the content is not of that template."""
    before, _, after = template.partition(b"{key}")
    if content is None or not content.startswith(before) or not content.endswith(after):
        return None
    key = content[len(before) : len(content) - len(after)].decode("ascii", "replace")
    return key if key.isprintable() and key and not set(key) & set(' \\"\ufffd') else None


def key_of(path: str) -> str | None:
    """The key in a file; None when there is none (an empty file is none)."""
    try:
        with wire.regular(path) as stream:
            return stream.read().decode("ascii").strip() or None
    except FileNotFoundError:
        return None


def make_folder(state: str, folder: str) -> None:
    """A folder and those above it, where they are absent. Those outside the state folder, whose lock is held,
    are remembered: `leaving.remove_made` takes them away."""
    absent = []
    while not os.path.lexists(folder) and not leaving.is_within(folder, state):
        absent.append(folder)
        folder = os.path.dirname(folder)
    try:
        os.makedirs(next(iter(absent), folder), exist_ok=True)
    finally:
        made = {os.path.realpath(path): os.stat(path).st_ino for path in absent if os.path.isdir(path)}
        if made:
            record = os.path.join(state, leaving.MADE)
            os.makedirs(os.path.dirname(record), exist_ok=True)
            content = json.dumps({**leaving.inodes_in(record), **made}).encode()
            lease.replace_file(record, content, 0o644)


def put(path: str, content: bytes, mode: int) -> bool:
    """Make the file what is asked for, whole, folders included. False when it was already."""
    try:
        with wire.regular(path) as stream:
            same = stat.S_IMODE(os.fstat(stream.fileno()).st_mode) == mode
            if same and stream.read(len(content) + 1) == content:
                return False
    except (FileNotFoundError, NotADirectoryError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    lease.replace_file(path, content, mode)
    return True


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Perform a request; what went wrong is part of the answer."""
    kinds = ((lease.LeaseError, "lease"), (wire.EngineError, "docker"), (OSError, "os"))
    try:
        return {"result": Act(request).perform()}
    except ArgumentsError as error:
        return {"error": {"kind": "arguments", "message": str(error)}}
    except Exception as error:
        kind = next((name for kind, name in kinds if isinstance(error, kind)), "internal")
        message = wire.describe(error) if kind in ("os", "internal") else str(error)
        failure: dict[str, Any] = {"kind": kind, "message": message}
        if isinstance(error, lease.LeaseError):
            failure["lease"] = error.lease
        return {"error": failure}


def main(stdin: BinaryIO, stdout: BinaryIO) -> int:
    for request in wire.requests(stdin):
        nonce = request["nonce"]
        wire.write_answer(stdout, nonce, {"version": VERSION, "nonce": nonce, **answer(request)})
    return 0
