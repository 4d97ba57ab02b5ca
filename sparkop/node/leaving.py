"""A checkpoint on a node, and what of it goes when it is removed: told by the probe, removed under the fence.

In a hub cache (the layout of huggingface_hub) that is the pinned revision: refs that name it, its blobs that
no other snapshot refers to, what the hub's library has noted of it, and its snapshot; the repository's
folder when nothing else is left in it. In a plain folder it is the wanted files, and parts that they are put
together from. What we have left unfinished goes too. Everything else stays, also what another cluster uses
(claims.py); and no link is followed: what lies behind one is somebody's.

A request is ``{"directory": "...", "hub": {"commit": "..."}, "files": [{"path", "blob", "key"}]}``; without
``hub`` the folder is a plain one. ``key`` names a file's unfinished ones (node/transfer/files.py). ``keep``:
paths below the folder that stay, too: what other nodes know of other clusters.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
from contextlib import suppress
from typing import Any

from . import claims, wire

ENDINGS = ("blocks", "copy", "partial")
"""Of the files beside one that is being written (node/transfer/blocks.py)."""
MADE = os.path.join("folders", "made.json")
"""Folders outside the state folder that act.py has made, by their inodes."""
RECORDS = (MADE, os.path.join("transfer", "folders.json"))
"""The second: those that a transfer has made (node/transfer/folders.py), which takes no lock of ours."""
COMMIT = re.compile(r"[0-9A-Za-z]+")
STAYS = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EBUSY)
"""Why a folder is not removed, and why that is right."""


class Leaving:
    """What goes, of one request."""

    def __init__(self, wanted: dict[str, Any], state: str) -> None:
        named = os.path.abspath(wire.expand(str(wanted["directory"])))
        hub = wanted.get("hub")
        for file in wanted["files"]:
            if file["path"].startswith("/") or ".." in file["path"].split("/"):
                raise ValueError("refused path %r: it leaves the folder" % file["path"])
        self.files: list[dict[str, str]] = list(wanted["files"])
        if hub:  # the cache may lie behind a link of its owner's, the repository's folder in it may not
            self.root = os.path.join(os.path.realpath(os.path.dirname(named)), os.path.basename(named))
            self.commit = str(hub["commit"])
            if not COMMIT.fullmatch(self.commit):
                raise ValueError("%r is no commit" % self.commit)
        else:
            self.root, self.commit = os.path.realpath(named), ""
        self.claims = claims.of_others(state)
        self.claimed = {self.real(path) for path in wanted.get("keep") or ()}.union(*self.claims.values())
        self.blobs = self.below("blobs")
        self.shown = self.below("snapshots", self.commit) if hub else self.root
        self.absent = self.below(".no_exist", self.commit)
        """Names that the hub's library has asked for in vain."""

    def below(self, *names: str) -> str:
        return os.path.join(self.root, *names)

    def real(self, path: str) -> str:
        """Of a path below the root."""
        return os.path.realpath(self.below(path))

    def look(self) -> dict[str, Any]:
        """What the probe tells; reads only. Raises OSError for a folder that can't be read."""
        link = self.link()
        paths = [] if link else self.paths()
        path, there = self.root, bool(link or paths)
        if self.commit and not link:
            alone = set(below(self.root)) <= set(paths)
            path = self.root if alone else self.shown
            empty = not paths and not self.kept()  # of a run that was interrupted
            there = there or (empty and os.path.isdir(path))
        kept = {} if link else self.kept()
        return {"path": path, "there": there, "bytes": sum(map(size_of, paths)), "link": link, "kept": kept}

    def link(self) -> str | None:
        """A link where the cache has a folder of its own, or by which another revision may use this one."""
        if not self.commit:
            return None
        names = ("blobs", "refs", "snapshots", "trees", ".no_exist")
        folders = (self.root, *map(self.below, names), self.shown, self.absent)
        fixed = next((path for path in folders if os.path.islink(path)), None)
        return fixed or next(filter(self.is_entangled, self.others()), None)

    def others(self) -> list[str]:
        """What the other snapshots show; one that is a link is shown itself."""
        names = [name for name in wire.listed(self.below("snapshots")) if name != self.commit]
        folders = [self.below("snapshots", name) for name in names]
        return [path for each in folders for path in ([each] if os.path.islink(each) else below(each))]

    def is_entangled(self, path: str) -> bool:
        """A link to a folder, which may hold more links, or into this repository by another way than to a
        blob: what it needs of the pinned revision is not known."""
        if not os.path.islink(path) or self.blob_of(path):
            return False
        return os.path.isdir(path) or is_within(os.path.realpath(path), self.root)

    def kept(self) -> dict[str, list[str]]:
        """Files that stay because another cluster uses them, by its name; paths below the root."""
        there = {path: os.path.realpath(path) for path in self.own() if os.path.lexists(path)}
        found = {
            name: [os.path.relpath(path, self.root) for path, real in there.items() if real in used]
            for name, used in self.claims.items()
        }
        return {name: paths for name, paths in sorted(found.items()) if paths}

    def own(self) -> list[str]:
        """Where the bytes of the files are, if they are there."""
        copies = [path for path in below(self.shown) if not os.path.islink(path)] if self.commit else []
        return [*map(self.target, self.files), *copies]

    def target(self, file: dict[str, str]) -> str:
        blob = os.path.join("blobs", os.path.basename(file["blob"]))
        return self.below(blob if self.commit else file["path"])

    def is_claimed(self, path: str) -> bool:
        return os.path.realpath(path) in self.claimed

    def paths(self) -> list[str]:
        """What goes, in this order: a name before what it stands for, and links last, for they tell a run
        that comes after an interrupted one which blobs are left."""
        if not self.commit:
            found = [path for path in self.own() if not self.is_claimed(path)]
            found += [each for path in found for each in self.unfinished(os.path.dirname(path))]
            inside = (path for path in found if self.is_inside(path))
            return [path for path in dict.fromkeys(inside) if os.path.lexists(path)]
        every = below(self.shown)
        shown = [path for path in every if path not in self.claimed]
        others = {use for path in self.others() for use in (self.blob_of(path), os.path.realpath(path))}
        own = [*self.own(), *(blob for blob in map(self.blob_of, shown) if blob)]
        own = [path for path in dict.fromkeys(own) if path not in others and os.path.lexists(path)]
        own = [path for path in own if not self.is_claimed(path)] + self.unfinished(self.blobs)
        names = self.names() if shown == every else []
        return list(dict.fromkeys([*names, *own, *shown]))

    def names(self) -> list[str]:
        """What speaks of the revision: refs, and what the hub's library has noted."""
        refs = [path for path in below(self.below("refs")) if self.names_it(path)]
        tree = self.below("trees", "%s.json" % self.commit)
        return [*refs, *(path for path in (tree, *below(self.absent)) if os.path.lexists(path))]

    def is_inside(self, path: str) -> bool:
        return is_within(os.path.realpath(os.path.dirname(path)), self.root)

    def names_it(self, path: str) -> bool:
        return (wire.maybe(path) or "").strip() == self.commit

    def blob_of(self, path: str) -> str | None:
        """The blob that a link of a snapshot names, there or not."""
        if not os.path.islink(path):
            return None
        folder, name = os.path.split(os.path.join(os.path.dirname(path), os.readlink(path)))
        return os.path.join(self.blobs, name) if os.path.realpath(folder) == self.blobs else None

    def unfinished(self, folder: str) -> list[str]:
        """Files of ours that were never completed; not those that a transfer holds at this moment, or that
        another cluster waits for."""
        found = []
        for file in (each for each in self.files if not self.is_claimed(self.target(each))):
            mine = [os.path.join(folder, ".sparkop-%s.%s" % (file["key"], ending)) for ending in ENDINGS]
            if not is_locked(mine[-1]):
                found += [path for path in mine if os.path.lexists(path)]
        return found

    def folders(self) -> list[str]:
        """Those that go when they are empty, the inner ones first."""
        if not self.commit:
            inner = {os.path.dirname(file["path"]) for file in self.files}
            parents = {part for path in inner for part in above(path)}
            return [self.below(path) for path in sorted(parents, key=len, reverse=True)]
        trees = [self.absent, self.below("refs"), self.shown]
        inside = [here for tree in trees for here, _, _ in os.walk(tree, topdown=False)]
        return [*inside, self.blobs, *map(self.below, ("snapshots", "trees", ".no_exist")), self.root]

    def tidy(self) -> None:
        for folder in self.folders():
            if os.path.realpath(folder) != folder:
                continue  # it lies behind a link
            try:
                os.rmdir(folder)
            except OSError as error:
                if error.errno not in STAYS:
                    raise


