"""An image from another node's engine into this one's: one stream from save to load, kept nowhere between.

The sender writes what its engine exports in chunks, so that an end that is none is known as such. The
receiver's engine checks every layer against the image's configuration, whose hash is the image's id: only
when that id is here afterwards does the image get the name by which it counts.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import urllib.parse
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from itertools import cycle
from typing import Any, Callable, Dict, List, Optional

from .fetch import PAUSES
from .files import File, Job, StoppedError, TransferError
from .hashing import CHUNK
from .http import RetryError, in_words
from .peering import check_ways
from .serve import IMAGE, write_chunk
from .sources import Limiter, Source
from .status import Status

DOCKER_SOCKET = "/var/run/docker.sock"
ANSWER = 60.0
"""Seconds for an answer of the engine that is no stream."""
LONGEST = 1800.0
"""Seconds that an engine may say nothing: it exports a whole image before the first byte, and unpacks all."""
LOADED = "Loaded image ID: "


class RefusalError(Exception):
    """The engine answered with an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Engine(HTTPConnection):
    """One connection to this node's engine."""

    def __init__(self, timeout: float = ANSWER) -> None:
        super().__init__("docker", timeout=timeout)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(DOCKER_SOCKET)

    def answer(self) -> HTTPResponse:
        """Raises RefusalError."""
        response = self.getresponse()
        if response.status >= 400:
            text = response.read().decode("utf-8", "replace")
            with suppress(ValueError, KeyError, TypeError):
                text = str(json.loads(text)["message"])
            raise RefusalError(response.status, text)
        return response


def ask(method: str, path: str) -> Any:
    """A short question. Raises RefusalError, OSError."""
    engine = Engine()
    try:
        engine.request(method, path)
        text = engine.answer().read()
        return json.loads(text) if text else None
    finally:
        engine.close()


def find(identity: str) -> Optional[Dict[str, Any]]:
    """The image with this id; None when it is not here."""
    try:
        found = ask("GET", "/images/%s/json" % identity)
    except RefusalError as refusal:
        if refusal.status == 404:
            return None
        raise
    return found if isinstance(found, dict) and found.get("Id") == identity else None


def export(identity: str, write: Callable[[memoryview], object]) -> None:
    """Give ``write`` the engine's export of an image in chunks, an empty one at its whole end.

    Raises RefusalError, OSError, HTTPException.
    """
    engine = Engine(LONGEST)
    buffer = memoryview(bytearray(CHUNK))
    try:
        engine.request("GET", "/images/%s/get" % identity)
        response = engine.answer()
        while True:
            count = response.readinto(buffer)
            write_chunk(write, buffer[:count])
            if not count:
                return
    finally:
        engine.close()


