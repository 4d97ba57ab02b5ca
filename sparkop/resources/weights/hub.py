"""What a repository holds at one commit, asked of the hub once and kept on the controller from then on.

huggingface_hub does the asking (endpoints, authentication, paging); it is imported only when the hub has to
be asked. A branch is resolved once and recorded; ``refresh`` asks for it and its files again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from sparkop.errors import BlockedError
from sparkop.node.transfer.files import TransferError, check_path, part_of
from sparkop.records import dataclass
from sparkop.resources.weights.hub_words import in_words
from sparkop.spec.text import is_commit

if TYPE_CHECKING:
    from huggingface_hub import HfApi

CONFIG = "config.json"
LARGEST_CONFIG = 16 << 20
"""Bytes; no configuration is larger."""
PUBLIC = "https://huggingface.co"
_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


@dataclass(frozen=True)
class RemoteFile:
    """A file of the repository; ``sha256`` for large ones, ``git`` (SHA-1 of the blob) for the others."""

    path: str
    size: int
    sha256: str | None
    git: str | None

    def __post_init__(self) -> None:
        """Raises ValueError: a list that names files outside of its repository is no hub's."""
        for path in filter(None, (self.path, part_of(self.path))):
            try:
                check_path(path)
            except TransferError as error:
                raise ValueError(error.message) from None


@dataclass(frozen=True)
class Repository:
    """What the hub says of a repository at ``commit``."""

    name: str
    endpoint: str
    revision: str
    """As the spec has it."""
    commit: str
    files: tuple[RemoteFile, ...]
    manifest: Mapping[str, str]
    """Path -> SHA-256, of the manifest file; empty without one."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The model's config.json; empty where it could not be read, and of a list that was kept without it."""

    def base(self) -> str:
        """Address of every file: append its quoted path."""
        return f"{self.endpoint}/{self.name}/resolve/{self.commit}/"


def endpoint_of(named: str | None) -> str:
    """The hub's address without a slash at its end."""
    return (named or os.environ.get("HF_ENDPOINT") or PUBLIC).rstrip("/")


def token() -> str | None:
    """The hub token of the environment or of the hub's own login file; never kept anywhere else."""
    from huggingface_hub import get_token

    found: str | None = get_token()
    return found


def describe(
    name: str, revision: str, *, endpoint: str, manifest: str | None = None, refresh: bool = False
) -> Repository:
    """The repository at a revision. From the controller's memory where it can.

    Raises BlockedError (gated, private, absent, offline) in the user's words.
    """
    memory = _Memory(endpoint, name)
    commit = revision if is_commit(revision) else None if refresh else memory.commit(revision)
    if commit is not None and not refresh:
        known = memory.repository(commit, revision, manifest)
        if known is not None:
            return known
    with in_words(name, revision, endpoint):
        found = _ask_patiently(name, commit or revision, endpoint, manifest)
    found = replace(found, revision=revision)
    with suppress(OSError):  # a full or read-only disk of the controller: the hub is asked again next time
        memory.keep(found, manifest)
    return found


