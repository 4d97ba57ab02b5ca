"""Which files a checkpoint is made of, from the hub's list and the spec. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from sparkop.engines.paths import snapshot, weights_directory
from sparkop.errors import BlockedError, SparkopError
from sparkop.node.transfer.files import File, Piece, part_of
from sparkop.records import dataclass
from sparkop.resources.weights.hub import RemoteFile, Repository
from sparkop.spec.models import ClusterSpec, WeightsSpec
from sparkop.spec.nodes import NodeSpec


@dataclass(frozen=True)
class Checkpoint:
    """What ``prepare`` of the weights returns."""

    repository: Repository | None
    files: tuple[File, ...] = ()
    error: SparkopError | None = None
    """Why the hub's list is not known."""

    @property
    def problem(self) -> str:
        """The same in words; empty when it is known."""
        return self.error.message if self.error else ""

    @property
    def revision(self) -> str | None:
        """The commit; None when it is not known."""
        return self.repository.commit if self.repository else None

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def kept_parts(self) -> frozenset[str]:
        """Parts that are wanted beside the files that are put together from them."""
        pieces = {piece.path for file in self.files for piece in file.parts}
        return frozenset(file.path for file in self.files if file.path in pieces)

    def on(self, name: str, spec: ClusterSpec) -> Checkpoint:
        """What one node is to have: kept parts stay where they were downloaded, a copy leaves them out."""
        if spec.weights.distribution != "copy" or name == downloader(spec):
            return self
        return replace(self, files=tuple(file for file in self.files if file.path not in self.kept_parts))


def downloader(spec: ClusterSpec) -> str:
    """The node that gets the checkpoint from the hub, for all."""
    return spec.weights.download_on or spec.head.name


def wanted_files(repository: Repository, weights: WeightsSpec) -> tuple[File, ...]:
    """The files to have, by path; see `Checkpoint.on` for those of one node. Raises BlockedError.

    ``X.partNN`` files stand for X, which is rebuilt from them; with ``keep_parts`` they are wanted too.
    """
    chosen = [file for file in repository.files if _selected(file.path, weights)]
    if not chosen:
        raise BlockedError(
            f"no file of {repository.name} is selected", remedy="correct weights.include and weights.exclude"
        )
    names = {file.path for file in chosen}
    parts: dict[str, list[RemoteFile]] = {}
    files: dict[str, File] = {}
    for remote in chosen:
        whole = part_of(remote.path)
        if whole is not None and whole not in names:
            parts.setdefault(whole, []).append(remote)
        if whole is None or whole in names or weights.keep_parts:
            files[remote.path] = _plain(remote, repository)
    for whole, pieces in parts.items():
        files[whole] = _rebuilt(whole, pieces, repository)
    _check_rebuilt(files, repository, weights)
    _check_manifest(files, repository, weights)
    _check_required(files, repository, weights)
    return tuple(files[path] for path in sorted(files))


def _selected(path: str, weights: WeightsSpec) -> bool:
    """As huggingface_hub does it: a pattern that ends in a slash is a folder, ``*`` also matches slashes."""
    return (not weights.include or _matches(path, weights.include)) and not _matches(path, weights.exclude)


def _matches(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(path, f"{pattern}*" if pattern.endswith("/") else pattern) for pattern in patterns)


def _plain(remote: RemoteFile, repository: Repository) -> File:
    listed = repository.manifest.get(remote.path)
    if listed is not None and remote.sha256 is not None and listed != remote.sha256:
        raise BlockedError(
            f"the hub and the manifest of {repository.name} disagree on {remote.path}",
            cause=f"SHA-256 {remote.sha256[:12]} against {listed[:12]}",
            remedy="report it to the repository's owner; without weights.manifest the hub's hash is used",
        )
    sha256 = remote.sha256 or listed
    return File(remote.path, remote.size, sha256, None if sha256 else remote.git)


def _rebuilt(path: str, parts: list[RemoteFile], repository: Repository) -> File:
    parts = sorted(parts, key=lambda part: _number(part.path))
    numbers = [_number(part.path) for part in parts]
    if numbers != list(range(numbers[0], numbers[0] + len(parts))) or numbers[0] not in (0, 1):
        raise BlockedError(
            f"{repository.name} lacks a part of {path}",
            cause=f"its parts are numbered {', '.join(map(str, numbers))}",
            remedy="correct weights.include and weights.exclude, or report it to the repository's owner",
        )
    if any(part.sha256 is None for part in parts):
        raise BlockedError(f"the hub has no SHA-256 for the parts of {path}", remedy="report it to its owner")
    pieces = tuple(Piece(part.path, part.size, part.sha256) for part in parts)
    return File(path, sum(part.size for part in parts), repository.manifest.get(path), None, pieces)


