"""What the probe would say of a simulated node."""

from __future__ import annotations

import posixpath
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any

from sparkop.hosts.base import VERSION
from sparkop.hosts.simulated_node import SimulatedContainer, SimulatedNode, rfc3339, sha256
from sparkop.node.engine import carries
from sparkop.node.ground import OWNER, foreign
from sparkop.node.probe import FILES, TRIP_DRAFT
from sparkop.node.weights import HASHES


def document(node: SimulatedNode, request: Mapping[str, Any], nonce: str) -> dict[str, Any]:
    """The whole document, or the sections asked for."""
    state = request.get("state")
    sections: dict[str, Any] = {
        "machine": _machine(node),
        "tools": {"python": "3.12.3", "docker": "/usr/bin/docker", "rsync": "/usr/bin/rsync", **node.tools},
        "memory": _memory(node),
        "fabric": _fabric(node, request.get("peers") or ()),
        "disk": {path: _disk(node, path) for path in request.get("disk") or ()},
        "files": {path: _file(node, node.path(path, state)) for path in request.get("files") or ()},
        "docker": _docker(node, request),
        "ports": {str(port): _port(node, port) for port in request.get("ports") or ()},
    }
    if request.get("units"):
        sections["units"] = [
            {
                "name": name,
                "labels": unit.labels,
                "kept": unit.kept,
                "boots": unit.kept == "systemd",
                "state": unit.state,
                "started_at": rfc3339(unit.started_at),
            }
            for name, unit in sorted(node.units.items())
        ]
    if state:
        sections["state"] = _state(node, node.path(state))
        if request.get("ground"):
            sections["ground"] = _ground(node, node.path(state), request["ground"])
        if request.get("follower"):
            sections["follower"] = _follower(node, node.path(state))
    if request.get("weights"):
        sections["weights"] = _weights(node, request["weights"])
    if request.get("removable"):
        going = node.leaving(request["removable"])
        size = sum(node.checkpoint[path]["size"] for path in going)
        folder = node.path(request["removable"]["directory"])
        sections["removable"] = {
            "path": folder,
            "there": bool(going),
            "bytes": size,
            "link": None,
            "kept": node.claims,
        }
    if request.get("lost_gpus"):
        running = {c.spec.name for c in node.containers.values() if c.running}
        asked = [name for name in request["lost_gpus"]["containers"] if name in running]
        sections["lost_gpus"] = {
            name: {"log": node.lost_gpus.get(name), "exec": node.said_inside.get(name)} for name in asked
        }
    if request.get("gpu"):
        sections["gpu"] = node.gpu or {"devices": [{"name": "NVIDIA GB10"}], "processes": []}
    if request.get("contents"):
        found = {path: node.files.get(node.path(path, state)) for path in request["contents"]}
        sections["contents"] = {p: b64encode(f[0]).decode() if f else None for p, f in found.items()}
    errors = {**_misplaced(node, request), **node.errors}
    if not node.docker_up:
        errors["docker"] = "ConnectionRefusedError: Connection refused"
    only = request.get("sections")
    for key in [k for k in sections if k in errors or (only is not None and k not in only)]:
        del sections[key]
    for section, _, item in (key.partition(":") for key in errors):
        if item and isinstance(sections.get(section), dict):
            sections[section].pop(item, None)
    return {"version": VERSION, "nonce": nonce, **sections, "errors": errors}


def _misplaced(node: SimulatedNode, request: Mapping[str, Any]) -> dict[str, str]:
    """Folders and FIFOs where files are asked for."""
    state, there = request.get("state"), {*node.folders, *node.fifos}
    asked = [(key, path) for key in ("files", "contents") for path in request.get(key) or ()]
    inside = [path for path in sorted(there) if state and posixpath.dirname(path) == node.path(state)]
    asked += [("state", posixpath.basename(path)) for path in inside if path.endswith(FILES)]
    found = {f"{key}:{path}": node.path(path, state) for key, path in asked}
    if request.get("follower"):
        found["follower"] = node.path("logs.json", state)
    return {key: str(node.misplaced(path)) for key, path in found.items() if path in there}


