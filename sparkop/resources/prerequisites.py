# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""What a node must bring along: Docker that this user may use, enough memory, a machine of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkop.hosts.base import Json
from sparkop.hosts.document import Document
from sparkop.resources.base import Context, Difference
from sparkop.resources.compare import human_bytes, unread
from sparkop.resources.desired import Desired
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Blocker, Cause, Operation, Unknown
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

KIND = "prerequisites"


class Prerequisites:
    """Only tells; there is nothing that sparkop would install by itself."""

    kind = KIND

    def prepare(self, spec: ClusterSpec) -> Any:
        return None

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Json]:
        return {}

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        blockers: list[Blocker] = []
        unknown: list[Unknown] = []
        machines: dict[str, str] = {}
        for name in desired.nodes:
            document = observed.documents[name]
            if document.machine is None:
                unknown.append(unread(document, "machine", name, KIND))
                continue
            first = machines.setdefault(document.machine.machine_id, name)
            if first != name:
                blockers.append(_same_machine(name, first))
            if document.docker is None:
                found = _docker(name, document)
                blockers += [found] if isinstance(found, Blocker) else []
                unknown += [found] if isinstance(found, Unknown) else []
            blockers += _memory(desired.spec, name, document)
        return Difference(blockers=tuple(blockers), unknown=tuple(unknown))

    def perform(self, operation: Operation, context: Context) -> None:
        raise AssertionError(f"{KIND} plans nothing: {operation.key}")


def _same_machine(name: str, first: str) -> Blocker:
    return Blocker(
        name,
        KIND,
        Cause("machine", f"the same machine as {first}", "a machine of its own"),
        "correct the ssh targets of the nodes: two of them lead to one machine (/etc/machine-id)",
    )


def _docker(name: str, document: Document) -> Blocker | Unknown:
    reason = document.error("docker") or "the Docker engine did not answer"
    if "permission denied" not in reason.lower():
        return Unknown(name, f"Docker: {reason} (sudo systemctl status docker)", KIND)
    user = document.machine.user if document.machine else "$USER"
    pending = document.machine is not None and "docker" in document.machine.pending_groups
    return Blocker(
        name,
        KIND,
        Cause("docker", "permission denied", "usable by this user"),
        f"{user} is in the group docker, but not in this login: log out and in again (or restart the node)"
        if pending
        else f"on {name}: sudo usermod -aG docker {user}, then log out and in again",
    )


def _memory(spec: ClusterSpec, name: str, document: Document) -> list[Blocker]:
    wanted = spec.memory.minimum_total
    if wanted is None or document.memory is None or document.memory.total >= wanted:
        return []
    return [
        Blocker(
            name,
            KIND,
            Cause("memory.total", human_bytes(document.memory.total), f"at least {human_bytes(wanted)}"),
            "use a node with more memory, or lower memory.minimumTotal if the model fits",
        )
    ]
