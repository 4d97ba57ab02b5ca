"""Files of a client: read whole, replaced in one step, backed up, and put back."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from sparkop.errors import BlockedError
from sparkop.records import dataclass


@dataclass(frozen=True)
class Change:
    """One file as it is and as it should be; None: not there."""

    path: Path
    before: bytes | None
    after: bytes | None

    @property
    def needed(self) -> bool:
        """Whether there is anything to write."""
        return self.before != self.after


def read(path: Path) -> bytes | None:
    """The content; None when there is no file. Raises BlockedError for what is no readable file."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise BlockedError(f"{path} is no file", remedy="move it away")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BlockedError(f"{path} can't be read: {error.strerror}") from None


def write(change: Change) -> None:
    """Make the file what the change says, in one step. A symbolic link stays, its target is replaced.

    The mode and the owner stay; a new file is the owner's only. Raises BlockedError when the file is not
    ``change.before`` any more, or can't be written.
    """
    if read(change.path) != change.before:
        raise BlockedError(
            f"{change.path} was changed by another program just now", remedy="run the same command again"
        )
    target = Path(os.path.realpath(change.path))
    try:
        if change.after is None:
            target.unlink()
        else:
            _replace(target, change.after)
        _sync(target.parent)
    except OSError as error:
        raise BlockedError(f"{change.path} can't be written: {error.strerror}") from None


def check_writable(changes: Iterable[Change]) -> None:
    """Raise BlockedError for the first file that could not be replaced. Writes nothing."""
    for change in changes:
        folder = Path(os.path.realpath(change.path)).parent
        if change.path.is_symlink() and not folder.exists():
            raise BlockedError(
                f"{change.path} can't be written: it links into {folder}, which is not there",
                remedy="make that folder, or remove the link",
            )
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        if not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise BlockedError(f"{change.path} can't be written: {folder} is closed to this user")


def missing_folders(path: Path) -> list[Path]:
    """The folder and those above it that are not there, the highest first."""
    missing: list[Path] = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    return list(reversed(missing))


def make_folders(path: Path) -> None:
    """Make a folder and those above it, for the owner only."""
    try:
        for each in missing_folders(path):
            each.mkdir(mode=0o700)
    except OSError as error:
        raise BlockedError(f"{path} can't be made: {error.strerror}") from None


def remove_empty(folders: list[Path]) -> None:
    """Remove folders, the deepest first; one that holds something stays."""
    for folder in sorted(folders, key=lambda each: len(each.parts), reverse=True):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _replace(target: Path, content: bytes) -> None:
    draft = target.parent / f".{target.name}.{secrets.token_hex(4)}.tmp"  # no client loads such a name
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            with contextlib.suppress(FileNotFoundError):
                found = target.stat()
                os.fchmod(file.fileno(), stat.S_IMODE(found.st_mode))
                with contextlib.suppress(PermissionError):
                    os.fchown(file.fileno(), found.st_uid, found.st_gid)
            os.fsync(file.fileno())
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
