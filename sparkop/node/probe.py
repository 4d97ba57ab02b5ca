"""Everything that is observed on a node, as one JSON document. Reads only.

Stdlib-only, Python 3.8 or newer; answers each request on standard input, one JSON object a line. By sysfs,
/proc, netlink and Docker's socket: no subprocess, except nvidia-smi for ``gpu``, and in containers that seem
to have lost theirs for ``lost_gpus``.

Request (all but ``nonce`` may be left out)::

    {"version": 1, "nonce": "...", "sections": ["machine", ...],   # None: all that have something to read
     "cluster": "name", "state": "~/.sparkop/name",
     "files": ["path"],            # hashed up to 64 MiB; relative to the state folder, or ~, or absolute
     "contents": ["path"],         # returned as base64: never part of what is recorded
     "disk": ["path"], "tools": ["rsync"],
     "weights": {"directory": "~/models/x", "files": [{"path": "a", "size": 1, "sha256": "..."}]},
                                   # of a file put together from parts also "made_of": ["a.part00"]
     "removable": {"directory": "~/models/x", "files": [...]},    # what goes of a checkpoint: node/leaving.py
     "ground": {"apart": "~/models/x", "ours": ["path"]},     # what is in the state folder: node/ground.py
     "deep": false,                # hash the weights instead of believing the ledger: minutes
     "headers": "~/models/x",      # tensors of a checkpoint by name and type: node/headers.py
     "images": ["reference"],
     "pulled": false,              # also the images that the history says we have pulled
     "unnamed": "sparkop.built-for=name",   # images with this label that have lost their name
     "labels": ["sparkop.cluster=name"], "containers": ["name"],
     "ports": [8000], "peers": ["192.168.100.11"], "gpu": false,
     "lost_gpus": {"containers": ["name"], "always": false},    # what NVML says in them: node/gpus.py
     "engine": false,              # also the settings of the Docker engine: root, driver, runtimes
     "follower": false,            # who keeps the rank's log: node/follow.py
     "health": false,              # settings and processes that doctor looks at: node/health.py
     "units": false,               # our programs that run without a container: node/units.py
     "libraries": ["path"],        # SHA-256 and NCCL version of large files: a second each
     "pings": [{"name": "n", "address": "192.168.100.11", "source": "192.168.100.10", "bytes": 9000}],
     "changed": {"path": "trip.json", "seen": null, "seconds": 300},  # waits until the file is not as seen
     "timeout": 5.0}

A container is told of when it carries any of the labels (``key`` or ``key=value``) or has one of the names.
The document is described by hosts/document.py. What could not be read is in ``errors`` under its section,
or under ``section:item``, and is then missing from the document: unknown, never empty.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time

from . import engine, facts, network, wire
from .wire import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Callable

    Json = Any

VERSION = 1
TURN = 0.25
"""Seconds between two looks at a file that is waited for."""
LEDGER_VERSION = 1
"""As in node/transfer/ledger.py."""
FILES = (".json", ".draft", ".lock", ".log", ".log.1")
"""Endings of the files of the state folder; those of its folders have none."""
TRIP, TRIP_DRAFT = "trip.json", "trip.draft"
"""Of the memory guard (node/memguard/record.py). The draft is its record until that is published, else
nothing but zeros."""
OPTIONAL = {
    *("contents", "weights", "headers", "state", "gpu", "lost_gpus", "health", "libraries", "pings", "units"),
    *("changed", "follower", "removable", "ground"),
}
"""Sections that are read only when something is asked of them."""


class Probe:
    """One pass over the node."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.errors: dict[str, str] = {}
        self.timeout = float(request.get("timeout") or 5.0)

    def document(self) -> dict[str, Any]:
        """Read every section asked for; nvidia-smi runs beside the rest."""
        sections: dict[str, Callable[[], Json]] = {
            "machine": facts.machine,
            "tools": lambda: facts.tools(self.asked("tools") or facts.TOOLS),
            "memory": facts.memory,
            "fabric": lambda: network.fabric(self.asked("peers")),
            "disk": lambda: self.each("disk", facts.disk),
            "files": lambda: self.each("files", lambda path: facts.file(self.path(path))),
            "contents": lambda: self.each("contents", lambda path: facts.contents(self.path(path))),
            "state": self.state,
            "ground": self.ground,
            "follower": self.follower,
            "weights": self.weights,
            "removable": self.removable,
            "headers": self.headers,
            "ports": lambda: network.ports(self.asked("ports")),
            "docker": lambda: engine.read(self.request, self.timeout, self.errors),
            "lost_gpus": self.lost_gpus,
            "changed": self.changed,
            "health": self.health,
            "libraries": self.libraries,
            "pings": self.pings,
            "units": self.units,
        }
        document: dict[str, Any] = {"version": VERSION, "nonce": self.request["nonce"]}
        gpu: dict[str, Any] = {}
        if self.wanted("gpu"):
            self.read("gpu", self.ask_gpu, gpu)
        for name, read in sections.items():
            if self.wanted(name):
                self.read(name, read, document)
        if "gpu" in gpu:
            self.read("gpu", lambda: self.gpu(gpu["gpu"]), document)
        document["errors"] = self.errors
        return document

    def wanted(self, section: str) -> bool:
        only = self.request.get("sections")
        if only is not None:
            return section in only
        return section not in OPTIONAL or bool(self.request.get(section))

    def read(self, name: str, section: Callable[[], Json], document: dict[str, Any]) -> None:
        try:
            document[name] = section()
        except Exception as error:
            self.errors[name] = wire.describe(error)

    def asked(self, key: str) -> list[Any]:
        return list(self.request.get(key) or ())

    def path(self, path: str) -> str:
        return wire.expand(path, self.request.get("state"))

    def each(self, section: str, read: Callable[[str], Json]) -> dict[str, Json]:
        """One entry a requested path; an item that fails is an error of its own."""
        found = {}
        for item in self.asked(section):
            try:
                found[item] = read(item)
            except Exception as error:
                self.errors["%s:%s" % (section, item)] = wire.describe(error)
        return found

    # A module that only its section needs is imported there: most probes do not pay for it.

    def ask_gpu(self) -> Json:
        from . import gpus

        return gpus.ask()

    def gpu(self, running: list[Any]) -> Json:
        from . import gpus

        return gpus.answer(running, self.timeout)

    def removable(self) -> Json:
        from . import leaving

        return leaving.Leaving(self.request["removable"], self.request["state"]).look()

    def ground(self) -> Json:
        from . import ground

        return ground.look(self.request["ground"], self.request["state"])

    def headers(self) -> Json:
        from . import headers

        return headers.read(self.path(self.request["headers"]))

    def health(self) -> Json:
        from . import health

        return health.read(self.errors)

    def libraries(self) -> dict[str, Json]:
        from . import health

        return self.each("libraries", lambda path: health.library(self.path(path)))

    def units(self) -> Json:
        from . import units

        return units.read(self.request["state"], self.errors)

    def pings(self) -> dict[str, Json]:
        """By the name of the question; all at once, as each may wait."""
        from concurrent.futures import ThreadPoolExecutor

        from . import ping

        def one(asked: dict[str, Any]) -> Json:
            try:
                return ping.ping(asked["address"], asked["source"], asked["bytes"])
            except OSError as error:
                self.errors["pings:%s" % asked["name"]] = wire.describe(error)
                return None

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(one, self.asked("pings")))
        names = [asked["name"] for asked in self.asked("pings")]
        return {name: answer for name, answer in zip(names, answers) if answer is not None}  # noqa: B905 (3.8)

    def lost_gpus(self) -> dict[str, Json]:
        from . import gpus

        asked = self.request["lost_gpus"]
        return gpus.lost(asked["containers"], bool(asked.get("always")), self.timeout)

    def changed(self) -> dict[str, Json]:
        """What a file is when it is not as ``seen`` any more, or when the time is over, or nobody listens."""
        asked = self.request["changed"]
        path, end = self.path(asked["path"]), time.monotonic() + float(asked["seconds"])
        while True:
            stamp = stamp_of(path)
            left = end - time.monotonic()
            if stamp != asked["seen"] or left <= 0 or select.select([sys.stdin], [], [], min(TURN, left))[0]:
                return {"stamp": stamp}

    def state(self) -> dict[str, Json]:
        """The JSON files of the state folder, by name. None: it is there, but damaged (no JSON). A draft of
        the memory guard's record counts as soon as it is filled. A folder or a FIFO in place of any file of
        ours is an error of its own."""
        folder = os.path.expanduser(self.request["state"])
        try:
            listed = set(os.listdir(folder))
        except FileNotFoundError:
            return {}
        found = {}
        published = {TRIP} if TRIP_DRAFT in listed else set()  # it may become that one meanwhile
        for name in sorted(listed | published):
            if not name.endswith(FILES) or name.startswith("."):
                continue
            path = os.path.join(folder, name)
            try:
                wire.check_kind(path, os.stat(path).st_mode)
                if name.endswith(".json") or name == TRIP_DRAFT:
                    found[name] = read_json(path)
            except ValueError:
                if name != TRIP_DRAFT:
                    found[name] = None
            except Exception as error:
                gone = isinstance(error, FileNotFoundError) and not (
                    name.endswith(".json") and name in listed
                )
                if not gone:  # drafts and locks come and go
                    self.errors["state:%s" % name] = wire.describe(error)
        return found

    def follower(self) -> dict[str, Any]:
        """Who keeps the log of which container (node/follow.py), and whether that process runs. A damaged
        record names nobody: it is written anew."""
        from . import units

        try:
            found = read_json(os.path.join(os.path.expanduser(self.request["state"]), "logs.json"))
        except (FileNotFoundError, ValueError):
            found = {}
        found = found if isinstance(found, dict) else {}
        return {
            "container": found.get("container"),
            "alive": units.state_of(units.identity_of(found)) == "running",
            "unreadable": found.get("unreadable"),
        }

    def weights(self) -> dict[str, Any]:
        from . import weights

        if self.request.get("deep"):
            return weights.compare(self.request["weights"], None)
        return weights.compare(self.request["weights"], self.ledger())

    def ledger(self) -> dict[str, Any]:
        """Verified files by real path, as node/transfer keeps them. A broken ledger proves nothing."""
        if not self.request.get("state"):
            return {}
        path = os.path.join(os.path.expanduser(self.request["state"]), "ledger", "weights.json")
        try:
            document = read_json(path)
            entries = document["files"] if document["version"] == LEDGER_VERSION else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        return entries if isinstance(entries, dict) else {}


def stamp_of(path: str) -> list[int] | None:
    """Changes whenever a file is written; None when there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return [found.st_ino, found.st_mtime_ns, found.st_size]


def read_json(path: str) -> Json:
    return json.loads(read_text(path))


def main(stdin: BinaryIO, stdout: BinaryIO) -> int:
    for request in wire.requests(stdin):
        wire.write_answer(stdout, request["nonce"], Probe(request).document())
    return 0
