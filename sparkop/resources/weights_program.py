"""The transfer program (node/transfer) packed as a zip file, and its commands on a node."""

from __future__ import annotations

import io
import json
import zipfile
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from sparkop.errors import BlockedError, SparkopError, TimedOutError
from sparkop.hosts.base import Fence, Host

_ENTRY = "import sys\nfrom transfer.main import main\nsys.exit(main())\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Of every member, so that the same program is the same bytes."""


@cache
def program() -> bytes:
    """The zip file; the same bytes for the same source."""
    data = io.BytesIO()
    folder = resources.files("sparkop.node") / "transfer"
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith(".py"))
    with zipfile.ZipFile(data, "w") as archive:
        _add(archive, "__main__.py", _ENTRY.encode())
        for name in names:
            _add(archive, f"transfer/{name}", (folder / name).read_bytes())
    return data.getvalue()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    member = zipfile.ZipInfo(name, _EPOCH)
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, data)


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
        raise SparkopError(
            "the transfer program failed", node=host.name, detail=str(answer.get("said") or answer["output"])
        ) from None
    if "error" in result:
        raise failure(result["error"], host.name)
    return result


def failure(error: Mapping[str, Any], node: str) -> SparkopError:
    """The program's error as ours: what a human must mend blocks, a silent network timed out."""
    kind = str(error.get("kind"))
    kinds: dict[str, type[SparkopError]] = {"network": TimedOutError, "job": SparkopError}
    found = kinds.get(kind, BlockedError)
    return found(str(error.get("message")), node=node, remedy=str(error.get("remedy") or "") or None)
