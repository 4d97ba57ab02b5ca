"""Host keys that the user's ssh knows: known_hosts files as in sshd(8), with hashed names and patterns."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from sparkop.records import dataclass


@dataclass(frozen=True)
class KnownKeys:
    """What the files say of one host: its keys (type, key in wire form), and those that are revoked."""

    keys: tuple[tuple[str, bytes], ...] = ()
    revoked: frozenset[bytes] = frozenset()


def known_keys(files: Iterable[Path], name: str) -> KnownKeys:
    """The keys of a host; ``name`` is ``host`` or ``[host]:port``. Files that can't be read are skipped."""
    keys: list[tuple[str, bytes]] = []
    revoked: set[bytes] = set()
    for file in files:
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for line in text.splitlines():
            marker, names, kind, key = _fields(line)
            if key is None or not _matches(names, name):
                continue
            if marker == "@revoked":
                revoked.add(key)
            elif not marker:  # a certificate authority's key is not the host's
                keys.append((kind, key))
    return KnownKeys(tuple(keys), frozenset(revoked))


def add_key(file: Path, name: str, kind: str, key: bytes) -> None:
    """Note a key, as ssh does with StrictHostKeyChecking=accept-new."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with file.open("a", encoding="ascii") as stream:
        stream.write(f"{name} {kind} {b64encode(key).decode()}\n")


def fingerprint(key: bytes) -> str:
    """As ``ssh-keygen -l`` prints it."""
    return "SHA256:" + b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def _fields(line: str) -> tuple[str, str, str, bytes | None]:
    """Marker, names, key type, key; the key is None for a line that holds none."""
    words = line.split()
    marker = words.pop(0) if words and words[0].startswith("@") else ""
    if len(words) < 3 or words[0].startswith("#"):
        return marker, "", "", None
    try:
        return marker, words[0], words[1], b64decode(words[2], validate=True)
    except ValueError:
        return marker, "", "", None


def _matches(names: str, name: str) -> bool:
    """Whether a list of names or patterns means the host; one that is negated excludes it."""
    found = False
    for pattern in names.split(","):
        if pattern.startswith("|1|"):
            found = found or _is_hash_of(pattern, name)
        elif pattern.startswith("!"):
            if fnmatchcase(name.lower(), _literal_brackets(pattern[1:].lower())):
                return False
        elif fnmatchcase(name.lower(), _literal_brackets(pattern.lower())):
            found = True
    return found


def _literal_brackets(pattern: str) -> str:
    """Only ``*`` and ``?`` are special in known_hosts; brackets stand around a host with a port."""
    return pattern.replace("[", "[[]")


def _is_hash_of(pattern: str, name: str) -> bool:
    _, _, salt, digest = [*pattern.split("|"), "", ""][:4]
    try:
        made = hmac.new(b64decode(salt), name.encode(), hashlib.sha1).digest()
        return hmac.compare_digest(made, b64decode(digest))
    except ValueError:
        return False
