"""The state of simulated nodes: plain data that tests set, and the little physics that they follow."""

from __future__ import annotations

import hashlib
import json
import posixpath
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

from sparkop.errors import UnreachableError
from sparkop.hosts.base import ContainerSpec, Fence
from sparkop.records import dataclass

GIB = 1 << 30


class Fault(StrEnum):
    """What happens to one write."""

    BEFORE = "before"
    """The writer dies before it: nothing was written."""
    AFTER = "after"
    """The writer dies after it."""
    LOST = "lost"
    """It was written, but the reply is lost: UnreachableError."""


class Answer(StrEnum):
    """How a node answers a probe."""

    WHOLE = "whole"
    SILENT = "silent"
    HALF = "half"
    OLD = "old"
    """The document of an earlier request."""


class SimulatedCrash(BaseException):
    """The writer is killed here. No Exception, so that nothing handles it."""


@dataclass(frozen=True)
class Write:
    """One effect that took place. ``number`` counts attempts in the whole world, from 0."""

    number: int
    node: str
    action: str
    target: str
    holder: str
    token: int


@dataclass
class SimulatedImage:
    """An image; ``size`` in bytes."""

    id: str
    digests: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    size: int = GIB


@dataclass
class SimulatedContainer:
    """A container and what becomes of it. ``memory`` in bytes, held while it runs."""

    spec: ContainerSpec
    id: str
    image_id: str
    state: str = "created"
    exit_code: int = 0
    oom_killed: bool = False
    halted: bool = False
    started_at: float | None = None
    finished_at: float | None = None
    memory: int = 0
    image_labels: Mapping[str, str] = field(default_factory=dict)
    """Docker gives them to the container."""
    log: list[bytes] = field(default_factory=list)
    mounted: dict[str, bytes] = field(default_factory=dict)
    """Files as they were when it started, by their place in it."""

    @property
    def running(self) -> bool:
        return self.state == "running"


@dataclass
class SimulatedUnit:
    """A program without a container; ``kept`` and ``state`` as in hosts/document.py."""

    labels: dict[str, str]
    argv: list[str]
    kept: str = "systemd"
    state: str = "running"
    started_at: float | None = None


Service = Callable[[str, str, Mapping[str, str], bytes | None], tuple[int, Iterable[bytes]]]
"""Method, path, headers, body to status and the lines of the answer."""


