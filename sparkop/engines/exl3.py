"""The EXL3 allocation plan: which bank folders it wants, and its copy as the ranks must see it.

A plan is JSON whose ``qdir`` is a colon list of bank folders relative to ``exl3/`` of the checkpoint. The
ranks mount the checkpoint elsewhere, so the copy names the folders where they are mounted.
"""

from __future__ import annotations

import json
from typing import Any

from sparkop.errors import BlockedError

FOLDER = "exl3"
"""Folder of the checkpoint that holds plans (``plan/``) and banks."""


def plan_file(plan: str) -> str:
    """Where a plan lies in the checkpoint."""
    return f"{FOLDER}/plan/{plan}"


def bank_folders(content: bytes) -> tuple[str, ...]:
    """The bank folders that a plan wants, relative to ``exl3/``, in its order.

    Raises BlockedError for a plan that is none.
    """
    return tuple(part.strip("/").rsplit("/", 1)[-1] for part in _parts(_plan(content)))


def rewritten(content: bytes, weights_target: str) -> bytes:
    """The plan with its bank folders below ``weights_target`` (the checkpoint in the container), as JSON.

    The same plan always gives the same bytes, so that a copy is compared by content. Raises BlockedError for
    a plan that is none.
    """
    plan = _plan(content)
    folders = [f"{weights_target}/{FOLDER}/{name}" for name in bank_folders(content)]
    return (json.dumps({**plan, "qdir": ":".join(folders)}, indent=1) + "\n").encode()


def _plan(content: bytes) -> dict[str, Any]:
    try:
        plan = json.loads(content)
    except ValueError as error:
        raise _malformed(f"it is no JSON: {error}") from None
    except RecursionError:
        raise _malformed("its JSON is nested too deeply") from None
    if not isinstance(plan, dict):
        raise _malformed("it is no JSON object")
    return plan


def _parts(plan: dict[str, Any]) -> list[str]:
    folders = plan.get("qdir")
    if not isinstance(folders, str):
        raise _malformed("it has no text `qdir` (a colon list of bank folders)")
    parts = folders.split(":")
    if any(not part.strip("/") or part.strip("/").rsplit("/", 1)[-1] in (".", "..") for part in parts):
        raise _malformed(f"its `qdir` has an empty folder: {folders!r}")
    return parts


def _malformed(cause: str) -> BlockedError:
    return BlockedError(
        "the EXL3 plan can't be used",
        cause=cause,
        remedy="name another plan of exl3/plan/ in engine.exl3.plan, or report it to the checkpoint's owner",
    )