class ImageRun:
    """Carries out an image job. ``run`` never raises: how it ended is in the status."""

    def __init__(self, state: str, job: Job, stop: threading.Event) -> None:
        self._job = job
        self._stop = stop
        self._image: File = job.files[0]
        self._id = "sha256:%s" % self._image.sha256
        self._limiter = Limiter(job.rate)
        self._alive_at = time.monotonic()
        self.status = Status(state, job)

    def run(self) -> bool:
        """Do it; False when it failed or was cancelled."""
        return self.status.follow(self._work)

    def _work(self) -> None:
        try:
            if find(self._id) is None:
                self._check_space()
                self._fetch()
            self._name()
        except RefusalError as refusal:
            raise _refused(str(refusal)) from None
        except (OSError, HTTPException) as error:
            raise _silent(error) from None
        self.status.finished(self._image.path, self._image.size)

    def _name(self) -> None:
        """The name by which it counts, once it is here whole."""
        if find(self._id) is None:
            raise TransferError(
                "content",
                "what came is not the image %s" % self._id[:19],
                "run the same command again, or pull the image",
            )
        name, _, tag = self._job.tag.rpartition(":")
        ask("POST", "/images/%s/tag?%s" % (self._id, urllib.parse.urlencode({"repo": name, "tag": tag})))

    def _check_space(self) -> None:
        root = str((ask("GET", "/info") or {}).get("DockerRootDir") or "")
        try:
            figures = os.statvfs(root)
        except OSError:
            return  # only the engine's own user may look: the engine tells it then
        free = figures.f_bavail * figures.f_frsize
        if free < self._image.size:
            raise TransferError(
                "space",
                "the image takes %d bytes and %d are free in %s" % (self._image.size, free, root),
                "make room there: docker system df; docker image prune",
            )

    def _fetch(self) -> None:
        check_ways(self._job.sources)
        for failures, source in enumerate(cycle(self._job.sources)):
            self.status.phase("fetching")
            try:
                return self._stream(Source(source, self._job.secrets))
            except RetryError as again:
                silent = time.monotonic() - self._alive_at
                if silent > self._job.patience:
                    raise TransferError(
                        "network", "no byte came for %d s; last: %s" % (silent, again),
                        "check the network and the node that it comes from, then run the same command again",
                    ) from None  # fmt: skip
            if self._stop.wait(PAUSES[min(failures, len(PAUSES) - 1)]):
                raise StoppedError

    def _stream(self, source: Source) -> None:
        """One try: all of it, from its first byte."""
        client = source.client()
        try:
            url, headers = source.address(IMAGE + self._id)
            response = client.request(url, headers)
            if response.status != 200:
                text = "the node that it comes from answered %d" % response.status
                if response.status in (401, 404):
                    raise TransferError("missing", text, "run the same command again, or pull the image")
                raise RetryError(text)
            _be_patient(client.socket(url))
            self._load(response)
        except (OSError, HTTPException) as error:
            raise RetryError("the connection failed: %s" % in_words(error)) from None
        finally:
            client.close()

    def _load(self, body: HTTPResponse) -> None:
        engine = Engine(LONGEST)
        try:
            try:
                engine.putrequest("POST", "/images/load")
                engine.putheader("Transfer-Encoding", "chunked")
                engine.putheader("Content-Type", "application/x-tar")
                engine.endheaders()
            except OSError as error:
                raise _silent(error) from None
            with suppress(BrokenPipeError):  # the engine has said why
                self._pass_on(body, engine.sock)
            self.status.phase("loading")
            self._hear(engine)
        finally:
            engine.close()

    def _pass_on(self, body: HTTPResponse, target: socket.socket) -> None:
        buffer = memoryview(bytearray(CHUNK))
        done = 0
        while True:
            if self._stop.is_set():
                raise StoppedError
            count = body.readinto(buffer)
            try:
                write_chunk(target.sendall, buffer[:count])
            except OSError:
                raise BrokenPipeError from None
            if not count:
                return
            done += count
            self._alive_at = time.monotonic()
            self._limiter.take(count, self._stop)
            self.status.received(count)
            self.status.at(self._image.path, self._image.size, min(done, self._image.size))

    def _hear(self, engine: Engine) -> None:
        """What the engine says while it unpacks. Raises TransferError, RefusalError."""
        loaded: List[str] = []
        for line in iter(engine.answer().readline, b""):
            if self._stop.is_set():
                raise StoppedError
            try:
                told = json.loads(line)
            except ValueError:
                continue
            if told.get("error"):
                raise _refused(str(told["error"]))
            text = str(told.get("stream") or "")
            if text.startswith(LOADED):
                loaded.append(text[len(LOADED) :].strip())
        for identity in loaded:
            if identity != self._id:
                _forget(identity)


def _forget(identity: str) -> None:
    """Other bytes than were asked for; the engine keeps what has a name or is in use."""
    with suppress(RefusalError):
        ask("DELETE", "/images/%s" % identity)


def forget_nameless(identity: str) -> None:
    """Remove an image that has no name; where the engine does not answer, it stays."""
    with suppress(RefusalError, OSError, HTTPException):
        found = find(identity)
        if found is not None and not found.get("RepoTags") and not found.get("RepoDigests"):
            _forget(identity)


def _be_patient(connection: Optional[socket.socket]) -> None:
    """A long silence is no fault, a peer that is gone is."""
    if connection is None:
        return
    connection.settimeout(LONGEST)
    if connection.family != socket.AF_UNIX:  # over ssh, ssh itself looks after its peer
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, seconds in (
            (socket.TCP_KEEPIDLE, 10),
            (socket.TCP_KEEPINTVL, 5),
            (socket.TCP_KEEPCNT, 4),
        ):
            connection.setsockopt(socket.IPPROTO_TCP, option, seconds)


def _silent(error: Exception) -> TransferError:
    """The engine of this node gave no answer; described as in node/wire.py."""
    return TransferError("engine", "%s: %s" % (type(error).__name__, in_words(error)))


def _refused(text: str) -> TransferError:
    if "no space left" in text:
        return TransferError("space", "the disk of the Docker engine is full: %s" % text,
                             "docker system df; docker image prune")  # fmt: skip
    return TransferError("content", "the Docker engine does not take the image: %s" % text,
                         "run the same command again, or pull the image")  # fmt: skip
