"""One job from its start to its end: look, adopt, rebuild, fetch, show, check."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Dict, List, Mapping, Optional

from . import link
from .blocks import Staging
from .fetch import Fetch
from .files import File, Job, StoppedError, TransferError, part_of, size_text
from .hashing import FileHash, hash_file, looks_like_pointer, read_header, release_file
from .ledger import Ledger, agrees, sync_folder
from .peering import check_ways
from .place import Place
from .rebuild import take_parts
from .sources import Source
from .status import Status

HASHERS = max(1, min(4, os.cpu_count() or 1))
"""Files that are read for a check at a time."""


class Run:
    """Carries out a job. ``run`` never raises: how it ended is in the status."""

    def __init__(self, state: str, job: Job, stop: threading.Event) -> None:
        self._state = state
        self._job = job
        self._stop = stop
        self._ledger = Ledger(state)
        self._place = Place(job.directory, job.hub)
        self.status = Status(state, job)

    def run(self) -> bool:
        """Do it all; False when it failed or was cancelled."""
        return self.status.follow(self._work)

    def _work(self) -> None:
        job = self._job
        if job.kind == "verify":
            self._look()
        else:
            if not self._place.holds(job.files):
                self._place.prepare(job.files, self._state)  # told before hours of hashing
            missing = self._look()
            if missing:
                self._place.prepare(job.files, self._state)
                missing = self._adopt(missing)
            if missing:
                self._check_space(missing)
                check_ways(self._job.sources)
                self._look_at_links(missing)
                self.status.phase("fetching")
                self._fetch([file for file in missing if not file.parts])
                self._fetch([file for file in missing if file.parts])
            self.status.phase("finishing")
            self._finish()
        if job.kind == "verify" and self.status.bad:
            names = ", ".join(sorted(self.status.bad)[:3])
            raise TransferError(
                "content", "%d of the files are not as published: %s" % (len(self.status.bad), names)
            )

    # What is here already

    def _look(self) -> List[File]:
        """Verify what lies in its place; returns the files that have to be made."""
        entries = {} if self._job.deep else self._ledger.snapshot()
        missing: List[File] = []
        doubtful: List[File] = []
        for file in self._job.files:
            path = self._place.find(file)
            if agrees(path, entries.get(os.path.realpath(path)), file):
                self.status.finished(file.path, file.size)
            elif os.path.isfile(path) and os.stat(path).st_size == file.size:
                doubtful.append(file)
            else:
                missing.append(file)
                self.status.dropped(file.path, self._flaw(path, file))
        with ThreadPoolExecutor(HASHERS) as pool:
            bad = pool.map(lambda file: None if self._is_good(file) else file, doubtful)
            missing += [file for file in bad if file is not None]
        return missing

    def _flaw(self, path: str, file: File) -> Optional[str]:
        if not os.path.lexists(path):
            return "missing" if self._job.kind == "verify" else None
        if not os.path.exists(path):
            return "a link that leads nowhere"
        if not os.path.isfile(path):
            return "not a regular file"
        size = os.stat(path).st_size
        if size == 0:
            return "empty"
        if looks_like_pointer(path):
            return "a git LFS pointer in place of the file"
        return "%d bytes, not %d" % (size, file.size)

    def _is_good(self, file: File) -> bool:
        path = self._place.find(file)
        result = self._hash(path, file)
        if result is None:
            self.status.dropped(file.path, "its bytes are not the published ones")
            return False
        self.status.finished(file.path, file.size)
        return True

    def _hash(self, path: str, file: File) -> Optional[Dict[str, str]]:
        """Hashes of good bytes, which are then in the ledger; None for others."""
        if self._stop.is_set():
            raise StoppedError
        before = os.stat(path)
        self.status.at(file.path, file.size, 0)
        try:
            result: FileHash = hash_file(path, file, self._count)
        except PermissionError:
            raise TransferError(
                "place",
                "%s can't be read" % path,
                "on the node: sudo chown %d %s" % (os.getuid(), shlex.quote(path)),
            ) from None
        if not result.matches():
            self._ledger.forget(path)
            return None
        self._ledger.record(path, before, result.result())
        return result.result()

    def _count(self, count: int) -> None:
        self.status.hashed(count)
        if self._stop.is_set():
            raise StoppedError

    # Bytes from elsewhere on this node

    def _adopt(self, files: List[File]) -> List[File]:
        """Use verified copies in other layouts; returns what is still to be fetched."""
        return [file for file in files if not self._adopt_one(file)]

    def _adopt_one(self, file: File) -> bool:
        for path in self._place.candidates(file, self._job.search):
            hashes = self._hash(path, file)
            if hashes is None:
                continue
            target = self._place.target(file)
            if os.path.realpath(path) != os.path.realpath(target):
                _bring(path, target, file)
            elsewhere = self._place.find(file)
            self._ledger.record(elsewhere, os.stat(elsewhere), hashes)
            self._place.show(file)
            self.status.finished(file.path, file.size)
            return True
        self.status.dropped(file.path)
        return False

    # Fetching

    def _check_space(self, files: List[File]) -> None:
        need = 0
        for file in files:
            staging = self._place.staging(file)
            here = os.stat(staging.partial).st_blocks * 512 if os.path.exists(staging.partial) else 0
            if not self._job.keep_parts:
                parts = [self._place.part(piece) for piece in file.parts]
                here += sum(os.stat(path).st_size for path in parts if path)
            need += max(0, file.size - here)
        free, inodes = self._place.free()
        if need > free:
            raise TransferError(
                "space",
                "%s are still to come and %s are free in %s"
                % (size_text(need), size_text(free), self._place.root),
                "free %s there, or set weights.path to a larger disk" % size_text(need - free),
            )
        if 0 <= inodes < 3 * len(files):
            raise TransferError(
                "space", "%d inodes are free in %s" % (inodes, self._place.root), "remove files there"
            )

    def _look_at_links(self, files: List[File]) -> None:
        """A degraded link is named before a long copy, not found out by the time it takes."""
        if sum(file.size for file in files) < link.LONG:
            return
        for document in self._job.sources:
            source = Source(document, self._job.secrets)
            if not source.by_piece:
                self.status.phase("measuring")
                url, headers = source.address(link.PATH)
                told = link.look(document, source.command, url, headers)
                self.status.notes.extend([told] if told else [])

    def _fetch(self, files: List[File]) -> None:
        for file in files:
            if file.parts:
                self._rebuild(file)
        Fetch(self._job, self.status, self._stop, self._place.staging, self._publish).run(files)

    def _rebuild(self, file: File) -> None:
        if not any(self._place.part(piece) for piece in file.parts):
            return
        staging = self._place.staging(file)
        staging.open()
        try:
            take_parts(staging, self._place, self._is_good_part, keep=self._job.keep_parts, stop=self._stop)
        finally:
            staging.close()

    def _is_good_part(self, path: str, part: File) -> bool:
        hashes = self._hash(path, part)
        self.status.dropped(part.path)
        return hashes is not None

    def _publish(self, file: File, staging: Staging, hashes: Mapping[str, str]) -> None:
        status = staging.publish()
        self._ledger.record(staging.target, status, hashes)
        self._place.show(file)

    # The end

    def _finish(self) -> None:
        """Links, references, leftovers, and what only the whole can show."""
        for file in self._job.files:
            self._place.show(file)
        if self._place.writable:  # else a folder in which all is verified is used as it is
            self._clear_up()
        self.status.problems.extend(
            checkpoint_problems(self._place.shown_root, [file.path for file in self._job.files])
        )
        for file in self._job.files:
            release_file(self._place.find(file))

    def _clear_up(self) -> None:
        pieces = [piece for file in self._job.files for piece in file.parts if not self._job.keep_parts]
        for piece in pieces:
            if self._place.part(piece):
                self._place.remove_part(piece)
        self._place.set_reference()
        self._place.tidy(self._job.files)


def _bring(path: str, target: str, file: File) -> None:
    """The bytes of ``path`` under a second name: a hard link where that can be, else a copy."""
    temporary = os.path.join(os.path.dirname(target), ".sparkop-%s.copy" % file.key)
    if os.path.lexists(temporary):
        os.unlink(temporary)
    try:
        os.link(path, temporary)
    except OSError:
        shutil.copyfile(path, temporary)
        if not hash_file(temporary, file).matches():
            os.unlink(temporary)
            raise TransferError("content", "%s changed while it was copied" % path) from None
        handle = os.open(temporary, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    os.replace(temporary, target)
    sync_folder(os.path.dirname(target))


def checkpoint_problems(folder: str, paths: List[str]) -> List[str]:
    """What is wrong with a checkpoint whose files are all as published: damaged or incomplete as a whole."""
    problems: List[str] = []
    tensors: Dict[str, List[str]] = {}
    for path in paths:
        if path.endswith(".safetensors"):
            try:
                tensors[path] = list(read_header(os.path.join(folder, path)))
            except ValueError as error:
                problems.append("%s: %s" % (path, error))
    for path in paths:
        if path.endswith(".safetensors.index.json"):
            problems += _index_problems(folder, path, tensors)
    present = set(paths)
    for home in sorted({os.path.dirname(path) for path in tensors}):
        for name in sorted(os.listdir(os.path.join(folder, home))):
            relative = os.path.join(home, name)
            stray = name.endswith(".safetensors") and not name.startswith(".") and relative not in present
            if stray and part_of(name) is None:
                problems.append("%s is no part of this revision; an engine may load it: remove it" % relative)
    return problems


def _index_problems(folder: str, path: str, tensors: Mapping[str, List[str]]) -> List[str]:
    try:
        with open(os.path.join(folder, path), "rb") as file:
            weight_map = json.load(file)["weight_map"]
        wanted = [
            (str(tensor), os.path.join(os.path.dirname(path), str(shard)))
            for tensor, shard in weight_map.items()
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ["%s is no index of tensors" % path]
    problems = [
        "%s is named in %s and missing" % (shard, path)
        for shard in sorted({s for _, s in wanted} - set(tensors))
    ]
    known = {shard: set(names) for shard, names in tensors.items()}
    lost = [tensor for tensor, shard in wanted if shard in known and tensor not in known[shard]]
    if lost:
        problems.append("%d tensors of %s are in no shard, as %s" % (len(lost), path, lost[0]))
    return problems
