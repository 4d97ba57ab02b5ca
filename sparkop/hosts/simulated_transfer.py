"""The transfer program of a simulated node: an image comes at once, from whichever node has it."""

from __future__ import annotations

from typing import Any

from sparkop.hosts.simulated_node import SimulatedImage, SimulatedNode
from sparkop.node.transfer.files import parse_job

Json = dict[str, Any]


def transfer(node: SimulatedNode, command: str, request: Json) -> tuple[Json, Json | None]:
    """The answer of a command, and the status that its job leaves."""
    if command == "start":
        job = parse_job(request)
        return {"started": True, "id": job.id}, _arrived(node, request, job.id)
    answers: dict[str, Json] = {
        "share": {"port": 4711, "token": "token of the share"},
        "key": {"public": f"ssh-ed25519 AAAA {request.get('comment')}", "path": "/key", "host_keys": []},
        "authorise": {"host_keys": ["ssh-ed25519 AAAA"]},
        "status": {"running": False, "status": {}},
        "cancel": {"cancelled": False},
    }
    return answers.get(command, {}), None


def _arrived(node: SimulatedNode, request: Json, identity: str) -> Json:
    (file,) = request["files"]
    status: Json = {"version": 1, "id": identity, "kind": "image", "phase": "done", "sequence": 1}
    found = _with_id(node, f"sha256:{file['sha256']}")
    if found is None:
        error = {"kind": "missing", "message": "the node that it comes from answered 404", "remedy": ""}
        return {**status, "phase": "failed", "error": error}
    node.images[file["path"]] = SimulatedImage(found.id, labels=dict(found.labels), size=found.size)
    return {**status, "bytes": {"total": found.size, "done": found.size}}


def _with_id(node: SimulatedNode, identity: str) -> SimulatedImage | None:
    others = (image for other in node.world.nodes.values() for image in other.images.values())
    return next((image for image in others if image.id == identity), None)