@dataclass
class SimulatedNode:
    """One machine. Change any field at any time; `exit`, `reboot` and `place` keep fields consistent."""

    name: str
    world: World
    index: int = 0
    home: str = "/home/spark"
    answer: Answer = Answer.WHOLE
    boot: int = 1
    booted_at: float | None = None
    """By the world's clock; None: long before."""
    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    """Absolute path to content and permission bits."""
    folders: dict[str, int] = field(default_factory=dict)
    fifos: set[str] = field(default_factory=set)
    """Paths with what is no file and no folder: a FIFO, a socket, a device."""
    containers: dict[str, SimulatedContainer] = field(default_factory=dict)
    units: dict[str, SimulatedUnit] = field(default_factory=dict)
    images: dict[str, SimulatedImage] = field(default_factory=dict)
    """By the reference that finds it."""
    checkpoint: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Absolute path of a weight file to ``size``, its true hashes, and ``verified``."""
    claims: dict[str, list[str]] = field(default_factory=dict)
    """Names of files of the checkpoint that other clusters use, by the cluster."""
    memory_total: int = 121 * GIB
    memory_used: int = 4 * GIB
    """By anything but containers."""
    disk_total: int = 3600 * GIB
    disk_free: int = 3000 * GIB
    docker_up: bool = True
    read_only: bool = False
    """Its disk takes no writes: no lease, so no step of any kind under one."""
    services: dict[int, Service] = field(default_factory=dict)
    listeners: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Foreign listeners: port to ``uid``, ``pid``, ``process``."""
    fabric: dict[str, Any] = field(default_factory=dict)
    """``devices`` and ``interfaces`` of the document; two healthy rails at first."""
    gpu: dict[str, Any] = field(default_factory=dict)
    lost_gpus: dict[str, str] = field(default_factory=dict)
    """Container -> the line of its log that says that its GPU is lost."""
    said_inside: dict[str, str] = field(default_factory=dict)
    """Container with such a line -> what nvidia-smi says in it."""
    tools: dict[str, str | None] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    """Overrides of the document's ``machine``."""
    docker: dict[str, Any] = field(default_factory=dict)
    """Overrides of the document's ``docker``."""
    errors: dict[str, str] = field(default_factory=dict)
    """Sections, or ``section:item``, that can't be read."""
    events: list[dict[str, Any]] = field(default_factory=list)
    created: int = 0
    follower_killed: bool = False
    """The process that keeps the rank's log is gone."""

    def __post_init__(self) -> None:
        self.fabric = self.fabric or healthy_fabric(self.index)

    # Paths

    def path(self, path: str, state: str | None = None) -> str:
        """As a node reads it: ``~`` is the home, a relative path is below the state folder."""
        if path == "~" or path.startswith("~/"):
            path = self.home + path[1:]
        if not path.startswith("/"):
            path = posixpath.join(self.path(state or "/"), path)
        return posixpath.normpath(path)

    def document_of(self, path: str) -> Any:
        """A JSON file; None when it is absent."""
        return json.loads(self.files[path][0]) if path in self.files else None

    def leaving(self, wanted: Mapping[str, Any]) -> list[str]:
        """Files of a checkpoint that go when it is removed (node/leaving.py)."""
        folder, hub = self.path(wanted["directory"]), wanted.get("hub")
        shown = posixpath.join(folder, "snapshots", hub["commit"]) if hub else folder
        used = {*wanted.get("keep", ()), *(name for names in self.claims.values() for name in names)}
        names = (file["path"] for file in wanted["files"] if file["path"] not in used)
        return [path for name in names if (path := posixpath.join(shown, name)) in self.checkpoint]

    def misplaced(self, path: str) -> str | None:
        """What the programs of a real node say of a path that can't be a file there; None where it can."""
        if path in self.fifos:
            return f"NotRegularError: Not a regular file: {path}"
        if path in self.folders:
            return f"IsADirectoryError: Is a directory: {path}"
        above = next((str(p) for p in PurePosixPath(path).parents if str(p) in self.files), None)
        return f"NotADirectoryError: Not a directory: {above}" if above else None

    # Events of the world

    def exit(self, name: str, code: int = 0, *, oom: bool = False) -> None:
        """A container's process ends."""
        container = self.containers[name]
        container.state, container.exit_code, container.oom_killed = "exited", code, oom
        container.finished_at = self.world.clock()
        self.tell("die", container, exitCode=str(code))
        if container.spec.restart_policy in ("always", "unless-stopped"):
            self.start(container)

    def start(self, container: SimulatedContainer) -> None:
        container.state, container.oom_killed = "running", False
        container.started_at, container.finished_at = self.world.clock(), None
        container.memory = self.world.memory_of(container.spec)
        sources = ((mount.target, self.files.get(self.path(mount.source))) for mount in container.spec.mounts)
        container.mounted = {target: found[0] for target, found in sources if found is not None}
        self.tell("start", container)
        self.world.on_start(self, container)

    def reboot(self) -> None:
        """Power cut and boot. Only containers with a restart policy run again, with the exit code of old."""
        self.boot += 1
        self.booted_at = self.world.clock()
        for container in self.containers.values():
            if container.running:
                container.state, container.exit_code = "exited", 255
                container.finished_at = self.world.clock()
                if container.spec.restart_policy in ("always", "unless-stopped"):
                    self.start(container)

        for unit in self.units.values():
            unit.state = "running" if unit.kept == "systemd" else "exited"
            unit.started_at = self.world.clock()

    def place(self, directory: str, files: Iterable[Mapping[str, Any]], *, verified: bool = True) -> None:
        """Put weight files (``path``, ``size``, hashes) into a folder."""
        folder = self.path(directory)
        self.folders.setdefault(folder, 0o755)
        for file in files:
            facts = {k: v for k, v in file.items() if k != "path"}
            self.checkpoint[posixpath.join(folder, file["path"])] = {**facts, "verified": verified}

    def tell(self, action: str, container: SimulatedContainer, **attributes: str) -> None:
        known = {**container.spec.labels, "name": container.spec.name, **attributes}
        actor = {"ID": container.id, "Attributes": known}
        self.events.append(
            {"Type": "container", "Action": action, "Actor": actor, "time": int(self.world.clock())}
        )

    # Figures

    @property
    def memory_available(self) -> int:
        held = sum(c.memory for c in self.containers.values() if c.running)
        return max(0, self.memory_total - self.memory_used - held)

    @property
    def boot_id(self) -> str:
        return f"{self.name}-boot-{self.boot}"


