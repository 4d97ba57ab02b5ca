"""What a transfer is about: files, the pieces they come in, and the job."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shlex
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple

BLOCK = 8 << 20
"""Bytes of a block, the unit that is durable or not."""

_PART = re.compile(r"(.+)\.part\d+")


class TransferError(Exception):
    """Ends a job; told to the user in these words.

    ``kind``: ``refused`` (401, 403), ``missing`` (404), ``content`` (wrong bytes), ``space``, ``place`` (the
    folder can't be used), ``engine`` (Docker gave no answer), ``network``, ``source`` (the node that we copy
    from gave up), ``job`` (malformed), ``busy``.
    """

    def __init__(self, kind: str, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.remedy = remedy


class StoppedError(Exception):
    """The job was told to stop."""


def status_file(kind: str) -> str:
    """Where a job of a kind tells how far it is, below the state folder: an image and the weights come side
    by side."""
    return "image.json" if kind == "image" else "transfer.json"


def size_text(count: float) -> str:
    """``1.5 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return "%d B" % count if unit == "B" else "%.1f %s" % (count, unit)
        count /= 1024
    return "%.1f TiB" % count


def as_transfer_error(error: OSError, folder: str = "") -> TransferError:
    """A failure of the node's own disk, in the user's words. ``folder``: where it was, if the error has no
    name (a write has none)."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TransferError(
            "space", "the disk is full (%s)" % (error.filename or folder or "while writing"),
            "free space and run the same command again: everything that is here is kept and used",
        )  # fmt: skip
    if error.errno == errno.EROFS:
        return read_only(str(error.filename or "the disk"))
    if error.errno == errno.EIO:
        return TransferError(
            "place", "the disk does not give or take bytes (%s)" % error,
            "look at dmesg on the node: the disk may be failing",
        )  # fmt: skip
    if error.errno in (errno.EISDIR, errno.ENOTDIR, errno.EEXIST):
        path = str(error.filename2 or error.filename)
        return no_folder(path) if error.errno != errno.EISDIR else no_file(path)
    return TransferError("place", str(error), "see that the user of this node may write there")


def no_file(path: str) -> TransferError:
    """A folder lies where a file belongs."""
    return TransferError("place", "%s is a folder, it should be a file" % path, _aside(path))


def no_folder(path: str) -> TransferError:
    """A file lies where a folder belongs, on the way to ``path``."""
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return TransferError("place", "%s is a file, it should be a folder" % path, _aside(path))


def _aside(path: str) -> str:
    return "on the node: mv %s %s" % (shlex.quote(path), shlex.quote(path + ".aside"))


def read_only(path: str) -> TransferError:
    """Nothing can be written there, whoever asks."""
    return TransferError(
        "place", "%s is on a file system that is mounted read-only" % path,
        "mount it writable (dmesg on the node says whether an error made it read-only), or set weights.path",
    )  # fmt: skip


@dataclass(frozen=True)
class Piece:
    """A file of the repository that makes up a wanted file, or a part of it."""

    path: str
    size: int
    sha256: Optional[str] = None


def pieces_hash(pieces: Tuple[Piece, ...]) -> str:
    """Identity of a rebuilt file whose own hash nobody published: SHA-256 over its parts' own."""
    text = "".join("%s %d\n" % (piece.sha256, piece.size) for piece in pieces)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class File:
    """A wanted file and how its bytes are recognised: ``sha256``, ``git`` (blob SHA-1), or by its parts."""

    path: str
    size: int
    sha256: Optional[str] = None
    git: Optional[str] = None
    parts: Tuple[Piece, ...] = ()

    @property
    def pieces(self) -> Tuple[Piece, ...]:
        """The files of the repository that hold its bytes, in order."""
        return self.parts or (Piece(self.path, self.size, self.sha256),)

    @property
    def wanted(self) -> Tuple[str, str]:
        """Name of the hash in the ledger, and its value."""
        if self.sha256:
            return "sha256", self.sha256
        if self.git:
            return "git", self.git
        return "pieces", pieces_hash(self.parts)

    @property
    def key(self) -> str:
        """Names its staging files. Other bytes or another place: another key."""
        name, value = self.wanted
        return hashlib.sha256(("%s %s %s" % (name, value, self.path)).encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Block:
    """A run of bytes of a file that lies in one piece."""

    index: int
    offset: int
    length: int
    piece: int
    piece_offset: int


def blocks_of(file: File, size: int = BLOCK) -> List[Block]:
    """The file cut into blocks; no block crosses from one piece into the next."""
    blocks: List[Block] = []
    start = 0
    for number, piece in enumerate(file.pieces):
        for offset in range(0, piece.size, size):
            length = min(size, piece.size - offset)
            blocks.append(Block(len(blocks), start + offset, length, number, offset))
        start += piece.size
    return blocks


def check_path(path: str) -> str:
    """A relative path that stays inside its folder. Raises TransferError."""
    parts = path.split("/")
    if not path or "\0" in path or "" in parts or "." in parts or ".." in parts:
        raise TransferError("job", "refused path %r: it leaves the weights folder" % path)
    return path


def parse_file(document: Mapping[str, Any]) -> File:
    """A file of a job. Raises TransferError."""
    parts = tuple(
        Piece(check_path(part["path"]), int(part["size"]), part["sha256"])
        for part in document.get("parts", ())
    )
    file = File(
        check_path(document["path"]),
        int(document["size"]),
        document.get("sha256"),
        document.get("git"),
        parts,
    )
    if not (file.sha256 or file.git or file.parts):
        raise TransferError("job", "%s has no hash to be checked against" % file.path)
    if parts and sum(part.size for part in parts) != file.size:
        raise TransferError("job", "the parts of %s do not add up to its size" % file.path)
    return file


@dataclass(frozen=True)
class Job:
    """What one run does. ``secrets`` come over stdin and stay in memory.

    ``sources``: ``{"kind": "hub", "base": URL}``, ``{"kind": "peer", "base": URL}`` (secret ``peer``) or
    ``{"kind": "ssh", "command": [argv]}``; with ``address``, ``from`` and ``interface`` the way there is
    checked, ``node`` is its name. ``search``: folders where the same bytes may already lie. ``streams``:
    connections; ``rate``: bytes a second in all, 0 for no limit; ``patience``: seconds without a byte after
    which a job gives up.
    """

    kind: str
    directory: str
    files: Tuple[File, ...]
    sources: Tuple[Mapping[str, Any], ...] = ()
    hub: Optional[Mapping[str, str]] = None
    """Hub cache layout: ``folder`` (models--org--name), ``commit``, ``reference`` (branch or empty)."""
    search: Tuple[str, ...] = ()
    keep_parts: bool = False
    deep: bool = False
    streams: int = 8
    rate: int = 0
    patience: float = 900.0
    tag: str = ""
    """Of an image job: the name that the image gets. Its one file is the image, known by its id."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    document: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Without the secrets."""

    @property
    def id(self) -> str:
        """The same work has the same id, wherever its bytes come from."""
        document = {
            key: self.document.get(key) for key in ("kind", "directory", "files", "hub", "keep_parts", "deep")
        }
        if self.tag:
            document["tag"] = self.tag
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]


def parse_job(document: Mapping[str, Any]) -> Job:
    """A job as the controller sends it. Raises TransferError."""
    try:
        kept: Dict[str, Any] = {key: value for key, value in document.items() if key != "secrets"}
        return Job(
            kind=document["kind"],
            directory=os.path.expanduser(document["directory"]),
            files=tuple(parse_file(item) for item in document["files"]),
            sources=tuple(document.get("sources", ())),
            hub=document.get("hub"),
            search=tuple(os.path.expanduser(item) for item in document.get("search", ())),
            keep_parts=bool(document.get("keep_parts", False)),
            deep=bool(document.get("deep", False)),
            streams=max(1, int(document.get("streams", 8))),
            rate=int(document.get("rate", 0)),
            patience=float(document.get("patience", 900.0)),
            tag=str(document.get("tag", "")),
            secrets=dict(document.get("secrets", {})),
            document=kept,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise TransferError("job", "malformed job: %r" % error) from None


def part_of(path: str) -> Optional[str]:
    """The file that ``X.partNN`` is a part of; None for other names (``L05.part.safetensors`` is no part)."""
    match = _PART.fullmatch(path)
    return match.group(1) if match else None
