"""What the controller remembers between commands: the clusters that were applied from this machine.

A convenience for the human, never proof of the world: what is true is read from the nodes.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import platformdirs

from sparkop.errors import UsageError
from sparkop.records import dataclass


@dataclass(frozen=True)
class Rollback:
    """One that was begun: the user's file that it has left, in ``words`` with its overlays and ``--set``, and
    the kept spec that it goes to; ``served``: that one came ready."""

    left: str
    words: str
    goes_to: str
    served: bool = False


@dataclass(frozen=True)
class Applied:
    """One apply: the spec file, its overlays and its ``--set``, all absolute.

    ``rollback``: it was one, or goes on with one. ``fled``: kept specs that a rollback has left; none goes
    there until they are applied again.
    """

    cluster: str
    spec: str
    overlays: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    rollback: Rollback | None = None
    fled: tuple[str, ...] = ()


def state_directory() -> Path:
    """``$XDG_STATE_HOME/sparkop`` or the platform's place for it."""
    return Path(platformdirs.user_state_dir("sparkop"))


def remember(applied: Applied | None) -> None:
    """Make this the cluster that was applied last; None: there is none. Atomic; a full disk loses the memory,
    not the apply."""
    if applied is None:
        _last().unlink(missing_ok=True)
        return
    for path in (_own(applied.cluster), _last()):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = path.parent / f".{path.stem}.{os.getpid()}.json"
        draft.write_text(json.dumps(asdict(applied), indent=2) + "\n", encoding="utf-8")
        draft.replace(path)


def _last() -> Path:
    return state_directory() / "last.json"


def _own(cluster: str) -> Path:
    """The same of one cluster, whichever was applied since."""
    return state_directory() / "applied" / f"{cluster}.json"


def last_applied() -> Applied | None:
    """The cluster that was applied last; None when there is none. Raises UsageError when it can't be told."""
    return _read(_last())


def last_of(cluster: str) -> Applied | None:
    """The last apply of one cluster; None when none is known. Raises UsageError when it can't be told."""
    last = _read(_own(cluster)) or last_applied()
    return last if last and last.cluster == cluster else None


def _read(path: Path) -> Applied | None:
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Applied(
            cluster=str(document["cluster"]),
            spec=str(document["spec"]),
            overlays=tuple(map(str, document.get("overlays", ()))),
            sets=tuple(map(str, document.get("sets", ()))),
            rollback=Rollback(**document["rollback"]) if document.get("rollback") else None,
            fled=tuple(map(str, document.get("fled", ()))),
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is damaged"
        raise UsageError(
            "no spec named, and which one was applied last can't be told",
            cause=f"{path}: {why}",
            remedy="name the spec; the next sparkop apply that names one mends that file",
        ) from None
