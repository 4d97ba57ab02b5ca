"""Worlds in files: a state, told as what happened to a cluster, and the text of the plan that it must give.

``tests/data/worlds/*.yaml``::

    about: why this world matters
    base: bare | converged | stopped
    nodes: 2                      # default
    before: {...}                 # spec sections merged over the base spec, before the base is made
    early: {spark-2: {...}}       # what had happened on nodes before the base was made, see CHANGES
    spec: {...}                   # an edit of the spec after that
    changes: {spark-2: {...}}     # what happened on nodes, see CHANGES
    api: serve | wedge | degenerate | loading
    later: 0                      # seconds that pass after the changes
    agreed: [adopt, trip]
    plan: |
      the text

``python -m tests.reconcile.worlds`` writes the plans anew; read the difference before you commit it.
A world that can't exist proves nothing: ``check`` refuses it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

from sparkop.hosts.base import ContainerOptions, ContainerSpec
from sparkop.hosts.simulated_node import Answer, SimulatedContainer, SimulatedNode, healthy_fabric
from sparkop.reconcile.reconcile import reconcile
from sparkop.reconcile.unplanned import with_unplanned
from sparkop.views.plan_text import plan_lines
from tests.reconcile.simulation import EPOCH_START, PORT, SIMULATED, Cluster, spec_of

FOLDER = Path(__file__).parent.parent / "data" / "worlds"
BASES = ("bare", "converged", "stopped")
STATES = ("created", "running", "paused", "restarting", "removing", "exited", "dead")
MANNERS = ("serve", "wedge", "degenerate", "loading")


class ImpossibleWorldError(Exception):
    """No machine can look like this."""


@dataclass(frozen=True)
class WorldFile:
    """One file, read."""

    path: Path
    about: str
    base: str
    plan: str
    nodes: int = 2
    before: Mapping[str, Any] = field(default_factory=dict)
    early: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    api: str = "serve"
    later: float = 0.0
    agreed: tuple[str, ...] = ()


def read(path: Path) -> WorldFile:
    """Raises ImpossibleWorldError for keys that mean nothing."""
    document = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    known = set(WorldFile.__dataclass_fields__) - {"path"}
    unknown = set(document) - known
    if unknown:
        raise ImpossibleWorldError(f"{path.name}: unknown keys {sorted(unknown)}")
    document["agreed"] = tuple(document.get("agreed", ()))
    return WorldFile(path=path, **{"plan": "", **document})


def build(world: WorldFile) -> Cluster:
    """The cluster as the file tells it. Raises ImpossibleWorldError."""
    if world.base not in BASES or world.api not in MANNERS:
        raise ImpossibleWorldError(f"base {world.base!r} or api {world.api!r} is not known")
    cluster = Cluster.make(spec_of(world.nodes, **world.before))
    _change(cluster, world.early)
    if world.base != "bare":
        cluster.apply(holder="ada@desk/1/0")
    if world.base == "stopped":
        cluster.stop(holder="ada@desk/1/1")
    if world.spec:
        cluster.spec = spec_of(world.nodes, **{**world.before, **world.spec})
    _change(cluster, world.changes)
    cluster.manner = world.api
    cluster.clock.sleep(world.later)
    check(world, cluster)
    return cluster


def _change(cluster: Cluster, happened: Mapping[str, Mapping[str, Any]]) -> None:
    for name, changes in happened.items():
        if name not in cluster.world.nodes:
            raise ImpossibleWorldError(f"there is no node {name}")
        for key, value in changes.items():
            if key not in CHANGES:
                raise ImpossibleWorldError(f"unknown change {key}")
            CHANGES[key](cluster.node(name), value)


def plan_text(world: WorldFile) -> str:
    """The plan of the world, as diff tells it."""
    cluster = build(world)
    reading = cluster.observe(agreed=frozenset(world.agreed))
    plan = reconcile(reading.desired, reading.observed, reading.history, cluster.clock.time(), SIMULATED)
    text = "\n".join(plan_lines(with_unplanned(plan, reading))) + "\n"
    return re.sub(r"after \d+ of \d+ bytes", "after N of M bytes", text)


def check(world: WorldFile, cluster: Cluster) -> None:
    """Refuse what can't be. Raises ImpossibleWorldError."""
    for name, changes in world.changes.items():
        if changes.get("answer") in ("silent", "half", "old") and len(changes) > 1:
            raise ImpossibleWorldError(f"{name} does not answer, so nothing else of it can show")
    if world.api != "serve" and not any(
        c.running and c.spec.labels.get("sparkop.rank") == "0"
        for node in cluster.world.nodes.values()
        for c in node.containers.values()
    ):
        raise ImpossibleWorldError("an API without a running rank 0")
    for node in cluster.world.nodes.values():
        _check_containers(node)
        _check_fabric(node)
        if not 0 <= node.disk_free <= node.disk_total:
            raise ImpossibleWorldError(f"{node.name}: {node.disk_free} bytes free of {node.disk_total}")
        if node.memory_used > node.memory_total:
            raise ImpossibleWorldError(f"{node.name}: more memory used than there is")
        for path, (_, mode) in node.files.items():
            if not 0 <= mode <= 0o7777:
                raise ImpossibleWorldError(f"{node.name}: {path} has mode {mode:o}")
        for port in node.listeners:
            if port == PORT and any(
                c.running and c.spec.labels.get("sparkop.rank") == "0" for c in node.containers.values()
            ):
                raise ImpossibleWorldError(f"{node.name}: two programs listen on port {port}")


