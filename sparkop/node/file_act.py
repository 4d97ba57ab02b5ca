"""Effects on a node's files: files and folders, the API key, a human's intent, the history, weights.

Stdlib-only, Python 3.8 or newer. Each is safe to repeat; ``changed`` tells whether it was there already. They
run under the lease's lock, except ``remove_weights``, which takes it for each file.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import stat
import time
from binascii import a2b_base64
from typing import Any
from urllib.parse import quote

from . import ground, lease, leaving, wire
from .request import ArgumentsError, Request

COUNTED = ("start", "ready", "served", "damaged", "cleared")
"""Entries of a history that say which group runs, whether it has served, and how often it was restarted."""
PULLED = "pulled"
"""An entry that says that an image is ours to remove; one for each."""


def write(request: Request) -> dict[str, Any]:
    """Make a file what is asked for; a damaged one is kept beside it."""
    content, path = a2b_base64(request.argument("content")), request.path()
    if request.arguments.get("aside"):
        set_aside(path, unless=content)
    return {"changed": put(path, content, int(request.arguments.get("mode", 0o644)))}


def remove(request: Request) -> dict[str, Any]:
    """Remove a file, or keep it aside."""
    if request.arguments.get("aside"):
        return {"changed": set_aside(request.path())}
    try:
        os.unlink(request.path())
    except (FileNotFoundError, NotADirectoryError):
        return {"changed": False}
    return {"changed": True}


def ensure_directory(request: Request) -> dict[str, Any]:
    """Make a folder, with its mode."""
    path, mode = request.path(), int(request.arguments.get("mode", 0o755))
    if os.path.isdir(path):
        if "mode" not in request.arguments or stat.S_IMODE(os.stat(path).st_mode) == mode:
            return {"changed": False}
    else:
        make_folder(request.folder, path)
    os.chmod(path, mode)
    return {"changed": True}


def remove_directory(request: Request) -> dict[str, Any]:
    """Remove a folder below the state folder, or that one, but for the files in it that are to be kept; never
    the folder ``apart``. Of the state folder goes what is ours, the owner's mark last: the run after an
    interrupted one goes by it. The state folder may be a link, which goes too, or lie behind one; below it,
    none is followed."""
    path, top = request.path(), os.path.realpath(request.folder)
    real = os.path.realpath(path)
    below = leaving.is_within(path, request.folder)
    named = os.path.normpath(os.path.join(top, os.path.relpath(path, request.folder))) if below else path
    if real != named or not leaving.is_within(real, top):
        raise ArgumentsError("%s is not below the state folder" % path)
    apart = request.arguments.get("apart")
    within = ground.inside(str(apart), real) if apart else None
    if within:
        raise ArgumentsError("%s lies within %s: nothing is removed there" % (within, path))
    if not os.path.isdir(real):
        return {"changed": False}
    if real == top:
        leaving.remove_made(real)
    names = os.listdir(real)
    left = ground.foreign(names, request.arguments.get("ours") or [], request.folder) if real == top else []
    kept = {*(request.arguments.get("keep") or ()), *left, ground.DISKS}.intersection(names)
    for name in sorted(set(names) - kept, key=lambda name: name == ground.OWNER):
        each = os.path.join(real, name)
        (shutil.rmtree if os.path.isdir(each) and not os.path.islink(each) else os.unlink)(each)
    if not kept:
        _remove_empty(request.folder if real == top else path)
    if real == top:
        leaving.remove_home(request.folder)
    return {"changed": True, **({"left": left} if left else {})}


def _remove_empty(path: str) -> None:
    """A folder, and the link to it. One that is a disk's, or lies in a folder of root's, stays, empty."""
    real = os.path.realpath(path)
    if os.path.islink(path):
        os.unlink(path)
    try:
        os.rmdir(real)
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.EACCES, errno.EPERM):
            raise


def prune_directory(request: Request) -> dict[str, Any]:
    """Keep the newest of the folders ``name-N``."""
    path, keep = request.path(), int(request.argument("keep"))
    left, removed = int(request.argument("most")), False
    for place, (_, folder) in enumerate(numbered(path)):
        left -= size_of(folder)
        if place >= keep or (left < 0 and place):  # the newest stays, whatever its size
            shutil.rmtree(folder)
            removed = True
    return {"changed": removed}


def ensure_key(request: Request) -> dict[str, Any]:
    """Make the key once, and the file that hands it to the engine; the key itself is never answered.

    A key that is lost is the one that runs, or was handed to the engine last, as far as that is known:
    clients have it.
    """
    path, config = request.path(), request.arguments.get("config")
    key = key_of(path)
    made = key is None
    if key is None:  # a base64 key could begin with a dash, which engines take for a flag
        key = _known_key(request) or secrets.token_hex(32)
        put(path, key.encode() + b"\n", 0o600)
    os.chmod(path, 0o600)
    handed = False
    if config:
        text = str(config["template"]).replace("{key}", key)
        handed = put(wire.expand(str(config["path"]), request.folder), text.encode(), 0o600)
    return {"changed": made or handed}


def write_intent(request: Request) -> dict[str, Any]:
    """A human's word about the cluster; null takes it back."""
    path, document = os.path.join(request.folder, "intent.json"), request.argument("document")
    if document is None:
        if not os.path.exists(path):
            return {"changed": False}
        os.unlink(path)
        return {"changed": True}
    return {"changed": put(path, json.dumps(document, sort_keys=True).encode() + b"\n", 0o644)}


