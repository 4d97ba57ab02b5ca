"""What is stamped on every container that sparkop makes. The names never change: old ones carry them."""

from __future__ import annotations

from collections.abc import Mapping

from sparkop.hosts.document import Container, Document
from sparkop.records import dataclass

CLUSTER = "sparkop.cluster"
ROLE = "sparkop.role"
RANK = "sparkop.rank"
WEIGHTS = "sparkop.checkpoint"
"""Repository and revision as the spec names them: other weights in the same folder are another rank."""
HASH = "sparkop.hash"
DESIRED = "sparkop.desired"
"""The normalised desired container as JSON (never a secret): lets a diff name the field that changed."""
SPEC = "sparkop.spec"
"""Hash of the whole spec at that time: tells a changed spec from drift, and decides nothing else."""
FABRIC = "sparkop.fabric"
"""Hash of what the spec said of the choice of rails: a running rank keeps its rails while it is the same."""
MEMORY = "sparkop.memory"
"""Hash of a rank's memory numbers (``numbers``): what the guard writes down when it has to kill."""
BUILD = "sparkop.build"
"""On a built image: hash of context and base. Docker gives it to the containers of the image."""
BUILT_FOR = "sparkop.built-for"
"""On a built image: the cluster. Not ``CLUSTER``: containers that a user makes of it are not ours."""
GENERATION = "sparkop.generation"
EPOCH = "sparkop.epoch"

ROLE_RANK = "rank"
ROLE_GUARD = "memguard"


def common(cluster: str, role: str, hash_: str, desired: str, spec: str) -> dict[str, str]:
    """Labels of any container of a cluster."""
    return {CLUSTER: cluster, ROLE: role, HASH: hash_, DESIRED: desired, SPEC: spec}


@dataclass(frozen=True)
class Stamp:
    """The labels of a container, read. Numbers that can't be read are 0 (rank: -1)."""

    cluster: str
    role: str
    rank: int
    hash: str
    desired: str
    spec: str
    fabric: str
    generation: int
    epoch: int


def stamp_of(labels: Mapping[str, str]) -> Stamp | None:
    """None when the container is not sparkop's."""
    if CLUSTER not in labels:
        return None
    return Stamp(
        cluster=labels[CLUSTER],
        role=labels.get(ROLE, ""),
        rank=_number(labels.get(RANK), -1),
        hash=labels.get(HASH, ""),
        desired=labels.get(DESIRED, ""),
        spec=labels.get(SPEC, ""),
        fabric=labels.get(FABRIC, ""),
        generation=_number(labels.get(GENERATION), 0),
        epoch=_number(labels.get(EPOCH), 0),
    )


def ours(document: Document, cluster: str, role: str) -> list[tuple[Container, Stamp]]:
    """The containers and units of a cluster and role on a node, by name."""
    found: list[tuple[Container, Stamp]] = []
    containers = document.docker.containers if document.docker else ()
    for container in (*containers, *(document.units or ())):
        stamp = stamp_of(container.labels)
        if stamp is not None and stamp.cluster == cluster and stamp.role == role:
            found.append((container, stamp))
    return sorted(found, key=lambda pair: pair[0].name)


def _number(text: str | None, otherwise: int) -> int:
    try:
        return int(text) if text is not None else otherwise
    except ValueError:
        return otherwise
