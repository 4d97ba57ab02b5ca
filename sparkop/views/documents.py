"""Dataclasses as JSON documents: camelCase keys, as everywhere in sparkop's JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


def document(value: Any) -> Any:
    """Fields become camelCase; keys of mappings are names (of nodes, of files) and stay as they are."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {camel(f.name): document(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): document(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [document(item) for item in value]
    return value


def camel(name: str) -> str:
    """``memory_total`` -> ``memoryTotal``."""
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)
