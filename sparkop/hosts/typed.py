"""JSON to frozen dataclasses, strict on types and tolerant to unknown keys. Text is one line, without what
would steer a terminal: names of interfaces, processes and containers are whatever somebody chose.

Dataclasses because every command pays for these classes at its start: as pydantic models the document's
eighteen cost more than half of an SSH connection (70 ms here), this a few milliseconds.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from sparkop.plain import one_line

T = TypeVar("T")
Decoder = Callable[[Any, str], Any]
"""Value and its place in the document to the typed value."""

MOST = 2**63
"""No figure of a node is as large: beyond it arithmetic with floats fails."""

_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


class NotOfTypeError(ValueError):
    """The message says where, and what was expected."""


def decode(kind: type[T], value: Any) -> T:
    """``value`` as a ``kind``. Raises NotOfTypeError."""
    decoder: Decoder = _decoder(kind)  # type: ignore[arg-type]  # a class is hashable
    result: T = decoder(value, "")
    return result


@cache
def _decoder(kind: Any) -> Decoder:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value, _: value
    if dataclasses.is_dataclass(kind):
        return _record(kind)
    if origin in (Union, types.UnionType):
        (inner,) = [a for a in arguments if a is not types.NoneType]
        present = _decoder(inner)
        return lambda value, at: None if value is None else present(value, at)
    if origin is tuple:
        return _list(_decoder(arguments[0]))
    if origin is Mapping:
        return _mapping(_decoder(arguments[1]))
    return _plain(kind)


def _plain(kind: type) -> Decoder:
    accepted = (float, int) if kind is float else (kind,)

    def plain(value: Any, at: str) -> Any:
        if kind is str and type(value) is str:  # most of a document
            return one_line(value)
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
            raise _wrong(at, _NAMES[kind], value)
        if isinstance(value, (int, float)) and not -MOST < value < MOST:  # NaN is neither
            raise NotOfTypeError(f"{at.lstrip('.') or 'it'} is no figure of a node: {_shown(value)}")
        return one_line(value) if isinstance(value, str) else value

    return plain


def _list(inner: Decoder) -> Decoder:
    def items(value: Any, at: str) -> Any:
        if not isinstance(value, list):
            raise _wrong(at, "a list", value)
        return tuple(inner(item, f"{at}.{number}") for number, item in enumerate(value))

    return items


def _mapping(inner: Decoder) -> Decoder:
    def entries(value: Any, at: str) -> Any:
        if not isinstance(value, dict):
            raise _wrong(at, "a mapping", value)
        return {key: inner(item, f"{at}.{key}") for key, item in value.items()}

    return entries


def _record(kind: Any) -> Decoder:
    hints = get_type_hints(kind)
    decoders = {f.name: _decoder(hints[f.name]) for f in dataclasses.fields(kind)}
    required = [
        f.name
        for f in dataclasses.fields(kind)
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]

    def record(value: Any, at: str) -> Any:
        if not isinstance(value, dict):
            raise _wrong(at, "a mapping", value)
        for name in required:
            if name not in value:
                raise NotOfTypeError(f"{at}.{name}".lstrip(".") + " is missing")
        fields = {k: decoders[k](v, f"{at}.{k}") for k, v in value.items() if k in decoders}
        try:
            return kind(**fields)
        except ValueError as error:  # what a class itself refuses: a text that is no address
            raise NotOfTypeError(f"{at.lstrip('.') or 'it'}: {error}") from error

    return record


def _shown(value: float) -> str:
    return (
        f"{value:.3g}" if isinstance(value, float) else f"{'-' if value < 0 else ''}2**{value.bit_length()}"
    )


def _wrong(at: str, expected: str, value: Any) -> NotOfTypeError:
    return NotOfTypeError(f"{at.lstrip('.') or 'it'} should be {expected}, not {type(value).__name__}")
