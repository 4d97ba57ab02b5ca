"""Connects Pi to a cluster, and undoes it. Every file is backed up and replaced in one step.

``<agent>/sparkop/<provider>/`` keeps, until undo: the backups (name and time), and record.json, which says
how each file was before sparkop and what sparkop wrote. A file that still is what sparkop wrote is put back
byte for byte; in one that others have changed since, only our parts are taken out.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sparkop.clients import pi_files
from sparkop.clients.files import (
    Change,
    check_writable,
    make_folders,
    missing_folders,
    read,
    remove_empty,
    write,
)
from sparkop.clients.jsonc import BrokenTextError
from sparkop.clients.profile import Profile
from sparkop.errors import BlockedError
from sparkop.records import dataclass


def agent_folder() -> Path:
    """Where Pi keeps its files: PI_CODING_AGENT_DIR, else ~/.pi/agent."""
    return Path(os.environ.get("PI_CODING_AGENT_DIR") or "~/.pi/agent").expanduser().absolute()


@dataclass(frozen=True)
class Kept:
    """What the record says of one file. ``base``: the backup that holds it as it was before sparkop; None:
    it was not there. ``written``: SHA-256 of what sparkop wrote; None: it took the file away."""

    base: str | None
    written: str | None


@dataclass(frozen=True)
class Record:
    """What was done to Pi's files for one provider."""

    provider: str
    model: str
    files: Mapping[str, Kept]
    made: tuple[str, ...] = ()
    """Folders that sparkop made."""


@dataclass(frozen=True)
class PiPlan:
    """What connecting, or undoing, would change."""

    folder: Path
    provider: str
    model: str
    changes: Mapping[str, Change]
    bases: Mapping[str, bytes | None]
    """The files as they would be without sparkop."""
    record: Record | None
    """As it was read for this plan."""

    @property
    def needed(self) -> tuple[Change, ...]:
        """Files to write."""
        return tuple(change for change in self.changes.values() if change.needed)


def plan_connect(profile: Profile, folder: Path) -> PiPlan:
    """Reads only. Raises BlockedError for a file that Pi can't read, that is no file, or that has to change
    and can't be written."""
    record = load_record(folder, profile.provider)
    current = _current(folder, profile.provider)
    bases = dict(current)
    after = _wanted(profile, folder, current)
    if record is not None:
        bases = _without_ours(folder, record, current)
        if after != current:  # from a clean start, so that nothing of an older spec stays
            after = _wanted(profile, folder, bases)
    changes = {name: Change(folder / name, current[name], after[name]) for name in after}
    plan = PiPlan(folder, profile.provider, profile.model, changes, bases, record)
    check_writable(plan.needed)
    return plan


def texts_of(plan: PiPlan) -> dict[str, str | None]:
    """The files as they are."""
    return _texts({name: change.before for name, change in plan.changes.items()})


def connect(plan: PiPlan) -> list[Path]:
    """Write what differs. Returns the backups. The record is written first: whatever interrupts this, undo
    and a second run find their way. Raises BlockedError when another run has come between: its record must
    stay that of its own files."""
    if not plan.needed:
        return []
    store = _store(plan.folder, plan.provider)
    old = load_record(plan.folder, plan.provider)
    if old != plan.record:
        raise BlockedError(
            f"{plan.folder} was connected by another sparkop just now", remedy="run the same command again"
        )
    writing = [change.path.parent for change in plan.needed if change.after is not None]
    made = [*(old.made if old else ()), *(str(f) for each in writing for f in missing_folders(each))]
    make_folders(store)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    backups: list[Path] = []
    kept: dict[str, Kept] = {}
    for name, change in plan.changes.items():
        base = plan.bases[name]
        before = old.files.get(name) if old else None
        if before is not None and _base(store, before) == base:
            base_name = before.base
        else:
            base_name = None if base is None else _save(store, name, stamp, base)
        if change.needed and change.before is not None and change.before != base:
            backups.append(store / _save(store, name, stamp, change.before))
        elif change.needed and base_name is not None:
            backups.append(store / base_name)
        kept[name] = Kept(base_name, _digest(change.after))
    _save_record(store, Record(plan.provider, plan.model, kept, tuple(dict.fromkeys(made))))
    for folder in writing:
        make_folders(folder)
    for change in plan.needed:
        write(change)
    return backups


def plan_undo(folder: Path, provider: str) -> PiPlan | None:
    """What undo would change; None when sparkop has not connected this provider. Reads only."""
    record = load_record(folder, provider)
    if record is None:
        return None
    current = _current(folder, provider)
    bases = _without_ours(folder, record, current)
    changes = {name: Change(folder / name, current[name], bases[name]) for name in current}
    return PiPlan(folder, provider, record.model, changes, bases, record)