def append_history(request: Request) -> dict[str, Any]:
    """Add an entry once, or in the place of the one with its id. A damaged history is kept aside and begun
    anew."""
    entry, limit = request.argument("entry"), int(request.arguments.get("limit", 200))
    path = os.path.join(request.folder, "history.json")
    found = content_of(path)
    entries, damaged = [] if found is None else entries_in(found), False
    if entries is None:
        kept, now, damaged = os.path.basename(set_aside(path) or ""), time.time(), True
        entries = [{"id": "damaged-%d" % now, "event": "damaged", "at": now, "kept": kept}]
    after = with_entry(entries, entry, bool(request.arguments.get("replace")))
    if after == entries and not damaged:
        return {"changed": False}
    return {"changed": put(path, history_of(newest(after, limit)), 0o600)}


def drop_from_history(request: Request) -> dict[str, Any]:
    """Take an entry back. In a damaged history it is not found."""
    identifier, path = str(request.argument("id")), os.path.join(request.folder, "history.json")
    entries = entries_in(content_of(path) or b"") or []
    after = [each for each in entries if not known_as(each, identifier)]
    return {"changed": after != entries and put(path, history_of(after), 0o600)}


def remove_weights(request: Request) -> dict[str, Any]:
    """The lock is free between two files: large ones take their time, and the lease must be renewed."""
    going = leaving.Leaving(request.arguments, request.folder)
    link = going.link()
    if link is not None:
        raise ArgumentsError("%s is a link: what lies behind it is not removed" % link)
    with request.fenced():
        paths = going.paths()
    changed = False
    for path in paths:
        with request.fenced():
            changed = leaving.unlink(path) or changed
    with request.fenced():
        going.tidy()
    return {"changed": changed}


def _known_key(request: Request) -> str | None:
    """The key in the file that a running engine has mounted, else in the one that was made for it."""
    config = request.arguments.get("config")
    if not config:
        return None
    template = str(config["template"]).encode()
    running = request.arguments.get("running")
    mounted = _mounted(request, str(running["container"]), str(running["path"])) if running else None
    return key_in(mounted, template) or key_in(
        content_of(wire.expand(str(config["path"]), request.folder)), template
    )


def _mounted(request: Request, container: str, path: str) -> bytes | None:
    """A file as a running container sees it: one that was replaced beside it is still mounted there."""
    name = quote(container, safe="")
    ask = {"AttachStdout": True, "Cmd": ["cat", path]}
    try:
        made = request.engine.json("POST", "/containers/%s/exec" % name, ask)["Id"]
        raw = request.engine.request("POST", "/exec/%s/start" % made, {"Detach": False, "Tty": False})
    except (wire.EngineError, OSError, ValueError, KeyError, TypeError):
        return None  # it is not running, or has no cat
    return b"".join(wire.log_parts(raw))


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


def history_of(entries: list[Any]) -> bytes:
    """The content of the file."""
    return json.dumps({"version": 1, "entries": entries}).encode() + b"\n"


def with_entry(entries: list[Any], entry: dict[str, Any] | None, replace: bool) -> list[Any]:
    """The entries and a new one; one with its id stays in its stead, unless it is to be replaced."""
    if not entry or entry in entries:
        return entries
    others = [each for each in entries if not known_as(each, entry["id"])]
    return [*others, entry] if replace or len(others) == len(entries) else entries


def known_as(entry: Any, identifier: str) -> bool:
    return isinstance(entry, dict) and entry.get("id") == identifier


def newest(entries: list[Any], limit: int) -> list[Any]:
    """So many, in their order. Faults that come and go make room before what restarts are counted by, and
    before what is ours."""
    events = [each.get("event") if isinstance(each, dict) else None for each in entries]
    counted = [number for number, event in enumerate(events) if event in COUNTED]
    pulled = [number for number, event in enumerate(events) if event == PULLED]
    kept = {*counted[max(0, len(counted) - limit // 2) :], *pulled[max(0, len(pulled) - limit // 4) :]}
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
