"""``weights.distribution: shared`` is not believed: the folder is looked at on every node.

Before work, by content: one node writes a mark, the others read it. At rest, where nothing is written, by
the dates and numbers of the files.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from sparkop.errors import BlockedError
from sparkop.hosts.document import Weights
from sparkop.resources.base import Context
from sparkop.resources.transfer_program import call
from sparkop.resources.weights.files import Checkpoint, job_place

PATIENCE = 20.0
"""Seconds within which a mark must be seen on another node."""
WAY_OUT = "set weights.distribution: copy"


def check(context: Context, writer: str, readers: Iterable[str]) -> None:
    """Raise BlockedError for a node whose folder is not the one of ``writer``."""
    nonce = secrets.token_hex(16)
    marked = {**_place(context, writer), "nonce": nonce}
    call(context.host(writer), context.fence(writer), "mark", marked)
    try:
        for node in readers:
            request = {**_place(context, node), "nonce": nonce, "seconds": PATIENCE}
            answer = call(context.host(node), context.fence(node), "seen", request)
            if not answer["seen"]:
                raise BlockedError(
                    f"{answer['folder']} is not the folder of {writer}",
                    node=node,
                    cause="weights.distribution is shared, and a file that is written there on "
                    f"{writer} does not appear here",
                    remedy=f"on {node}: findmnt -T {answer['folder']}, and mount it as on {writer}; "
                    f"or {WAY_OUT}",
                )
    finally:
        call(context.host(writer), context.fence(writer), "unmark", marked)


def _place(context: Context, name: str) -> dict[str, Any]:
    checkpoint = context.desired.outside.get("weights")
    assert isinstance(checkpoint, Checkpoint)
    assert checkpoint.repository is not None
    return job_place(context.desired.spec, context.desired.spec.node(name), checkpoint.repository)


def doubts(found: Mapping[str, Weights]) -> tuple[str, ...]:
    """What complete folders tell without being written to; nothing while one of them is being filled."""
    complete = [(name, weights) for name, weights in found.items() if weights.complete]
    if not complete:
        return ()
    first, one = complete[0]
    told = []
    for name, other in complete[1:]:
        if other.dates != one.dates:
            told.append(
                f"{name}: weights: {other.directory} is not the folder of {first}, though "
                f"weights.distribution is shared: the same files have other dates. Mount it as on {first}, "
                f"or {WAY_OUT}"
            )
        elif other.inodes != one.inodes:
            told.append(
                f"{name}: weights: whether {other.directory} is the folder of {first} is not known: the same "
                f"files have other inode numbers. If it is not, {WAY_OUT}"
            )
    return tuple(told)