def _check_containers(node: SimulatedNode) -> None:
    now = node.world.clock()
    for name, container in node.containers.items():
        where = f"{node.name}: {name}"
        if container.state not in STATES:
            raise ImpossibleWorldError(f"{where} has no such state: {container.state}")
        if container.spec.name != name:
            raise ImpossibleWorldError(f"{where} is called {container.spec.name}")
        if container.oom_killed and (container.running or container.exit_code == 0):
            raise ImpossibleWorldError(f"{where} was killed for memory, yet runs or ended well")
        if container.running and container.started_at is None:
            raise ImpossibleWorldError(f"{where} runs, but was never started")
        if container.started_at is not None and container.started_at > now:
            raise ImpossibleWorldError(f"{where} will be started in the future")
        if container.state == "created" and container.started_at is not None:
            raise ImpossibleWorldError(f"{where} was started, so it is more than created")


def _check_fabric(node: SimulatedNode) -> None:
    carriers = {i["name"]: i["carrier"] for i in node.fabric["interfaces"]}
    for device in node.fabric["devices"]:
        if device["state"] == "ACTIVE" and not all(carriers.get(net) for net in device["netdevs"]):
            raise ImpossibleWorldError(f"{node.name}: {device['name']} is active without a carrier")


# Changes


def _exit(node: SimulatedNode, codes: Mapping[str, int]) -> None:
    for name, code in codes.items():
        container = node.containers[name]
        container.state, container.exit_code = "exited", code
        container.finished_at = node.world.clock()


def _oom(node: SimulatedNode, names: list[str]) -> None:
    for name in names:
        _exit(node, {name: 137})
        node.containers[name].oom_killed = True


def _state(node: SimulatedNode, states: Mapping[str, str]) -> None:
    for name, state in states.items():
        node.containers[name].state = state


def _remove(node: SimulatedNode, names: list[str]) -> None:
    for name in names:
        del node.containers[name]


def _labels(node: SimulatedNode, changes: Mapping[str, Mapping[str, str]]) -> None:
    for name, labels in changes.items():
        container = node.containers[name]
        kept = {**container.spec.labels, **labels}
        container.spec = ContainerSpec(
            **{**vars(container.spec), "labels": {k: str(v) for k, v in kept.items() if v is not None}}
        )


def _containers(node: SimulatedNode, made: Mapping[str, Mapping[str, Any]]) -> None:
    for name, facts in made.items():
        spec = ContainerSpec(
            name, facts.get("image", "busybox"), dict(facts.get("labels", {})), options=ContainerOptions()
        )
        state = facts.get("state", "running")
        node.containers[name] = SimulatedContainer(
            spec,
            f"id-{name}",
            "sha256:" + "00" * 32,
            state=state,
            exit_code=facts.get("exit", 0),
            oom_killed=facts.get("oom", False),
            started_at=facts.get("started", EPOCH_START) if state != "created" else facts.get("started"),
        )


def _weights(node: SimulatedNode, change: Any) -> None:
    for path in list(node.checkpoint):
        if change == "absent" or (isinstance(change, dict) and change.get(Path(path).name) == "absent"):
            del node.checkpoint[path]
        elif isinstance(change, dict) and change.get(Path(path).name) == "unverified":
            node.checkpoint[path]["verified"] = False
    if change == "absent":
        node.folders = {path: mode for path, mode in node.folders.items() if "models" not in path}


def _files(node: SimulatedNode, changes: Mapping[str, Any]) -> None:
    for path, change in changes.items():
        full = node.path(path, "~/.sparkop/test")
        if change == "absent":
            node.files.pop(full, None)
        else:
            content, mode = node.files.get(full, (b"", 0o644))
            content = change["content"].encode() if "content" in change else content
            node.files[full] = (content, change.get("mode", mode))


