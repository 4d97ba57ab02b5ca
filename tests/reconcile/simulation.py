"""A whole cluster in memory: simulated nodes, ranks that load and serve, a hub's list, a clock.

Everything above ``hosts`` is real. Only the download itself is played: it puts the files there.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkop.engines.common import image_reference
from sparkop.hosts.base import ContainerSpec, Host
from sparkop.hosts.simulated import SimulatedHost
from sparkop.hosts.simulated_node import (
    SimulatedContainer,
    SimulatedCrash,
    SimulatedImage,
    SimulatedNode,
    World,
)
from sparkop.reconcile.converge import Converged, converge
from sparkop.reconcile.observe import Reading, observe
from sparkop.reconcile.plan import Plan
from sparkop.reconcile.reconcile import reconcile
from sparkop.reconcile.stop import Stopped, stop_serving
from sparkop.resources.base import Context, Resource
from sparkop.resources.events import Event, Phase
from sparkop.resources.exl3_plan import plan_of
from sparkop.resources.operations import Operation
from sparkop.resources.registry import RESOURCES
from sparkop.resources.weights.files import Checkpoint, shown_directory, wanted_files
from sparkop.resources.weights.hub import RemoteFile, Repository
from sparkop.resources.weights.resource import WeightFiles
from sparkop.spec.models import ClusterSpec

GIB = 1 << 30
DIGEST = "sha256:" + "5668e35e" * 8
IMAGE = f"registry.example/engine@{DIGEST}"
COMMIT = "c0ffee00" * 5
PLAN = b'{"qdir": "qn:q31", "bits": 3}'
PORT = 8000
EPOCH_START = 1_790_000_000.0


class SimulatedClock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = EPOCH_START
        self.skew = 0.0
        """Added to the wall clock: clocks jump, monotonic ones do not."""
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now + self.skew

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.now += seconds


class PlayedWeights(WeightFiles):
    """The weights as they are, but the job on the node takes no time."""

    def prepare(self, spec: ClusterSpec) -> Checkpoint:
        files = tuple(
            RemoteFile(path=path, size=size, sha256=letter * 64, git=letter * 40)
            for path, size, letter in (
                ("config.json", 700, "a"),
                ("model.safetensors", 3 * GIB, "b"),
                *self.exl3_files(spec),
            )
        )
        repository = Repository(
            spec.weights.repository, "https://hub.example", spec.weights.revision, COMMIT, files, {}
        )
        return Checkpoint(repository, wanted_files(repository, spec.weights))

    @staticmethod
    def exl3_files(spec: ClusterSpec) -> tuple[tuple[str, int, str], ...]:
        """The plan P.json and two banks, in the checkpoint of a cluster that wants a plan."""
        if plan_of(spec) is None:
            return ()
        banks = (f"exl3/{bank}/L03.part.safetensors" for bank in ("qn", "q31"))
        return (("exl3/plan/P.json", len(PLAN), "c"), *((bank, 100, "d") for bank in banks))

    def perform(self, operation: Operation, context: Context) -> None:
        host = context.host(operation.node)
        assert isinstance(host, SimulatedHost)
        checkpoint = context.desired.outside["weights"]
        node = context.desired.spec.nodes[context.desired.nodes[operation.node].index]
        folder = shown_directory(context.desired.spec, node, COMMIT)

        def place() -> dict[str, Any]:
            host.node.place(folder, [vars_of(file) for file in checkpoint.files])
            if plan_of(context.desired.spec):
                host.node.files[host.node.path(f"{folder}/exl3/plan/P.json")] = (PLAN, 0o644)
            return {}

        host.write("weights.fetch", folder, context.fence(operation.node), place)


def vars_of(file: Any) -> dict[str, Any]:
    return {"path": file.path, "size": file.size, "sha256": file.sha256}


SIMULATED: tuple[Resource, ...] = tuple(PlayedWeights() if r.kind == "weights" else r for r in RESOURCES)


def spec_of(nodes: int = 2, /, **changes: Any) -> ClusterSpec:
    """A cluster of stand-ins; ``changes`` are merged over it by section."""
    document: dict[str, Any] = {
        "apiVersion": "sparkop/v1",
        "name": "test",
        "nodes": [{"name": f"spark-{index + 1}"} for index in range(nodes)],
        "weights": {"repository": "owner/model", "path": "~/models/model"},
        "image": {"reference": IMAGE},
        "engine": {"kind": "vllm", "context": 32768, "container": {"caches": {"/cache": "."}}},
        "memory": {"kvCache": "64 MiB"},
        "api": {"port": PORT, "servedNames": ["tiny"]},
        "ready": {"deadline": "5 min", "canary": {"deadline": "20 s"}},
    }
    for section, change in changes.items():
        if isinstance(change, Mapping) and isinstance(document.get(section), dict):
            document[section] = {**document[section], **change}
        else:
            document[section] = change
    return ClusterSpec.model_validate(document)


class MortalWorld(World):
    """A writer that crashes writes no more: not even the lease that a living one would give back."""

    dead = False

    def effect(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        if self.dead:
            raise SimulatedCrash("the writer is dead")
        try:
            return super().effect(*arguments, **options)
        except SimulatedCrash:
            self.dead = True
            raise

    def revive(self) -> None:
        """Another run begins, without faults."""
        self.dead = False
        self.faults.clear()


class LiveServices(dict[int, Any]):
    """A port is open while the rank that opened it runs."""

    def __init__(self, node: SimulatedNode) -> None:
        super().__init__()
        self.node = node

    def __contains__(self, port: object) -> bool:
        return self.get(port) is not None

    def get(self, port: Any, default: Any = None) -> Any:
        runs = any(
            c.running and c.spec.labels.get("sparkop.rank") == "0" for c in self.node.containers.values()
        )
        return super().get(port, default) if runs else default


@dataclass
class Cluster:
    """Nodes, what runs on them, and one controller's hosts."""

    spec: ClusterSpec
    world: MortalWorld
    clock: SimulatedClock
    events: list[Event] = field(default_factory=list)
    manner: str = "serve"
    """What the head's rank does with a request: serve, wedge, degenerate, loading, or die-on-start N."""
    served_key: str = ""
    started: list[str] = field(default_factory=list)

    @classmethod
    def make(cls, spec: ClusterSpec | None = None, **changes: Any) -> Cluster:
        spec = spec or spec_of(**changes)
        clock = SimulatedClock()
        world = MortalWorld(clock=clock.time)
        cluster = cls(spec, world, clock)
        image = SimulatedImage("sha256:" + "1d" * 32, (image_reference(spec),))
        world.registry[image_reference(spec)] = image
        world.memory_of = lambda made: 60 * GIB if made.labels.get("sparkop.role") == "rank" else GIB // 100
        world.on_start = cluster.started_one
        for node in spec.nodes:
            made = world.add(node.name)
            made.services = LiveServices(made)
        return cluster

    # Nodes

    def node(self, name: str) -> SimulatedNode:
        return self.world.nodes[name]

    def hosts(self) -> dict[str, Host]:
        """One controller's way to the nodes."""
        return {name: SimulatedHost(node) for name, node in self.world.nodes.items()}

    def rank(self, number: int) -> tuple[SimulatedNode, SimulatedContainer]:
        """Node and container of a rank."""
        for node in self.world.nodes.values():
            for container in node.containers.values():
                labels = container.spec.labels
                wanted = {"sparkop.cluster": "test", "sparkop.role": "rank", "sparkop.rank": str(number)}
                if wanted.items() <= labels.items():
                    return node, container
        raise AssertionError(f"no rank {number}")

    def started_one(self, node: SimulatedNode, container: SimulatedContainer) -> None:
        labels = container.spec.labels
        if labels.get("sparkop.role") != "rank":
            return
        self.started.append(f"{labels['sparkop.rank']}@{node.name}")
        container.log += [b"Route: /docs, Methods: GET", b"Model loading took 3 GiB memory"]
        if labels.get("sparkop.rank") == "0":
            state = next(m.source for m in container.spec.mounts if m.target.endswith("engine.yaml"))
            self.served_key = node.files[state][0].decode().split('"')[1]
            node.services[PORT] = lambda *request: self.answer(node, container, *request)
        if self.manner.startswith("die") and self.manner.endswith(labels["sparkop.rank"]):
            container.log.append(b"RuntimeError: Insufficient space in /dev/shm: 160 MiB required")
            node.exit(container.spec.name, 1)

    def answer(
        self,
        node: SimulatedNode,
        container: SimulatedContainer,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> tuple[int, Iterable[bytes]]:
        """The head's API."""
        if path == "/metrics":
            return 200, [b'vllm:generation_tokens_total{model="tiny"} 7.0\n', b"vllm:prompt_tokens_total 9\n"]
        if headers.get("Authorization") != f"Bearer {self.served_key}":
            return 401, [b'{"error":"Unauthorized"}']
        ranks = [c for n in self.world.nodes.values() for c in n.containers.values()]
        alive = sum(c.running and c.spec.labels.get("sparkop.role") == "rank" for c in ranks)
        if self.manner == "loading":
            return 503, [b"loading"]
        if self.manner == "wedge" or alive < len(self.spec.nodes):
            raise TimeoutError("no answer")
        words = ["!"] * 8 if self.manner == "degenerate" else ["Hello", " there", "."]
        chunks = [json.dumps({"choices": [{"delta": {"content": word}}]}) for word in words]
        return 200, [f"data: {chunk}\n".encode() for chunk in chunks] + [b"data: [DONE]\n"]

    # What a user does

    def observe(self, **options: Any) -> Reading:
        return observe(self.spec, self.hosts(), clock=self.clock, resources=SIMULATED, **options)

    def plan(self, **options: Any) -> Plan:
        reading = self.observe(**options)
        return reconcile(reading.desired, reading.observed, reading.history, self.clock.time(), SIMULATED)

    def apply(self, hosts: Mapping[str, Host] | None = None, **options: Any) -> Converged:
        self.events.clear()
        options = {"emit": self.events.append, "clock": self.clock, "resources": SIMULATED, **options}
        return converge(self.spec, hosts or self.hosts(), **options)

    def begin(self) -> None:
        """An apply that is interrupted while the ranks load; they go on by themselves."""
        self.manner = "loading"
        stop = threading.Event()

        def emit(event: Event) -> None:
            if event.phase is Phase.LOG:
                stop.set()

        assert self.apply(emit=emit, stop=stop).interrupted

    def stop(self, hosts: Mapping[str, Host] | None = None, **options: Any) -> Stopped:
        options = {"emit": self.events.append, "clock": self.clock, "resources": SIMULATED, **options}
        return stop_serving(self.spec, hosts or self.hosts(), **options)

    def shape(self) -> dict[str, Any]:
        """The world without what differs between equal runs: ids, times, epochs, leases, histories."""
        return {
            name: {
                "containers": {c.spec.name: _shape(c) for c in node.containers.values()},
                "units": {unit: made.state for unit, made in sorted(node.units.items())},
                "images": sorted(node.images),
                "weights": {path: facts["verified"] for path, facts in sorted(node.checkpoint.items())},
                "files": {
                    path: mode
                    for path, (_, mode) in sorted(node.files.items())
                    if not path.endswith(("history.json",)) and "/incidents/" not in path
                },
            }
            for name, node in self.world.nodes.items()
        }


def _shape(container: SimulatedContainer) -> dict[str, Any]:
    made: ContainerSpec = container.spec
    return {
        "state": container.state,
        "hash": made.labels.get("sparkop.hash"),
        "rank": made.labels.get("sparkop.rank"),
        "restart": made.options.restart if made.options else "no",
    }
