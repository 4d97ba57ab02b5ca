"""Where the files of a checkpoint lie: a plain folder, or the folder of a repository in a hub cache."""

from __future__ import annotations

import os
import re
import shlex
import stat
from typing import Iterable, List, Mapping, Optional

from . import folders
from .blocks import Staging, is_locked
from .files import File, Piece, TransferError, no_file, no_folder, read_only
from .ledger import sync_folder, write_whole

_LEFTOVER = re.compile(r"\.sparkop-[0-9a-f]{20}\.(partial|blocks|copy)")


class Place:
    """Paths of files. ``hub`` (``commit``, ``reference``) makes it the hub cache layout.

    There the bytes are ``blobs/<hash>`` and ``snapshots/<commit>/<path>`` is a link to them, as an engine
    with HF_HUB_OFFLINE=1 expects.
    """

    def __init__(self, directory: str, hub: Optional[Mapping[str, str]]) -> None:
        self._named = os.path.abspath(os.path.expanduser(directory))
        self.root = os.path.realpath(self._named)
        self.hub = hub

    @property
    def shown_root(self) -> str:
        """The folder that an engine is given."""
        return os.path.join(self.root, "snapshots", self.hub["commit"]) if self.hub else self.root

    def shown(self, path: str) -> str:
        """Where an engine finds a file."""
        return os.path.join(self.shown_root, path)

    def target(self, file: File) -> str:
        """Where its bytes go."""
        return os.path.join(self.root, "blobs", file.wanted[1]) if self.hub else self.shown(file.path)

    def find(self, file: File) -> str:
        """Where its bytes are, or will be."""
        shown = self.shown(file.path)
        return shown if os.path.exists(shown) else self.target(file)

    def staging(self, file: File) -> Staging:
        return Staging(self.target(file), file)

    def part(self, piece: Piece) -> Optional[str]:
        """A downloaded part of a file that is rebuilt, if it is here."""
        path = self.shown(piece.path)
        return path if os.path.isfile(path) else None

    def remove_part(self, piece: Piece) -> None:
        """The part, and its blob."""
        path = self.shown(piece.path)
        real = os.path.realpath(path)
        for name in {path, real}:
            if os.path.lexists(name):
                os.unlink(name)
                sync_folder(os.path.dirname(name))

    def holds(self, files: Iterable[File]) -> bool:
        """Every file is there by its size: it may be that nothing has to be written."""
        return all(_is_file(self.find(file), file.size) for file in files)

    @property
    def writable(self) -> bool:
        return os.access(self.root, os.W_OK | os.X_OK) and not _read_only(self.root)

    def prepare(self, files: Iterable[File], state: str) -> None:
        """Make the folders, and remember in ``state`` which ones were made. Raises TransferError where the
        user of this node can't write, and for a link that leads nowhere: the disk behind it may not be
        mounted, and the first one is not to be filled.
        """
        lost = _lost_link(self._named)
        if lost:
            raise TransferError(
                "place", "%s is a link to %s, which is not there" % (lost, os.readlink(lost)),
                "mount or make what it leads to, or remove the link",
            )  # fmt: skip
        wanted = {os.path.dirname(self.target(file)) for file in files} | {self.root}
        if self.hub:
            wanted |= {os.path.dirname(self.shown(file.path)) for file in files} | {
                os.path.join(self.root, "refs")
            }
        for folder in sorted(wanted):
            try:
                folders.make(state, folder)
            except (FileExistsError, NotADirectoryError):
                raise no_folder(folder) from None
            except PermissionError as error:
                raise _owned(error.filename or folder) from None
            if _read_only(folder):
                raise read_only(folder)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise _owned(folder)
        for file in files:
            if os.path.isdir(self.target(file)):
                raise no_file(self.target(file))

    def show(self, file: File) -> None:
        """Hub layout: the link by which engines find the blob."""
        if not self.hub:
            return
        path, target = self.shown(file.path), self.target(file)
        relative = os.path.relpath(target, os.path.dirname(path))
        if os.path.islink(path) and os.readlink(path) == relative:
            return
        if os.path.exists(path) and not os.path.exists(target):
            return  # verified where another tool has put it
        temporary = path + ".sparkop-new"
        if os.path.lexists(temporary):
            os.unlink(temporary)
        os.symlink(relative, temporary)
        os.replace(temporary, path)
        sync_folder(os.path.dirname(path))

    def set_reference(self) -> None:
        """Hub layout: the branch names the commit, without a newline (readers do not strip it)."""
        if self.hub and self.hub.get("reference"):
            path = os.path.join(self.root, "refs", self.hub["reference"])
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_whole(path, self.hub["commit"].encode())

    def tidy(self, files: Iterable[File]) -> None:
        """Everything is in place: remove what unfinished runs have left, also those for another revision.

        What another transfer writes at this moment is left alone.
        """
        for folder in {os.path.dirname(self.target(file)) for file in files}:
            for name in sorted(os.listdir(folder)):
                if _LEFTOVER.fullmatch(name) and not is_locked(_partial_of(os.path.join(folder, name))):
                    os.unlink(os.path.join(folder, name))

    def candidates(self, file: File, search: Iterable[str]) -> List[str]:
        """Files elsewhere on this node that may be the same bytes: size agrees."""
        found = []
        for folder in search:
            options = [os.path.join(folder, file.path), os.path.join(folder, "blobs", file.wanted[1])]
            snapshots = os.path.join(folder, "snapshots")
            if os.path.isdir(snapshots):
                options += [
                    os.path.join(snapshots, name, file.path) for name in sorted(os.listdir(snapshots))
                ]
            if self.hub:
                options.append(self.target(file))
            real = {os.path.realpath(option): None for option in options}
            found += [
                path
                for path in real
                if _is_file(path, file.size) and path != os.path.realpath(self.shown(file.path))
            ]
        return found

    def free(self) -> "tuple[int, int]":
        """Bytes and inodes that the user may still take; inodes -1 where they are not counted."""
        figures = os.statvfs(self.root)
        return figures.f_bavail * figures.f_frsize, figures.f_favail if figures.f_files else -1


def _read_only(folder: str) -> bool:
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def _lost_link(path: str) -> str:
    """The link above a path, or at it, whose target does not exist; empty when there is none."""
    while not os.path.exists(path):
        if os.path.islink(path):
            return path
        path = os.path.dirname(path)
    return ""


def _partial_of(path: str) -> str:
    """The staging file that a leftover belongs to."""
    return path.rpartition(".")[0] + ".partial"


def _is_file(path: str, size: int) -> bool:
    try:
        status = os.stat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == size


def _owned(path: str) -> TransferError:
    place = path
    while not os.path.exists(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    owner = os.stat(place).st_uid
    return TransferError(
        "place",
        "%s can't be written: %s belongs to user %d and sparkop works as user %d"
        % (path, place, owner, os.getuid()),
        "on the node: sudo chown -R %d %s" % (os.getuid(), shlex.quote(place)),
    )
