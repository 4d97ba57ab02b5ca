# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""Containers that have our names but are not ours, and ports that others hold: told, never guessed.

A recipe's containers that run under the ranks' names are replaced only when the user agrees.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkop.engines.common import container_names
from sparkop.engines.render import engine_of
from sparkop.hosts.base import Json
from sparkop.hosts.document import Container, Document, Port
from sparkop.resources.base import Context, Difference, Resource
from sparkop.resources.desired import Desired, DesiredNode
from sparkop.resources.group import examine, holds_ports, ports_held, state_text
from sparkop.resources.guard import guard_names
from sparkop.resources.labels import CLUSTER, ROLE, ROLE_RANK, ours
from sparkop.resources.observed import AGREED_ADOPT, History, Observed
from sparkop.resources.operations import Action, Blocker, Cause, Cost, Operation, Unknown
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

KIND = "foreign"
GRACE = 30.0


class Foreign(Resource):
    """Removes only what the user agreed to, and never another cluster's."""

    kind = KIND

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Json]:
        request: dict[str, Json] = {"containers": _names(spec), "labels": [f"{ROLE}={ROLE_RANK}"]}
        if ports := ports_taken(spec, node.name):
            request["ports"] = ports
        return request

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        operations: list[Operation] = []
        blockers: list[Blocker] = []
        unknown: list[Unknown] = []
        anew = _need_ports_again(desired, observed, history)
        for node in desired.nodes.values():
            document = observed.documents[node.name]
            found = _foreign(desired.spec, document)
            for container in found:
                made = _told(desired.spec, node.name, container, history)
                if isinstance(made, Operation):
                    operations.append(made)
                else:
                    blockers.append(made)
            if not any(map(holds_ports, found)):
                for port in _ports_of(desired.spec, node, document, anew):
                    blockers += [port] if isinstance(port, Blocker) else []
                    unknown += [port] if isinstance(port, Unknown) else []
        return Difference(
            tuple(operations), tuple(blockers), tuple(unknown), warnings=_neighbours(desired, observed)
        )

    def perform(self, operation: Operation, context: Context) -> None:
        host = context.host(operation.node)
        host.containers.remove(str(operation.parameters["name"]), context.fence(operation.node), grace=GRACE)


def _names(spec: ClusterSpec) -> list[str]:
    return [*container_names(spec), *guard_names(spec.name)]


def ports_taken(spec: ClusterSpec, node: str) -> list[int]:
    """The ports on which the rank of a node listens."""
    if node != spec.head.name:
        return [spec.api.port] if engine_of(spec).manners.follower_listens else []
    return sorted({spec.api.port, spec.engine.rendezvous_port} if len(spec.nodes) > 1 else {spec.api.port})


def _foreign(spec: ClusterSpec, document: Document) -> list[Container]:
    names = set(_names(spec))
    found = document.docker.containers if document.docker else ()
    return sorted(
        (c for c in found if c.name in names and c.labels.get(CLUSTER) != spec.name), key=lambda c: c.name
    )


def _told(spec: ClusterSpec, node: str, container: Container, history: History) -> Operation | Blocker:
    other = container.labels.get(CLUSTER)
    whose = f"of cluster {other}" if other else "not made by sparkop"
    what = "memory guard" if container.name in guard_names(spec.name) else "rank"
    cause = Cause(
        f"container {container.name}", f"{state_text(container)}, {whose}", f"a {what} of this cluster"
    )
    resource = f"{KIND}/{container.name}"
    if other is None and AGREED_ADOPT in history.agreed:
        return Operation(
            Action.REMOVE,
            node,
            resource,
            cause,
            Cost(stops_serving=container.running),
            parameters={"name": container.name},
        )
    remedy = (
        f"{other} has that name: give one of the clusters another engine.container.namePrefix"
        if other
        else f"sparkop apply --adopt replaces it; or remove it yourself: docker rm -f {container.name}"
    )
    return Blocker(node, resource, cause, remedy)


