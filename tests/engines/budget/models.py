"""Checkpoints of tests/data/models."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from sparkop.engines.budget.checkpoint import Checkpoint, read_checkpoint, summarise

MODELS = Path(__file__).parents[2] / "data" / "models"


@functools.cache
def document(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((MODELS / f"{name}.json").read_text())
    return loaded


def checkpoint(name: str, repository: str = "owner/model", *, headers: bool = True) -> Checkpoint:
    """As if it had been read from a node."""
    read = document(name)
    tensors = summarise(read["headers"]) if headers else ()
    return read_checkpoint(repository, read["config"], tensors, "headers of a test")