def parse_manifest(text: str, folder: str = "") -> dict[str, str]:
    """Path -> SHA-256 of a file in sha256sum format; paths are relative to ``folder``. Raises ValueError."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.rstrip("\r"))
        if match is None:
            raise ValueError(f"line {number} is not in sha256sum format")
        path = match[2].removeprefix("./")
        found[f"{folder}/{path}" if folder else path] = match[1].lower()
    return found


def _ask_patiently(name: str, revision: str, endpoint: str, manifest: str | None) -> Repository:
    """Ask again, twice, when the hub stumbles: a list that fails would block an apply of hours."""
    from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

    again = Retrying(
        retry=retry_if_exception(_stumbles),
        stop=stop_after_attempt(3),
        wait=wait_exponential(multiplier=0.25, max=2),
        reraise=True,
    )
    return again(_ask, name, revision, endpoint, manifest)


def _stumbles(error: BaseException) -> bool:
    """Whether the hub may answer the same question in a moment: too busy, or broken for now."""
    from huggingface_hub.errors import HfHubHTTPError

    if not isinstance(error, HfHubHTTPError):
        return False
    return getattr(error.response, "status_code", 0) in (429, 500, 502, 503, 504)


def _ask(name: str, revision: str, endpoint: str, manifest: str | None) -> Repository:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    api = HfApi(endpoint=endpoint, library_name="sparkop")
    commit = str(api.model_info(name, revision=revision).sha)
    files = []
    for entry in api.list_repo_tree(name, recursive=True, revision=commit):
        if isinstance(entry, RepoFile):
            large = entry.lfs.sha256 if entry.lfs else None
            files.append(RemoteFile(entry.path, entry.size, large, None if large else entry.blob_id))
    files.sort(key=lambda file: file.path)
    hashes: dict[str, str] = {}
    if manifest is not None:
        hashes = _read_manifest(api, name, commit, manifest)
    elif files:
        from huggingface_hub import get_hf_file_metadata, hf_hub_url

        smallest = min(files, key=lambda file: file.size).path  # a gated repository lists, but does not give
        get_hf_file_metadata(hf_hub_url(name, smallest, revision=commit, endpoint=endpoint))
    config = _read_config(api, name, commit, files)
    return Repository(name, endpoint, revision, commit, tuple(files), hashes, config)


def _read_config(api: HfApi, name: str, commit: str, files: Iterable[RemoteFile]) -> Mapping[str, Any]:
    """Rules look at it before the weights come; what is no configuration is told once it is used."""
    if not any(file.path == CONFIG and file.size <= LARGEST_CONFIG for file in files):
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = api.hf_hub_download(name, CONFIG, revision=commit, local_dir=folder)
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError:
            return {}
    return document if isinstance(document, dict) else {}


def _read_manifest(api: HfApi, name: str, commit: str, manifest: str) -> dict[str, str]:
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    remedy = "correct weights.manifest"
    with tempfile.TemporaryDirectory() as folder:
        try:
            path = api.hf_hub_download(name, manifest, revision=commit, local_dir=folder)
        except LocalEntryNotFoundError:  # not asked, or not answered: nothing is known of the file
            raise
        except EntryNotFoundError:
            raise BlockedError(f"{name} lacks the file {manifest}", remedy=remedy) from None
        try:
            return parse_manifest(Path(path).read_text(encoding="utf-8"), os.path.dirname(manifest))  # noqa: PTH120
        except ValueError as error:
            raise BlockedError(f"{manifest} of {name} can't be used: {error}", remedy=remedy) from None


class _Memory:
    """``$XDG_STATE_HOME/sparkop/hub/<repository>/``: a file a commit, and which commit a branch was."""

    def __init__(self, endpoint: str, name: str) -> None:
        where = hashlib.sha256(endpoint.encode()).hexdigest()[:8]
        self._folder = (
            Path(platformdirs.user_state_dir("sparkop")) / "hub" / f"{name.replace('/', '--')}-{where}"
        )
        self._name = name
        self._endpoint = endpoint

    def commit(self, revision: str) -> str | None:
        """What the branch was when it was resolved."""
        found = self._read("revisions.json").get(revision)
        return found if isinstance(found, str) else None

    def repository(self, commit: str, revision: str, manifest: str | None) -> Repository | None:
        document = self._read(f"{commit}.json")
        try:
            if manifest is not None and document["manifest_file"] != manifest:
                return None
            files = tuple(RemoteFile(**item) for item in document["files"])
            sums, config = document["manifest"], document.get("config") or {}
            return Repository(self._name, self._endpoint, revision, commit, files, sums, config)
        except (KeyError, TypeError, ValueError):
            return None

    def keep(self, repository: Repository, manifest: str | None) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        document = {
            "files": [asdict(file) for file in repository.files],
            "manifest": dict(repository.manifest),
            "manifest_file": manifest,
            "config": dict(repository.config),
        }
        self._write(f"{repository.commit}.json", document)
        self._write(
            "revisions.json", {**self._read("revisions.json"), repository.revision: repository.commit}
        )

    def _read(self, name: str) -> dict[str, Any]:
        try:
            document = json.loads((self._folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return document if isinstance(document, dict) else {}

    def _write(self, name: str, document: Mapping[str, Any]) -> None:
        draft = self._folder / f".{name}.{os.getpid()}"
        draft.write_text(json.dumps(document), encoding="utf-8")
        draft.replace(self._folder / name)