def _neighbours(desired: Desired, observed: Observed) -> tuple[str, ...]:
    """Ranks of other clusters that run on our nodes: allowed, but they share memory and GPU with ours."""
    told = []
    names = set(_names(desired.spec))
    for node in desired.nodes:
        for container in _ranks_of_others(desired.spec, observed.documents[node]):
            if container.name not in names:
                other = container.labels[CLUSTER]
                told.append(f"{node}: {container.name} of cluster {other} runs here too, and takes memory")
    return tuple(told)


def _ranks_of_others(spec: ClusterSpec, document: Document) -> list[Container]:
    """Those that run."""
    found = document.docker.containers if document.docker else ()
    return [
        c
        for c in found
        if c.running and c.labels.get(ROLE) == ROLE_RANK and c.labels.get(CLUSTER) not in (None, spec.name)
    ]


def _need_ports_again(desired: Desired, observed: Observed, history: History) -> bool:
    """Whether the ranks that run are to be replaced, and another program has a port that one of them names.
    The group is examined for such a port only: that is half of what a plan takes."""
    documents = [observed.documents[name] for name in desired.nodes]
    if not any(_of_another(desired.spec, d, port) for d in documents for port in (d.ports or {}).values()):
        return False
    read = all(document.docker is not None for document in documents)
    return observed.complete and read and bool(examine(desired, observed, history).causes)


def _of_another(spec: ClusterSpec, document: Document, port: Port | None) -> bool:
    """Whether it is certain that no rank of ours has the port that its labels name: not every engine keeps
    the one where ranks meet. A process of another user can't be told from a rank's."""
    return port is not None and port.cgroup is not None and _rank_of(spec, document, port) is None


def _rank_of(spec: ClusterSpec, document: Document, port: Port) -> str | None:
    """The container of our rank whose process has the port, by its cgroup."""
    cgroup = port.cgroup or ""
    return next((rank.name for rank, _ in ours(document, spec.name, ROLE_RANK) if rank.id in cgroup), None)


def _ports_of(
    spec: ClusterSpec, node: DesiredNode, document: Document, anew: bool
) -> list[Blocker | Unknown]:
    """Ports that are held, or may be, by another than a rank of ours: those go free with it. ``anew``: ranks
    that run are replaced. A rank's process can outlive a Docker that was killed, for a while: Docker then
    says that it has ended."""
    own = ports_held(spec.name, document)
    if own is None or document.docker is None:
        return []
    found: list[Blocker | Unknown] = []
    for number in ports_taken(spec, node.name):
        port = (document.ports or {}).get(str(number))
        if number in own and not (anew and _of_another(spec, document, port)):
            continue
        if port is None:
            why = document.error("ports", str(number)) or "not in the node's answer"
            found.append(Unknown(node.name, f"port {number}: {why}", KIND))
            continue
        if not port.listening:
            continue
        if own_rank := _rank_of(spec, document, port):
            why = f"port {number}: {own_rank} has ended by Docker's word, but its process still has the port"
            found.append(Unknown(node.name, why, KIND, f"look again in a minute; then: sudo kill {port.pid}"))
            continue
        who = f"{port.process} (pid {port.pid})" if port.process else f"a process of uid {port.uid}"
        field = "api.port" if number == spec.api.port else "engine.rendezvousPort"
        end = "end it"
        if others := _ranks_of_others(spec, document):
            theirs = " or ".join(f"{c.name} of cluster {c.labels[CLUSTER]}" for c in others)
            end = f"if it is {theirs}, sparkop stop with that cluster's spec ends it; else end it"
        found.append(
            Blocker(
                node.name,
                f"{KIND}/port-{number}",
                Cause(f"port {number}", f"held by {who}", "free"),
                f"sudo ss -ltnp 'sport = :{number}'  # shows that program: {end}, or change {field}",
            )
        )
    return found
