"""What a checkpoint's files are, held against what they should be: a part of the probe.

Stdlib-only, Python 3.8 or newer. Imported when weights are asked for.
"""

from __future__ import annotations

import os
import stat
from binascii import crc32

from . import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HASHES = ("sha256", "git", "pieces")
POINTER = b"version https://git-lfs.github.com/spec/v1"
LARGEST_POINTER = 1024
"""Bytes; git-lfs takes nothing larger for one."""


def compare(wanted: dict[str, Any], ledger: dict[str, Any] | None) -> dict[str, Any]:
    """Compare the wanted files with the ledger by stat alone. Size is never taken for proof.

    Without a ledger every file of the right size is hashed, several at a time.
    """
    directory = os.path.realpath(wire.expand(wanted["directory"]))
    found: dict[str, Any] = {
        "directory": directory,
        "exists": os.path.isdir(directory),
        "verified": 0,
        "verified_bytes": 0,
        "bytes": 0,
        "dates": 0,
        "inodes": 0,
    }
    lists: dict[str, list[str]] = {"missing": [], "wrong": [], "unverified": []}
    flaws: dict[str, str] = {}
    files = wanted.get("files") or ()
    if ledger is None:
        ledger = hashed(directory, files)
    for file in files:
        path = os.path.realpath(os.path.join(directory, file["path"]))
        try:
            facts = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            lists["missing"].append(file["path"])
            if file.get("made_of"):
                flaws[file["path"]] = in_parts(directory, file["made_of"])
            continue
        found["bytes"] += facts.st_size
        dated = "%s %d %d" % (file["path"], facts.st_size, facts.st_mtime)
        found["dates"] = crc32(dated.encode(), found["dates"])
        found["inodes"] = crc32(b"%d" % facts.st_ino, found["inodes"])
        verdict = judge(file, facts, ledger.get(path))
        if verdict == "verified":
            found["verified"] += 1
            found["verified_bytes"] += facts.st_size
        else:
            lists[verdict].append(file["path"])
            if verdict == "wrong":
                flaws[file["path"]] = flaw(path, file, facts)
    found.update(lists, flaws=flaws)
    return found


def in_parts(directory: str, parts: list[str]) -> str:
    """What there is of a file that comes in parts and was not put together."""
    here = sum(os.path.isfile(os.path.join(directory, part)) for part in parts)
    if not here:
        return "none of its %d parts is here" % len(parts)
    return "%d of its %d parts are here, not put together" % (here, len(parts))


def hashed(directory: str, files: Any) -> dict[str, Any]:
    """What a ledger would hold had each of these files just been hashed; unreadable ones are left out."""
    from concurrent.futures import ThreadPoolExecutor

    def one(file: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
        path = os.path.realpath(os.path.join(directory, file["path"]))
        try:
            facts = os.stat(path)
            if facts.st_size != file.get("size") or not stat.S_ISREG(facts.st_mode):
                return path, None
            return path, {**stamp(facts), **hashes(path, file)}
        except OSError:
            return path, None

    with ThreadPoolExecutor(max(1, min(4, os.cpu_count() or 1))) as pool:
        return {path: entry for path, entry in pool.map(one, files) if entry is not None}


def hashes(path: str, file: dict[str, Any]) -> dict[str, str]:
    """The kind of hash that the file is known by, of its bytes. Their pages are dropped from the cache."""
    import hashlib

    digest = hashlib.sha1(b"blob %d\0" % file["size"]) if file.get("git") else hashlib.sha256()
    buffer = memoryview(bytearray(1 << 20))
    pieces = []
    with wire.regular(path) as stream:
        for size in [size for size, _ in file.get("parts") or ()] or [file["size"]]:
            piece = digest.copy()
            left = size
            while left:
                count = stream.readinto(buffer[: min(left, len(buffer))])
                if not count:
                    break
                piece.update(buffer[:count])
                left -= count
            pieces.append(piece.hexdigest())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if file.get("pieces"):
        same = pieces == [value for _, value in file["parts"]]
        return {"pieces": file["pieces"] if same else "other parts"}
    return {"git" if file.get("git") else "sha256": pieces[0]}


def stamp(facts: os.stat_result) -> dict[str, int]:
    """What tells that a file is still the one that was hashed; a device's number may change at a boot."""
    return {
        "inode": facts.st_ino,
        "size": facts.st_size,
        "mtime_ns": facts.st_mtime_ns,
        "ctime_ns": facts.st_ctime_ns,
    }


def judge(file: dict[str, Any], facts: os.stat_result, entry: Any) -> str:
    """``verified``, ``wrong`` or ``unverified``."""
    if file.get("size") is not None and facts.st_size != file["size"]:
        return "wrong"
    if not stat.S_ISREG(facts.st_mode):
        return "wrong"
    if not isinstance(entry, dict) or any(entry.get(key) != value for key, value in stamp(facts).items()):
        return "unverified"
    asked = {kind: file[kind] for kind in HASHES if file.get(kind)}
    known = {kind: entry[kind] for kind in asked if entry.get(kind)}
    if not known:
        return "unverified"
    return "verified" if all(known[kind] == asked[kind] for kind in known) else "wrong"


def flaw(path: str, file: dict[str, Any], facts: os.stat_result) -> str:
    """Why `judge` says ``wrong``, in a few words."""
    if not stat.S_ISREG(facts.st_mode):
        return "not a regular file"
    if facts.st_size <= LARGEST_POINTER:
        try:
            with wire.regular(path) as opened:
                if opened.read(len(POINTER)) == POINTER:
                    return "a git LFS pointer in place of the file"
        except OSError:
            pass  # what is said of its size holds all the same
    if facts.st_size != file.get("size", facts.st_size):
        return "%d bytes, not %d" % (facts.st_size, file["size"]) if facts.st_size else "empty"
    return "other bytes than published"