def _number(path: str) -> int:
    return int(path.rpartition(".part")[2])


def _check_rebuilt(files: Mapping[str, File], repository: Repository, weights: WeightsSpec) -> None:
    """Parts that verify one by one do not tell that the last of them is there: the whole's own hash does."""
    unlisted = [path for path, file in files.items() if file.parts and path not in repository.manifest]
    if weights.manifest is not None and unlisted:
        raise BlockedError(
            f"{weights.manifest} has no SHA-256 of {unlisted[0]}, which is put together from parts",
            remedy="report it to its owner; without weights.manifest the parts alone are verified",
        )


def _check_manifest(files: Mapping[str, File], repository: Repository, weights: WeightsSpec) -> None:
    lost = [path for path in repository.manifest if path not in files and _selected(path, weights)]
    if lost:
        raise BlockedError(
            f"{weights.manifest} lists {lost[0]}, which {repository.name} does not have",
            remedy="report it to the repository's owner, or leave weights.manifest out",
        )


def _check_required(files: Mapping[str, File], repository: Repository, weights: WeightsSpec) -> None:
    for wanted in weights.required:
        if not (any(p.startswith(wanted) for p in files) if wanted.endswith("/") else wanted in files):
            raise BlockedError(
                f"{repository.name} lacks {wanted}, which weights.required names",
                remedy="correct weights.required, weights.include and weights.exclude, or weights.revision",
            )


def probe_file(file: File) -> dict[str, Any]:
    """As the probe's request has it."""
    name, value = file.wanted
    document = {"path": file.path, "size": file.size, name: value}
    if name == "pieces":
        document["parts"] = [[part.size, part.sha256] for part in file.parts]
    if file.parts:
        document["made_of"] = [part.path for part in file.parts]
    return document


def job_file(file: File) -> dict[str, Any]:
    """As a transfer job has it."""
    document: dict[str, Any] = {"path": file.path, "size": file.size}
    if file.sha256:
        document["sha256"] = file.sha256
    if file.git:
        document["git"] = file.git
    if file.parts:
        document["parts"] = [{"path": p.path, "size": p.size, "sha256": p.sha256} for p in file.parts]
    return document


def shown_directory(spec: ClusterSpec, node: NodeSpec, commit: str) -> str:
    """The folder in which the files lie by their paths; may begin with ``~``."""
    folder = weights_directory(spec, node)
    return f"{folder}/{snapshot(spec, commit)}" if spec.weights.hub_cache else folder


def job_place(spec: ClusterSpec, node: NodeSpec, repository: Repository) -> dict[str, Any]:
    """``directory`` and, in a hub cache, ``hub`` of a transfer job."""
    if not spec.weights.hub_cache:
        return {"directory": weights_directory(spec, node)}
    folder = shown_directory(spec, node, repository.commit).rpartition("/snapshots/")[0]
    branch = "" if repository.revision == repository.commit else repository.revision
    return {"directory": folder, "hub": {"commit": repository.commit, "reference": branch}}


def removal(spec: ClusterSpec, node: NodeSpec, checkpoint: Checkpoint) -> dict[str, Any]:
    """As ``node/leaving.py`` wants it: parts of a wanted file, which another tool has fetched or an
    interrupted run has left, belong to it."""
    assert checkpoint.repository is not None
    parts = [File(part.path, part.size, part.sha256) for file in checkpoint.files for part in file.parts]
    going = {file.path: file for file in (*parts, *checkpoint.files)}.values()
    files = [{"path": file.path, "blob": file.wanted[1], "key": file.key} for file in going]
    return {**job_place(spec, node, checkpoint.repository), "files": files}


def search_places(spec: ClusterSpec, node: NodeSpec) -> list[str]:
    """Where other tools may have put the same repository on the node."""
    folder = "models--" + spec.weights.repository.replace("/", "--")
    places = [f"~/.cache/huggingface/hub/{folder}"]
    if spec.weights.hub_cache:
        places.append(f"~/models/{spec.weights.repository.rpartition('/')[2]}")
    return [place for place in places if not weights_directory(spec, node).startswith(place)]