def _machine(node: SimulatedNode) -> dict[str, Any]:
    return {
        "hostname": node.name,
        "machine_id": f"{node.name}-machine",
        "boot_id": node.boot_id,
        "arch": "aarch64",
        "kernel": "6.17.0-1014-nvidia",
        "os": "Ubuntu 24.04.4 LTS",
        "cmdline": "",
        "uptime_s": 1e6 if node.booted_at is None else node.world.clock() - node.booted_at,
        "time_s": float(node.world.clock()),
        "home": node.home,
        "user": posixpath.basename(node.home),
        "uid": 1000,
        "groups": ["docker", posixpath.basename(node.home)],
        "pending_groups": [],
        "cpu_count": 20,
        "product": "NVIDIA_DGX_Spark",
        "reboot_required": False,
        **node.machine,
    }


def _memory(node: SimulatedNode) -> dict[str, Any]:
    free = node.memory_available
    return {"total": node.memory_total, "available": free, "free": free, "cma_total": None, "cma_free": None}


def _fabric(node: SimulatedNode, peers: Iterable[str]) -> dict[str, Any]:
    routes: dict[str, Any] = {}
    for peer in peers:
        for interface in node.fabric["interfaces"]:
            own = next(iter(interface["addresses"]), "").partition("/")[0]
            if own and own.rpartition(".")[0] == peer.rpartition(".")[0] and interface["carrier"]:
                routes[peer] = {"interface": interface["name"], "source": own, "gateway": None}
        routes.setdefault(peer, {"interface": "enP7s7", "source": None, "gateway": None})
    return {**node.fabric, "routes": routes}


def _disk(node: SimulatedNode, path: str) -> dict[str, Any]:
    place = node.path(path)
    return {
        "path": place,
        "total": node.disk_total,
        "free": node.disk_free,
        "inodes_free": 10**8,
        "device": 1,
    }


def _file(node: SimulatedNode, path: str) -> dict[str, Any] | None:
    found = node.files.get(path)
    if found is None:
        return None
    return {"size": len(found[0]), "mode": found[1], "uid": 1000, "sha256": sha256(found[0])}


def _state(node: SimulatedNode, folder: str) -> dict[str, Any]:
    found = {
        posixpath.basename(path): _json(node, path)
        for path in sorted(node.files)
        if posixpath.dirname(path) == folder and path.endswith((".json", TRIP_DRAFT))
    }
    return {name: content for name, content in found.items() if content is not None or name != TRIP_DRAFT}