def _rails_down(node: SimulatedNode, numbers: list[int]) -> None:
    for number in numbers:
        node.fabric["devices"][number].update(state="DOWN", physical_state="Disabled", gids=[])
        node.fabric["interfaces"][number].update(operstate="down", carrier=False, speed_mbps=None)


def _rails_up(node: SimulatedNode, numbers: list[int]) -> None:
    healthy = healthy_fabric(node.index)
    for number in numbers:
        for kind in ("devices", "interfaces"):
            node.fabric[kind][number] = healthy[kind][number]


def _interfaces(node: SimulatedNode, changes: Mapping[int, Mapping[str, Any]]) -> None:
    for number, change in changes.items():
        node.fabric["interfaces"][number].update(change)


def _gid_index(node: SimulatedNode, index: int) -> None:
    for device in node.fabric["devices"]:
        for gid in device["gids"]:
            gid["index"] = index


def _fabric(node: SimulatedNode, change: str) -> None:
    if change != "no-devices":
        raise ImpossibleWorldError(f"unknown fabric: {change}")
    node.fabric = {"devices": [], "interfaces": node.fabric["interfaces"]}


def _listeners(node: SimulatedNode, ports: Mapping[int, Mapping[str, Any]]) -> None:
    """``of``: the container whose process it is."""
    for port, each in ports.items():
        facts = dict(each)
        if own := facts.pop("of", None):
            facts["cgroup"] = f"0::/system.slice/docker-{node.containers[own].id}.scope"
        node.listeners[int(port)] = facts


def _trip(node: SimulatedNode, change: Mapping[str, Any]) -> None:
    import json

    name = change.get("container", f"test-r{node.index}")
    stamped = change.get("hash") or node.containers[name].spec.labels["sparkop.hash"]
    record = {"version": 1, "at": 1.0, "hashes": [stamped], "containers": [name]}
    record |= {key: value for key, value in change.items() if key not in ("container", "hash")}
    node.files[node.path("trip.json", "~/.sparkop/test")] = (json.dumps(record).encode(), 0o644)


def _field(name: str) -> Callable[[SimulatedNode, Any], None]:
    return lambda node, value: setattr(node, name, value)


def _update(name: str) -> Callable[[SimulatedNode, Any], None]:
    return lambda node, value: getattr(node, name).update(value)


def _restart_policy(node: SimulatedNode, value: Mapping[str, str]) -> None:
    """``docker update --restart``."""
    for name, policy in value.items():
        made = node.containers[name].spec
        options = replace(made.options or ContainerOptions(), restart=policy)
        node.containers[name].spec = replace(made, options=options)


CHANGES: dict[str, Callable[[SimulatedNode, Any], None]] = {
    "answer": lambda node, value: setattr(node, "answer", Answer(value)),
    "docker": lambda node, value: setattr(node, "docker_up", value != "down"),
    "exit": _exit,
    "oom": _oom,
    "state": _state,
    "halted": lambda node, name: setattr(node.containers[name], "halted", True),
    "restart_policy": _restart_policy,
    "remove": _remove,
    "labels": _labels,
    "containers": _containers,
    "image": lambda node, value: node.images.clear() if value == "absent" else None,
    "weights": _weights,
    "files": _files,
    "rails_down": _rails_down,
    "rails_up": _rails_up,
    "interfaces": _interfaces,
    "gid_index": _gid_index,
    "fabric": _fabric,
    "trip": _trip,
    "reboot": lambda node, value: node.reboot() if value else None,
    "disk_free": _field("disk_free"),
    "memory_total": _field("memory_total"),
    "memory_used": _field("memory_used"),
    "machine": _update("machine"),
    "errors": _update("errors"),
    "listeners": _listeners,
    "lost_gpus": _update("lost_gpus"),
    "said_inside": _update("said_inside"),
}
"""What can have happened to a node."""


def main() -> None:
    """Write every plan anew."""
    yaml = YAML()
    yaml.width = 200
    for path in sorted(FOLDER.glob("*.yaml")):
        if len(sys.argv) > 1 and path.stem not in sys.argv[1:]:
            continue
        document = yaml.load(path.read_text(encoding="utf-8"))
        document["plan"] = LiteralScalarString(plan_text(read(path)))
        out = StringIO()
        yaml.dump(document, out)
        path.write_text(out.getvalue(), encoding="utf-8")


if __name__ == "__main__":
    main()
