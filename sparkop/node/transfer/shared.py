"""Whether a folder is the same one on another node: a file that one writes is read by the other."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any, Dict

from .ledger import write_whole
from .place import Place

NAME = ".sparkop-shared-"
POLL = 0.2
FORGOTTEN = 3600.0
"""Seconds after which a mark was left behind by a controller that is gone."""


def mark(state: str, request: Dict[str, Any]) -> Dict[str, Any]:
    """Write the mark ``nonce`` into the folder, which is made when it is absent. Raises TransferError."""
    place = Place(request["directory"], request.get("hub"))
    place.prepare((), state)
    for name in os.listdir(place.root):
        path = os.path.join(place.root, name)
        if name.startswith(NAME):
            with suppress(OSError):
                if time.time() - os.stat(path).st_mtime > FORGOTTEN:
                    os.unlink(path)
    write_whole(_path(place, request), request["nonce"].encode())
    return {"folder": place.root}


def seen(request: Dict[str, Any]) -> Dict[str, Any]:
    """Whether the mark is read here within ``seconds``: a network file system may show it a moment later."""
    place = Place(request["directory"], request.get("hub"))
    deadline = time.monotonic() + float(request["seconds"])
    while True:
        _look_again(place.root)
        with suppress(OSError), open(_path(place, request), "rb") as file:
            if file.read() == request["nonce"].encode():
                return {"seen": True, "folder": place.root}
        if time.monotonic() > deadline:
            return {"seen": False, "folder": place.root}
        time.sleep(POLL)


def unmark(request: Dict[str, Any]) -> Dict[str, Any]:
    """Take the mark away."""
    with suppress(FileNotFoundError):
        os.unlink(_path(Place(request["directory"], request.get("hub")), request))
    return {}


def _path(place: Place, request: Dict[str, Any]) -> str:
    return os.path.join(place.root, NAME + str(int(request["nonce"], 16)))


def _look_again(folder: str) -> None:
    """A client that remembers that a folder was not there, or what it held, asks its server on listing."""
    for path in (os.path.dirname(folder), folder):
        with suppress(OSError):
            os.listdir(path)
