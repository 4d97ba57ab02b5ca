"""The transfer program (node/transfer) packed as a zip file, and its commands on a node."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from sparkop.errors import BlockedError, SparkopError, TimedOutError
from sparkop.hosts.base import Fence, Host
from sparkop.hosts.silent_docker import silent_engine
from sparkop.resources.bundle import bundle


def program() -> bytes:
    """The zip file; the same bytes for the same source."""
    return bundle("transfer")


def call(
    host: Host, fence: Fence, command: str, request: Mapping[str, Any] | None = None, *, seconds: float = 60.0
) -> dict[str, Any]:
    """One command of the program. Raises SparkopError in the program's words, UnreachableError."""
    answer = host.act(
        "program.run",
        {
            "path": "transfer/transfer.pyz",
            "content": b64encode(program()).decode(),
            "argv": [command, fence.directory],
            "input": json.dumps(request or {}),
            "seconds": seconds,
        },
        fence,
        timeout=seconds + 15.0,
    )
    try:
        result: dict[str, Any] = json.loads(answer["output"])
    except ValueError:
        raise _no_answer(answer, host.name) from None
    if "error" in result:
        raise failure(result["error"], host.name)
    return result


def _no_answer(ran: Mapping[str, Any], node: str) -> SparkopError:
    """Nothing unexpected about a program that was killed."""
    if int(ran["exit"]) < 0:
        return BlockedError(
            "the transfer program was killed",
            node=node,
            cause=f"signal {-int(ran['exit'])}: by hand, or the node was short of memory or went down",
            remedy="run the same command again: it carries on from what is there",
        )
    return SparkopError(
        "the transfer program failed",
        node=node,
        cause=f"exit status {ran['exit']}",
        detail=str(ran.get("said") or ran["output"]),
    )


_REMEDIES = {
    "missing": "the source no longer has what it listed: `sparkop download --update` asks the hub again; "
    "else correct weights.revision or weights.endpoint",
    "content": "`sparkop download --update` asks the hub again which commit and which files are wanted",
    "network": "check the way to the source, then run the same command again: what is here is kept",
    "busy": "`sparkop download --cancel`, then the same command again",
}
"""For failures whose message carries none of its own, by kind."""


def failure(error: Mapping[str, Any], node: str) -> SparkopError:
    """The program's error as ours: what a human must mend blocks, a silent network timed out."""
    kind = str(error.get("kind"))
    if kind == "engine":
        return silent_engine(str(error.get("message")), node=node)
    kinds: dict[str, type[SparkopError]] = {"network": TimedOutError, "job": SparkopError}
    found = kinds.get(kind, BlockedError)
    remedy = str(error.get("remedy") or "") or _REMEDIES.get(kind)
    return found(str(error.get("message")), node=node, remedy=remedy)
