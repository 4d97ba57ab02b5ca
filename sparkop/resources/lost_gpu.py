"""Ranks whose containers have lost their GPU: how that is asked, and what it proves.

Such a container (NVML says "Unknown Error" in it) goes on as long as nothing opens the GPU anew; only a new
one helps. A line of the log proves nothing, a prompt can put it there: nvidia-smi in the container does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkop.errors import SparkopError
from sparkop.hosts.base import Json, ReadableHost
from sparkop.hosts.document import Document, LostGpu, parse_document
from sparkop.node.gpus import LOST
from sparkop.resources.group import Found
from sparkop.resources.observed import Loss
from sparkop.threads import side_by_side

TIMEOUT = 15.0


def ask(
    hosts: Mapping[str, ReadableHost], ranks: Sequence[Found], *, gpus: bool = False, always: bool = False
) -> dict[str, Document | None]:
    """The nodes' answers; None of one that gave none. ``gpus``: what nvidia-smi tells of the node, too.
    ``always``: also in containers whose log gives no reason to."""
    by_node: dict[str, list[str]] = {}
    for found in ranks:
        by_node.setdefault(found.node, []).append(found.container.name)

    def one(node: str) -> Document | None:
        request: dict[str, Json] = {"sections": ["lost_gpus", *(("gpu",) if gpus else ())]}
        request["lost_gpus"] = {"containers": by_node[node], "always": always}
        try:
            raw = hosts[node].probe({**request, "gpu": gpus}, timeout=TIMEOUT)
            return parse_document(raw, node=node)
        except (SparkopError, OSError):
            return None  # whoever reads the node tells it

    return dict(zip(by_node, side_by_side(one, by_node, "gpus"), strict=True))


def loss_in(ranks: Sequence[Found], answers: Mapping[str, Document | None]) -> Loss | None:
    """The first that is certain, else the last that is not."""
    loss = None
    for found in ranks:
        document = answers[found.node]
        said = (document.lost_gpus or {}).get(found.container.name) if document else None
        evidence = _evidence(said)
        if evidence and not (loss and loss.certain):
            text = f"the container of {found.resource} on {found.node} has lost its GPU: {evidence}"
            loss = Loss(found.node, text, certain=said is not None and said.exec is not None)
    return loss


def _evidence(said: LostGpu | None) -> str:
    """What says that the GPU is lost; empty when nothing does, or NVML answers."""
    if said is None or said.exec == "ok":
        return ""
    if said.exec is not None:
        return " ".join(said.exec.split())[:200] if LOST.search(said.exec) else ""
    return (said.log or "")[:200]