def _ground(node: SimulatedNode, folder: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    start = f"{folder}/"
    inside = [path for path in (*node.files, *node.folders) if path.startswith(start)]
    names = list({path[len(start) :].partition("/")[0] for path in inside})
    apart = node.path(wanted["apart"])
    return {
        "foreign": foreign(names, [node.path(path, folder) for path in wanted["ours"]], folder),
        "owned": OWNER in names,
        "apart": apart if f"{apart}/".startswith(f"{folder}/") else None,
    }


def _json(node: SimulatedNode, path: str) -> Any:
    try:
        return node.document_of(path)
    except ValueError:
        return None


def _follower(node: SimulatedNode, folder: str) -> dict[str, Any]:
    """It lives as long as its container runs, unless a test kills it."""
    found = node.document_of(posixpath.join(folder, "logs.json")) or {}
    container = found.get("container")
    runs = any(each.id == container and each.running for each in node.containers.values())
    alive = runs and not node.follower_killed
    return {"container": container, "alive": alive, "unreadable": found.get("unreadable")}


def _docker(node: SimulatedNode, request: Mapping[str, Any]) -> dict[str, Any]:
    labels, names = request.get("labels") or (), request.get("containers") or ()
    ours = [
        c
        for c in node.containers.values()
        if c.spec.name in names or any(carries(dict(c.spec.labels), label) for label in labels)
    ]
    pulled = _pulled(node, request["state"]) if request.get("pulled") else ()
    images = {name: node.images.get(name) for name in (*(request.get("images") or ()), *pulled)}
    settings = {
        "root": "/var/lib/docker",
        "driver": "overlay2",
        "snapshotter": False,
        "cgroup_version": "2",
        "runtimes": ["io.containerd.runc.v2", "nvidia", "runc"],
        "default_runtime": "runc",
    }
    return {
        "version": "29.2.1",
        "api_version": "1.53",
        **(settings if request.get("engine") else {}),
        "containers": [_container(c) for c in ours],
        "images": {
            reference: i and {"id": i.id, "digests": list(i.digests), "labels": i.labels, "size": i.size}
            for reference, i in images.items()
        },
        **(_unnamed(node, request["unnamed"]) if request.get("unnamed") else {}),
        **node.docker,
    }


def _pulled(node: SimulatedNode, state: str) -> list[str]:
    try:
        entries = (node.document_of(node.path("history.json", state)) or {}).get("entries", [])
    except (ValueError, AttributeError):
        return []  # damaged
    return [entry["reference"] for entry in entries if entry.get("event") == "pulled"]


def _unnamed(node: SimulatedNode, label: str) -> dict[str, Any]:
    found = [
        {"id": image.id, "labels": image.labels, "size": image.size}
        for reference, image in node.images.items()
        if reference == image.id and carries(image.labels, label)
    ]
    return {"unnamed": found, "in_use": {c.image_id: name for name, c in node.containers.items()}}


def _container(container: SimulatedContainer) -> dict[str, Any]:
    ended = container.state in ("exited", "dead")
    return {
        "id": container.id,
        "name": container.spec.name,
        "image": container.spec.image,
        "image_id": container.image_id,
        "labels": {**container.image_labels, **container.spec.labels},
        "state": container.state,
        "exit_code": container.exit_code if ended else None,
        "oom_killed": container.oom_killed,
        "started_at": rfc3339(container.started_at),
        "finished_at": rfc3339(container.finished_at),
        "restart_policy": container.spec.restart_policy,
        "error": None,
        "pid": 4242 if container.running else None,
        "halted": container.running and container.halted,
    }


def _weights(node: SimulatedNode, wanted: Mapping[str, Any]) -> dict[str, Any]:
    directory = node.path(wanted["directory"])
    found: dict[str, Any] = {"directory": directory, "verified": 0, "verified_bytes": 0, "bytes": 0}
    found["exists"] = directory in node.folders
    lists: dict[str, list[str]] = {"missing": [], "wrong": [], "unverified": []}
    for file in wanted.get("files") or ():
        facts = node.checkpoint.get(posixpath.join(directory, file["path"]))
        if facts is None:
            lists["missing"].append(file["path"])
            continue
        found["bytes"] += facts["size"]
        hashes = [kind for kind in HASHES if file.get(kind)]
        if facts["size"] != file.get("size", facts["size"]):
            lists["wrong"].append(file["path"])
        elif not facts["verified"] or not any(facts.get(kind) for kind in hashes):
            lists["unverified"].append(file["path"])
        elif any(facts.get(kind) not in (None, file[kind]) for kind in hashes):
            lists["wrong"].append(file["path"])
        else:
            found["verified"] += 1
            found["verified_bytes"] += facts["size"]
    return {**found, **lists}


def _port(node: SimulatedNode, port: int) -> dict[str, Any]:
    if port in node.services:
        return {"listening": True, "addresses": ["0.0.0.0"], "uid": 0, "pid": None, "process": None}  # noqa: S104
    if port in node.listeners:
        return {"listening": True, "addresses": ["0.0.0.0"], **node.listeners[port]}  # noqa: S104
    return {"listening": False}
