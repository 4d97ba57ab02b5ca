"""What a repository holds at one commit, asked of the hub once and kept on the controller from then on.

huggingface_hub does the asking (endpoints, authentication, paging); it is imported only when the hub has to
be asked. A branch is resolved once and recorded; ``refresh`` resolves it again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import platformdirs

from sparkop.errors import BlockedError, SparkopError

PUBLIC = "https://huggingface.co"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


@dataclass(frozen=True)
class RemoteFile:
    """A file of the repository; ``sha256`` for large ones, ``git`` (SHA-1 of the blob) for the others."""

    path: str
    size: int
    sha256: str | None
    git: str | None


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
    commit = revision if _COMMIT.fullmatch(revision) else None if refresh else memory.commit(revision)
    if commit is not None:
        known = memory.repository(commit, revision, manifest)
        if known is not None:
            return known
    with in_words(name, revision, endpoint):
        found = _ask_patiently(name, commit or revision, endpoint, manifest)
    found = Repository(name, endpoint, revision, found.commit, found.files, found.manifest)
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
        with tempfile.TemporaryDirectory() as folder:
            path = api.hf_hub_download(name, manifest, revision=commit, local_dir=folder)
            hashes = parse_manifest(Path(path).read_text(encoding="utf-8"), os.path.dirname(manifest))  # noqa: PTH120
    elif files:
        from huggingface_hub import get_hf_file_metadata, hf_hub_url

        smallest = min(files, key=lambda file: file.size).path  # a gated repository lists, but does not give
        get_hf_file_metadata(hf_hub_url(name, smallest, revision=commit, endpoint=endpoint))
    return Repository(name, endpoint, revision, commit, tuple(files), hashes)


@contextmanager
def in_words(name: str, revision: str, endpoint: str) -> Iterator[None]:
    """The hub's errors as BlockedError."""
    from huggingface_hub import errors

    login = "set HF_TOKEN, or run `hf auth login`, with an account that may read it"
    try:
        yield
    except errors.GatedRepoError:
        raise BlockedError(
            f"{name} is gated: the hub does not give its files",
            cause="the model's terms are not accepted, or no token was given",
            remedy=f"accept the terms at {endpoint}/{name} and {login}",
        ) from None
    except errors.RepositoryNotFoundError:
        raise BlockedError(
            f"the hub has no repository {name}, or hides it",
            cause="its name is wrong, or it is private",
            remedy=f"correct weights.repository, or {login}",
        ) from None
    except errors.RevisionNotFoundError:
        raise BlockedError(
            f"{name} has no revision {revision}", remedy="correct weights.revision: a branch, tag or commit"
        ) from None
    except errors.EntryNotFoundError as error:
        raise BlockedError(
            f"{name} lacks a file: {_first_line(error)}", remedy="correct weights.manifest"
        ) from None
    except (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError):
        raise BlockedError(
            "the hub can't be asked: offline mode is on", remedy="unset HF_HUB_OFFLINE"
        ) from None
    except errors.HfHubHTTPError as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in (401, 403):
            raise BlockedError(f"the hub refuses {name} ({status})", remedy=login) from None
        raise BlockedError(
            f"the hub answered {status} for {name}", remedy="try again later", detail=_first_line(error)
        ) from None
    except ValueError as error:
        raise BlockedError(f"{name}: {error}", remedy="correct weights.manifest") from None
    except SparkopError:
        raise
    except Exception as error:
        # The transport's errors (no route, refused, timed out) have no common class of the hub's library.
        if not isinstance(error, OSError) and "httpx" not in type(error).__module__:
            raise
        raise BlockedError(
            f"the hub at {endpoint} can't be reached",
            cause=_first_line(error),
            remedy="check this machine's network; weights.endpoint or HF_ENDPOINT names another hub",
        ) from None


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0]


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
            return Repository(self._name, self._endpoint, revision, commit, files, document["manifest"])
        except (KeyError, TypeError):
            return None

    def keep(self, repository: Repository, manifest: str | None) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        document = {
            "files": [asdict(file) for file in repository.files],
            "manifest": dict(repository.manifest),
            "manifest_file": manifest,
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