def undo(plan: PiPlan) -> None:
    """Put the files back, then take backups, record and folders away."""
    record = load_record(plan.folder, plan.provider)
    for change in reversed(plan.needed):
        write(change)
    shutil.rmtree(_store(plan.folder, plan.provider))
    made = record.made if record else ()
    heir = next(iter(sorted((plan.folder / "sparkop").glob("*/record.json"))), None)
    other = load_record(plan.folder, heir.parent.name) if heir else None
    if other is None:
        remove_empty([plan.folder / "sparkop", *map(Path, made)])
    else:  # folders that we made for all go with the last one
        merged = tuple(dict.fromkeys((*made, *other.made)))
        _save_record(_store(plan.folder, other.provider), replace(other, made=merged))


def load_record(folder: Path, provider: str) -> Record | None:
    """The record of a provider. Raises BlockedError for one that can't be understood."""
    path = _store(folder, provider) / "record.json"
    content = read(path)
    if content is None:
        return None
    try:
        raw: dict[str, Any] = json.loads(content)
        files = {
            name: Kept(raw["files"][name]["base"], raw["files"][name]["written"]) for name in raw["files"]
        }
        return Record(str(raw["provider"]), str(raw["model"]), files, tuple(map(str, raw["made"])))
    except (ValueError, KeyError, TypeError) as error:
        raise BlockedError(
            f"{path} can't be understood: {error}",
            remedy=f"the backups are in {path.parent}: put them back by hand, then remove that folder",
        ) from None


def _wanted(profile: Profile, folder: Path, current: Mapping[str, bytes | None]) -> dict[str, bytes | None]:
    try:
        return _bytes(pi_files.desired(profile, _texts(current)))
    except BrokenTextError as error:
        raise _broken(folder, error) from None


def _without_ours(
    folder: Path, record: Record, current: Mapping[str, bytes | None]
) -> dict[str, bytes | None]:
    """Files that are as sparkop wrote them become as they were; from others our parts are taken."""
    store = _store(folder, record.provider)
    bases = {name: _base(store, kept) for name, kept in record.files.items()}
    same = {name for name, kept in record.files.items() if _digest(current.get(name)) == kept.written}
    if same >= set(current):
        return {name: bases[name] for name in current}
    try:
        parts = _bytes(
            pi_files.without_ours(
                record.provider, record.model, _texts(current), _texts({n: bases.get(n) for n in current})
            )
        )
    except BrokenTextError as error:
        raise _broken(folder, error) from None
    return {name: bases[name] if name in same else parts[name] for name in current}


def _broken(folder: Path, error: BrokenTextError) -> BlockedError:
    return BlockedError(
        f"{folder}/{error}: Pi can't read it, and nothing was changed",
        remedy="mend it by hand, then run the same command again",
    )


def _current(folder: Path, provider: str) -> dict[str, bytes | None]:
    return {name: read(folder / name) for name in pi_files.names(provider)}


def _texts(contents: Mapping[str, bytes | None]) -> dict[str, str | None]:
    texts: dict[str, str | None] = {}
    for name, content in contents.items():
        try:
            texts[name] = None if content is None else content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise BrokenTextError(f"{name}: byte {error.start} is no UTF-8") from None
    return texts


def _bytes(texts: Mapping[str, str | None]) -> dict[str, bytes | None]:
    return {name: None if text is None else text.encode("utf-8") for name, text in texts.items()}


def _store(folder: Path, provider: str) -> Path:
    return folder / "sparkop" / provider


def _base(store: Path, kept: Kept) -> bytes | None:
    if kept.base is None:
        return None
    content = read(store / kept.base)
    if content is None:
        raise BlockedError(
            f"the backup {store / kept.base} is gone", remedy="put it back from your own backup"
        )
    return content


def _save(store: Path, name: str, stamp: str, content: bytes) -> str:
    """A backup, for the owner only. Names never end as programs do that Pi would load."""
    flat, number = name.replace("/", "-"), 1
    target = f"{flat}.{stamp}"
    while (store / target).exists():
        number += 1
        target = f"{flat}.{stamp}-{number}"
    write(Change(store / target, None, content))
    return target


def _save_record(store: Path, record: Record) -> None:
    files = {name: {"base": kept.base, "written": kept.written} for name, kept in record.files.items()}
    document = {"provider": record.provider, "model": record.model, "files": files, "made": list(record.made)}
    path = store / "record.json"
    write(Change(path, read(path), (json.dumps(document, indent=2) + "\n").encode()))


def _digest(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()
