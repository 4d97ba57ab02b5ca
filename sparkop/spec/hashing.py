"""The hash of desired state that sparkop stamps on what it makes.

A hash is ``v<version>:`` and the SHA-256 of the canonical JSON of a value. It covers what was asked for,
never what was learnt later (a digest found after a pull, a port that answered). A newer sparkop that has
to change the normalisation adds a version and keeps the old ones, compares a container with the version
that its own label names (:func:`matches`), and so restarts no group that an older sparkop started.

Canonical JSON, version 1:

* mappings sorted by key (by Unicode code point), keys are text; entries whose value is None are left out,
  so a new optional field with default None changes no hash;
* tuples and lists are arrays, sets are sorted arrays; dataclasses and pydantic models are mappings of their
  fields (Python names); enums are their values;
* sizes are integers of bytes; durations and other floats that are whole are written as integers, the rest
  as Python's shortest exact form; infinities and NaN are refused;
* UTF-8, no blanks, no escapes beyond what JSON requires.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

from pydantic import BaseModel

VERSION = 1
"""The version that this sparkop stamps."""

KNOWN_VERSIONS = (1,)

_AS_THEY_ARE = frozenset({str, int, bool, type(None)})
"""Types whose values are canonical as they are, which most values are: a plan takes dozens of hashes."""


def canonical_json(value: object) -> bytes:
    """The normalised form of ``value``, version 1. Raises TypeError or ValueError for what is no data."""
    return json.dumps(
        _plain(value), ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    ).encode()


def desired_hash(value: object, version: int = VERSION) -> str:
    """``v1:`` and 64 hexadecimal digits. Raises ValueError for a version that this sparkop does not know."""
    if version not in KNOWN_VERSIONS:
        raise ValueError(f"unknown version of the desired-state hash: {version}")
    return f"v{version}:{hashlib.sha256(canonical_json(value)).hexdigest()}"


def version_of(stamped: str | None) -> int | None:
    """The version that a stamped hash names; None for one that this sparkop does not know (a newer one's)."""
    return next((v for v in KNOWN_VERSIONS if (stamped or "").startswith(f"v{v}:")), None)


def matches(value: object, stamped: str | None) -> bool:
    """Whether a stamped hash is that of ``value``, by the version that the stamp names.

    A stamp of a version that this sparkop does not know matches nothing.
    """
    version = version_of(stamped)
    return version is not None and desired_hash(value, version) == stamped


def _plain(value: object) -> Any:
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, Enum):
        return _plain(value.value)
    names = _fields(type(value))  # type: ignore[arg-type]  # a class is hashable
    if names is not None:
        return _mapping((name, getattr(value, name)) for name in names)
    if isinstance(value, Mapping):
        return _mapping(value.items())
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(item) for item in value), key=canonical_json)
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _number(value)
    raise TypeError(f"no canonical form for {type(value).__name__}")


@cache
def _fields(kind: type) -> tuple[str, ...] | None:
    """The names of a model's or a dataclass's fields; None for what is neither."""
    if issubclass(kind, BaseModel):
        return tuple(kind.model_fields)
    return tuple(each.name for each in fields(kind)) if is_dataclass(kind) else None


def _mapping(items: Iterable[tuple[Any, object]]) -> dict[str, Any]:
    found = {}
    for key, item in items:
        if not isinstance(key, str):
            raise TypeError(f"keys are text, not {type(key).__name__}")
        if item is not None:
            found[key] = item if type(item) in _AS_THEY_ARE else _plain(item)
    return found


def _number(value: float) -> int | float:
    if not math.isfinite(value):
        raise ValueError("infinity and NaN have no canonical form")
    return int(value) if value.is_integer() else float(value)
