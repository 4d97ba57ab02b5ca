"""The lab's hub, from outside: put repositories in, turn its knobs, read what it was asked.

All of it works on files of the lab's state, so no namespace has to be entered.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from sparkop.lab.layout import CONTROLLER_ADDRESS, HUB_PORT, LabPaths
from sparkop.records import dataclass

SERVER = Path(__file__).with_name("inside") / "hub_server.py"


@dataclass(frozen=True)
class Failure:
    """Answer the next ``count`` requests whose path matches ``match`` with ``status``."""

    status: int
    count: int = 1
    match: str = ""
    """Regular expression, searched in the path."""
    retry_after: int | None = None
    """Seconds in a Retry-After header."""


@dataclass(frozen=True)
class Knobs:
    """How the hub behaves. The default is a healthy, public hub."""

    token: str | None = None
    """The one good token. Another one is answered 401."""
    private: tuple[str, ...] = ()
    """Repositories that answer "not found" without the token."""
    gated: tuple[str, ...] = ()
    """Repositories that answer 401 without and 403 with the token."""
    xet: tuple[str, ...] = ()
    """Repositories whose large files have a Xet hash, as on the public hub. Only plain HTTP gives them."""
    signed_seconds: int | None = None
    """So long the address of a large file holds; from then on it is answered 403."""
    failures: tuple[Failure, ...] = ()
    bytes_per_second: int | None = None
    cut_after: int = 0
    """Bytes after which a file's answer is cut off,"""
    cut_count: int = 0
    """in so many answers"""
    cut_match: str = ""
    """whose path matches this."""


@dataclass(frozen=True)
class Request:
    """One request that the hub answered."""

    time: float
    method: str
    path: str
    range: str | None
    status: int
    bytes: int
    """Bytes of the body that were sent."""
    authorized: bool
    """Whether an Authorization header came with it."""


def prepare(paths: LabPaths) -> list[str]:
    """Make the hub's folders and return the command that runs it."""
    for folder in (paths.repositories, paths.hub):
        folder.mkdir(parents=True, exist_ok=True)
    return [sys.executable, "-IS", str(SERVER), str(paths.repositories), str(paths.hub), CONTROLLER_ADDRESS,
            str(HUB_PORT)]  # fmt: skip


def add_repository(
    files: Path | Mapping[str, Path | bytes],
    repository: str,
    *,
    revision: str = "main",
    lab: str | None = None,
) -> str:
    """Put files into ``repository`` (OWNER/NAME) as a new commit that ``revision`` points to.

    files: a folder, or names in the repository to files or content. Returns the commit (40 hex digits),
    which depends on names and content only. Older commits stay.
    """
    content = _listed(files) if isinstance(files, Path) else files
    home = LabPaths.of(lab).repositories / repository
    commit = _commit(content)
    if not (home / commit).is_dir():
        temporary = home / f".{commit}"
        shutil.rmtree(temporary, ignore_errors=True)
        for name, source in content.items():
            target = temporary / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(source, bytes):
                target.write_bytes(source)
            else:
                shutil.copy(source, target)
        temporary.rename(home / commit)
    ref = home / "refs" / revision
    ref.parent.mkdir(parents=True, exist_ok=True)
    ref.write_text(commit)
    return commit


def turn(knobs: Knobs, *, lab: str | None = None) -> None:
    """Make the hub behave as ``knobs`` say from the next request on; counts start anew."""
    file = LabPaths.of(lab).hub / "knobs.json"
    temporary = file.with_suffix(".new")
    temporary.touch(mode=0o600)
    temporary.write_text(json.dumps(asdict(knobs)))
    temporary.replace(file)


def requests(*, lab: str | None = None) -> list[Request]:
    """What the hub was asked since the lab came up, oldest first."""
    file = LabPaths.of(lab).hub / "requests.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return [Request(**json.loads(line)) for line in lines]


def _listed(folder: Path) -> dict[str, Path | bytes]:
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}


def _commit(content: Mapping[str, Path | bytes]) -> str:
    digest = hashlib.sha1(usedforsecurity=False)
    for name, source in sorted(content.items()):
        data = source if isinstance(source, bytes) else source.read_bytes()
        digest.update(f"{name}\0{hashlib.sha256(data).hexdigest()}\n".encode())
    return digest.hexdigest()
