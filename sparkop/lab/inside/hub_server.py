"""A hub that the real huggingface_hub client downloads from: one origin for the API, one for large files.

Usage: hub_server.py REPOSITORIES CONTROL ADDRESS PORT. Standard library only.

REPOSITORIES/OWNER/NAME/refs/REVISION names a commit, REPOSITORIES/OWNER/NAME/COMMIT holds its files.
CONTROL/knobs.json (see sparkop.lab.hub.Knobs) is read again whenever it changes; each answered request is a
line in CONTROL/requests.jsonl. A token is compared, never logged.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
import time
from dataclasses import dataclass
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

LFS_BYTES = 1 << 20
LFS_NAME = re.compile(r".*\.(safetensors|bin|gguf|pt)(\.part\d+)?")
CHUNK_BYTES = 256 << 10


class RefusedError(Exception):
    """An answer other than 200, in the hub's own headers."""

    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {"X-Error-Code": code, "X-Error-Message": message, **(headers or {})}


@dataclass(frozen=True)
class Blob:
    """Hashes of one file: git's (sha1), and sha256 for files that are stored as LFS."""

    size: int
    git: str
    sha256: str


@lru_cache(maxsize=10_000)
def _blob(path: Path, size: int, _mtime_ns: int) -> Blob:
    sha256, git = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            sha256.update(chunk)
            git.update(chunk)
    return Blob(size, git.hexdigest(), sha256.hexdigest())


def blob(path: Path) -> Blob:
    status = path.stat()
    return _blob(path, status.st_size, status.st_mtime_ns)


def is_lfs(path: Path) -> bool:
    return LFS_NAME.fullmatch(path.name) is not None or path.stat().st_size > LFS_BYTES


class State:
    """Knobs, counted failures, and the request log; shared by all threads."""

    def __init__(self, control: Path) -> None:
        self.lock = threading.Lock()
        self.file, self.log = control / "knobs.json", control / "requests.jsonl"
        self._stamp: tuple[int, int] | None = None
        self._knobs: dict[str, Any] = {}

    def knobs(self) -> dict[str, Any]:
        """The knobs as they are now. Callers hold the lock when they count a knob down."""
        try:
            status = self.file.stat()
            if (stamp := (status.st_ino, status.st_mtime_ns)) != self._stamp:
                self._knobs, self._stamp = json.loads(self.file.read_text()), stamp
        except FileNotFoundError:
            self._knobs, self._stamp = {}, None
        return self._knobs

    def failure(self, path: str) -> dict[str, Any] | None:
        """The next asked-for failure that fits ``path``, counted down."""
        with self.lock:
            for failure in self.knobs().get("failures", []):
                if failure["count"] > 0 and re.search(failure["match"], path):
                    failure["count"] -= 1
                    return dict(failure)
        return None

    def cut(self, path: str) -> int | None:
        """Bytes after which this answer is to be cut off."""
        with self.lock:
            knobs = self.knobs()
            if knobs.get("cut_count", 0) > 0 and re.search(knobs.get("cut_match", ""), path):
                knobs["cut_count"] -= 1
                return int(knobs["cut_after"])
        return None

    def record(self, **entry: object) -> None:
        with self.lock, self.log.open("a") as log:
            log.write(json.dumps({"time": round(time.time(), 3), **entry}) + "\n")