@dataclass
class World:
    """All nodes, the registry they pull from, time, and the faults to come.

    ``faults``: attempt number of a write to what happens to it. ``writes``: what took place, in order.
    """

    clock: Callable[[], float] = lambda: 0.0
    nodes: dict[str, SimulatedNode] = field(default_factory=dict)
    registry: dict[str, SimulatedImage] = field(default_factory=dict)
    faults: dict[int, Fault] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)
    attempts: int = 0
    memory_of: Callable[[ContainerSpec], int] = lambda _: 0
    """Bytes that a container holds while it runs."""
    on_start: Callable[[SimulatedNode, SimulatedContainer], None] = lambda _, __: None
    """Told of every start: gives a rank its service, lets a job do its work."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    def add(self, name: str, **fields: Any) -> SimulatedNode:
        """A new node with two healthy rails."""
        node = SimulatedNode(name, self, index=len(self.nodes), **fields)
        self.nodes[name] = node
        return node

    def effect(
        self,
        node: SimulatedNode,
        action: str,
        target: str,
        fence: Fence,
        step: Callable[[], dict[str, Any]],
    ) -> dict[str, Any]:
        """Carry out one write, with the fault that is due."""
        with self.lock:
            number, self.attempts = self.attempts, self.attempts + 1
            fault = self.faults.get(number)
            if fault is Fault.BEFORE:
                raise SimulatedCrash(f"before {action} {target} on {node.name}")
            result = step()
            self.writes.append(Write(number, node.name, action, target, fence.holder, fence.token))
        if fault is Fault.AFTER:
            raise SimulatedCrash(f"after {action} {target} on {node.name}")
        if fault is Fault.LOST:
            raise UnreachableError("The connection to the node broke.", node=node.name)
        return result


def healthy_fabric(index: int) -> dict[str, Any]:
    """Two active rails of one cage, 200 Gb/s, MTU 9000, the GID of the address at index 3."""
    devices, interfaces = [], []
    rails = (("rocep1s0f0", "enp1s0f0np0", "0000"), ("roceP2p1s0f0", "enP2p1s0f0np0", "0002"))
    for rail, (device, interface, domain) in enumerate(rails):
        last = 11 + index
        address = f"10.{78 + rail}.0.{last}"
        gid = f"0000:0000:0000:0000:0000:ffff:0a{78 + rail:02x}:{last:04x}"
        devices.append(
            {
                "name": device,
                "state": "ACTIVE",
                "physical_state": "LinkUp",
                "rate": "200 Gb/sec (4X HDR)",
                "pci": f"{domain}:01:00.0",
                "firmware": "28.45.4028",
                "netdevs": [interface],
                "gids": [{"index": 3, "gid": gid, "type": "RoCE v2", "netdev": interface}],
                "counters": {},
            }
        )
        interfaces.append(
            {
                "name": interface,
                "operstate": "up",
                "carrier": True,
                "mtu": 9000,
                "speed_mbps": 200000,
                "mac": f"02:5a:00:00:{rail + 1:02x}:{last:02x}",
                "addresses": [f"{address}/24"],
            }
        )
    return {"devices": devices, "interfaces": interfaces}


def rfc3339(moment: float | None) -> str | None:
    """Docker's form of a moment in seconds since 1970."""
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