def inodes_in(record: str) -> dict[str, int]:
    """Of the folders in a record; none when it is not there, or tells nothing."""
    try:
        return {str(path): int(inode) for path, inode in json.loads(wire.read_text(record)).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def remove_made(state: str) -> None:
    """Folders that we have made and that are empty now: not one that somebody has made anew, or put a link in
    place of."""
    inodes: dict[str, int] = {}
    for record in RECORDS:
        inodes.update(inodes_in(os.path.join(state, record)))
    for path in sorted(inodes, key=len, reverse=True):
        with suppress(OSError):
            if os.path.realpath(path) == path and os.stat(path).st_ino == inodes[path]:
                os.rmdir(path)


def remove_home(state: str) -> None:
    """``~/.sparkop``, which lay around a state folder that is gone: only when it is empty, so not while it
    holds another cluster's."""
    home = os.path.expanduser(claims.HOME)
    if os.path.realpath(os.path.dirname(state)) == os.path.realpath(home):
        with suppress(OSError):
            os.rmdir(home)


def below(folder: str) -> list[str]:
    """Everything below that is no folder. A link is not followed, and what can't be read is not nothing."""
    found = []
    for here, folders, files in os.walk(folder, onerror=unread) if not os.path.islink(folder) else ():
        links = [name for name in folders if os.path.islink(os.path.join(here, name))]
        found += [os.path.join(here, name) for name in (*files, *links)]
    return sorted(found)


def unread(error: OSError) -> None:
    """Raise a failure of a walk, but none over what has gone meanwhile."""
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise error


def is_within(path: str, folder: str) -> bool:
    """Both absolute."""
    return os.path.commonpath([path, folder]) == folder


def above(path: str) -> list[str]:
    """``a/b`` and ``a`` of ``a/b``."""
    parts = path.split("/") if path else []
    return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]


def size_of(path: str) -> int:
    """Bytes of a regular file; 0 for all else, and for what can't be seen."""
    with suppress(OSError):
        facts = os.lstat(path)
        return facts.st_size if stat.S_ISREG(facts.st_mode) else 0
    return 0


def is_locked(path: str) -> bool:
    """As node/transfer/blocks.py holds what it writes."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def unlink(path: str) -> bool:
    """False when it is gone already."""
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