class Hub(BaseHTTPRequestHandler):
    """One request. ``repositories``, ``state`` and ``files_origin`` are set on the class by ``main``."""

    protocol_version = "HTTP/1.1"
    repositories: Path
    state: State
    files_origin: str

    def log_message(self, *_arguments: object) -> None:
        """The request log says it better."""

    def do_HEAD(self) -> None:
        self._handle()

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def _handle(self) -> None:
        self.status, self.sent = 0, 0
        path = urlsplit(self.path).path
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            if failure := self.state.failure(path):
                headers = {"Retry-After": str(failure["retry_after"])} if failure.get("retry_after") else {}
                raise RefusedError(failure["status"], "", "injected failure", headers)
            self._route(path, body)
        except RefusedError as refused:
            self._json({"error": str(refused)}, refused.status, refused.headers)
        except ConnectionError:
            self.close_connection = True
        self.state.record(
            method=self.command,
            path=path,
            range=self.headers.get("Range"),
            status=self.status,
            bytes=self.sent,
            authorized=self.headers.get("Authorization") is not None,
        )

    def _route(self, path: str, body: bytes) -> None:
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?", path):
            self._model(match[1], unquote(match[2] or "main"))
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)(?:/(.*))?", path):
            self._tree(match[1], unquote(match[2]), unquote(match[3] or ""))
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/paths-info/([^/]+)", path):
            _, root = self._commit(match[1], unquote(match[2]))
            self._json([self._entry(root, root / name) for name in _wanted(body) if (root / name).is_file()])
        elif match := re.fullmatch(r"/files/([^/]+/[^/]+)/([0-9a-f]{40})/(.+)", path):
            self._check_address()
            self._send_file(self.repositories / match[1] / match[2] / unquote(match[3]), {})
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._resolve(match[1], unquote(match[2]), unquote(match[3]))
        elif path == "/api/whoami-v2" and self._token_is_good():
            self._json({"type": "user", "name": "lab", "auth": {"accessToken": {"role": "read"}}})
        elif path == "/api/whoami-v2":
            raise RefusedError(401, "", "Invalid user token")
        else:
            raise RefusedError(404, "EntryNotFound", "no such page")

    def _token_is_good(self) -> bool:
        token = self.state.knobs().get("token")
        return bool(token) and self.headers.get("Authorization") == f"Bearer {token}"

    def _commit(self, repository: str, revision: str) -> tuple[str, Path]:
        """Commit and folder of a revision, when this client may see it."""
        knobs, home = self.state.knobs(), self.repositories / repository
        good = self._token_is_good()
        if self.headers.get("Authorization") and knobs.get("token") and not good:
            raise RefusedError(401, "", "Invalid credentials in Authorization header")
        if not home.is_dir() or (repository in knobs.get("private", []) and not good):
            raise RefusedError(404 if good else 401, "RepoNotFound", "Repository not found")
        if repository in knobs.get("gated", []):
            status = 403 if good else 401
            raise RefusedError(status, "GatedRepo", f"Access to model {repository} is restricted")
        ref = home / "refs" / revision
        commit = ref.read_text().strip() if ref.is_file() else revision
        if not re.fullmatch(r"[0-9a-f]{40}", commit) or not (home / commit).is_dir():
            raise RefusedError(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit, home / commit

    def _entry(self, root: Path, path: Path) -> dict[str, Any]:
        hashes = blob(path)
        entry: dict[str, Any] = {
            "type": "file",
            "oid": hashes.git,
            "size": hashes.size,
            "path": str(path.relative_to(root)),
        }
        if is_lfs(path):
            entry["lfs"] = {"oid": hashes.sha256, "size": hashes.size, "pointerSize": 135}
            if self._is_xet(root):
                entry["xetHash"] = _xet_hash(hashes)
        return entry

    def _is_xet(self, root: Path) -> bool:
        """Whether the large files of the repository lie in the chunk store as well."""
        return str(root.parent.relative_to(self.repositories)) in self.state.knobs().get("xet", [])

    def _model(self, repository: str, revision: str) -> None:
        commit, root = self._commit(repository, revision)
        siblings = []
        for path in _files(root):
            entry = self._entry(root, path)
            sibling = {"rfilename": entry["path"], "size": entry["size"], "blobId": entry["oid"]}
            if lfs := entry.get("lfs"):
                sibling["lfs"] = {"sha256": lfs["oid"], "size": lfs["size"], "pointerSize": 135}
            siblings.append(sibling)
        self._json(
            {
                "_id": commit[:24],
                "id": repository,
                "modelId": repository,
                "sha": commit,
                "private": False,
                "gated": False,
                "disabled": False,
                "downloads": 0,
                "likes": 0,
                "tags": [],
                "siblings": siblings,
                "usedStorage": sum(sibling["size"] for sibling in siblings),
            }
        )

    def _tree(self, repository: str, revision: str, folder: str) -> None:
        _, root = self._commit(repository, revision)
        top = root / folder
        if not top.is_dir():
            raise RefusedError(404, "EntryNotFound", f"{folder} does not exist")
        recursive = parse_qs(urlsplit(self.path).query).get("recursive", [""])[0].lower() in ("1", "true")
        entries = []
        for path in sorted(top.rglob("*") if recursive else top.iterdir()):
            if path.is_dir():
                entries.append(
                    {"type": "directory", "oid": "0" * 40, "size": 0, "path": str(path.relative_to(root))}
                )
            else:
                entries.append(self._entry(root, path))
        self._json(entries)

    def _resolve(self, repository: str, revision: str, name: str) -> None:
        commit, root = self._commit(repository, revision)
        path = root / name
        if not path.is_file():
            raise RefusedError(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
        hashes = blob(path)
        if not is_lfs(path):
            self._send_file(path, {"X-Repo-Commit": commit})
            return
        headers = {
            "X-Repo-Commit": commit,
            "X-Linked-Etag": f'"{hashes.sha256}"',
            "X-Linked-Size": str(hashes.size),
            "Location": f"{self.files_origin}/files/{repository}/{commit}/{quote(name)}{self._signature()}",
            "Content-Length": "0",
        }
        if self._is_xet(root):
            way = f"/api/models/{repository}/xet-read-token/{commit}"
            headers |= {"X-Xet-Hash": _xet_hash(hashes), "Link": f'<{way}>; rel="xet-auth"'}
        self._head(302, headers)

    def _signature(self) -> str:
        seconds = self.state.knobs().get("signed_seconds")
        return f"?Expires={time.time() + seconds:.3f}" if seconds else ""

    def _check_address(self) -> None:
        until = parse_qs(urlsplit(self.path).query).get("Expires")
        if until and time.time() > float(until[0]):
            raise RefusedError(403, "", "the address has expired")

    def _send_file(self, path: Path, headers: dict[str, str]) -> None:
        if not path.is_file():
            raise RefusedError(404, "EntryNotFound", "Entry not found")
        hashes = blob(path)
        first, last = 0, hashes.size - 1
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if asked:
            first, last = int(asked[1]), min(int(asked[2] or last), last)
            if first >= hashes.size:
                raise RefusedError(416, "", "range", {"Content-Range": f"bytes */{hashes.size}"})
            headers = {**headers, "Content-Range": f"bytes {first}-{last}/{hashes.size}"}
        etag = hashes.sha256 if is_lfs(path) else hashes.git
        length = last - first + 1
        self._head(
            206 if asked else 200,
            {
                **headers,
                "ETag": f'"{etag}"',
                "Content-Length": str(length),
                "Accept-Ranges": "bytes",
            },
        )
        if self.command != "HEAD":
            self._send_bytes(path, first, length)

    def _send_bytes(self, path: Path, first: int, length: int) -> None:
        rate = self.state.knobs().get("bytes_per_second")
        cut = self.state.cut(self.path)
        left = length if cut is None else min(cut, length)
        with path.open("rb") as file:
            file.seek(first)
            while left:
                chunk = file.read(min(left, CHUNK_BYTES, max(rate // 10, 1) if rate else CHUNK_BYTES))
                self.wfile.write(chunk)
                self.sent += len(chunk)
                left -= len(chunk)
                if rate:
                    time.sleep(len(chunk) / rate)
        if cut is not None and cut < length:
            self.close_connection = True

    def _json(self, data: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(data).encode()
        self._head(
            status, {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}
        )
        if self.command != "HEAD":
            self.wfile.write(body)
            self.sent += len(body)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.status = status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


def _xet_hash(hashes: Blob) -> str:
    """Looks like one; clients can't tell."""
    return hashlib.sha256(b"xet " + hashes.sha256.encode()).hexdigest()


def _wanted(body: bytes) -> list[str]:
    """``paths`` of a paths-info request: JSON or a form."""
    try:
        paths = json.loads(body)["paths"]
    except ValueError:
        paths = parse_qs(body.decode()).get("paths", [])
    return [paths] if isinstance(paths, str) else list(paths)


def _files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def main() -> None:
    repositories, control, address, port = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    Hub.repositories, Hub.state = repositories, State(control)
    Hub.files_origin = f"http://{address}:{port + 1}"
    ThreadingHTTPServer.daemon_threads = True
    files = ThreadingHTTPServer((address, port + 1), Hub)
    threading.Thread(target=files.serve_forever, daemon=True).start()
    ThreadingHTTPServer((address, port), Hub).serve_forever()


if __name__ == "__main__":
    main()
