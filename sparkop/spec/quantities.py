"""Quantities with units. A number without a unit is refused, and so is a unit with two readings."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

_WRITTEN = re.compile(r"\A([0-9]{1,20}(?:\.[0-9]{1,9})?)\s*([A-Za-zµ%]*)\Z")

_BYTE_UNITS = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "KiB": 2**10,
    "MB": 10**6,
    "MiB": 2**20,
    "GB": 10**9,
    "GiB": 2**30,
    "TB": 10**12,
    "TiB": 2**40,
}
_TIME_UNITS = {"ms": Decimal("0.001"), "s": Decimal(1), "min": Decimal(60), "h": Decimal(3600)}
_TIME_WORDS = {
    "sec": "s",
    "secs": "s",
    "second": "s",
    "seconds": "s",
    "mins": "min",
    "minute": "min",
    "minutes": "min",
    "hr": "h",
    "hour": "h",
    "hours": "h",
    "msec": "ms",
}
LARGEST_BYTES = 2**60
LARGEST_SECONDS = Decimal(10**9)


class ByteSize(int):
    """Bytes: ``1 GiB``, ``2.7 GB``, ``2700000000 B``. Units B, kB, KiB, MB, MiB, GB, GiB, TB, TiB.

    ``1G`` and ``5000`` are refused: the first has two readings, the second no unit.
    """

    UNITS: ClassVar[str] = "B, kB, KiB, MB, MiB, GB, GiB, TB, TiB"

    @classmethod
    def parse(cls, text: str) -> ByteSize:
        """Raises ValueError that says what is accepted."""
        number, unit = _split(text, "a size such as 1 GiB", cls.UNITS)
        if not unit:
            guess = "B" if Decimal(number) >= 4096 else "GiB"
            raise ValueError(f"has no unit: write {number} {guess} if that is meant (accepted: {cls.UNITS})")
        if unit not in _BYTE_UNITS:
            raise ValueError(_byte_unit_advice(number, unit))
        size = Decimal(number) * _BYTE_UNITS[unit]
        if size != size.to_integral_value():
            raise ValueError(f"is no whole number of bytes: {size} B")
        if size > LARGEST_BYTES:
            raise ValueError(f"is more than 1024 PiB: {size} B")
        return cls(size)

    def __str__(self) -> str:
        """The shortest exact text with a unit: ``1 GiB``, ``2700 MB``."""
        texts = [f"{int(self) // size} {unit}" for unit, size in _BYTE_UNITS.items() if int(self) % size == 0]
        return min(texts, key=lambda text: (len(text), text))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _quantity_schema(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {
            "type": "string",
            "pattern": r"^[0-9]+(\.[0-9]+)?\s*(B|kB|KB|KiB|MB|MiB|GB|GiB|TB|TiB)$",
            "examples": ["1 GiB", "2700 MB"],
        }


class Duration(float):
    """Seconds: ``90 s``, ``45 min``, ``1.5 h``, ``250 ms``. ``1m`` and ``90`` are refused."""

    UNITS: ClassVar[str] = "ms, s, min, h"

    @classmethod
    def parse(cls, text: str) -> Duration:
        """Raises ValueError that says what is accepted."""
        number, unit = _split(text, "a time such as 90 s", cls.UNITS)
        if not unit:
            raise ValueError(f"has no unit: write {number} s or {number} min")
        if unit not in _TIME_UNITS:
            raise ValueError(_time_unit_advice(number, unit))
        seconds = Decimal(number) * _TIME_UNITS[unit]
        if seconds > LARGEST_SECONDS:
            raise ValueError(f"is more than 30 years: {seconds} s")
        return cls(seconds)

    def __str__(self) -> str:
        """An exact text, in the largest unit that needs no fraction: ``45 min``, ``90 s``."""
        seconds = Decimal(repr(float(self)))
        for unit, size in reversed(_TIME_UNITS.items()):
            if seconds % size == 0 and seconds:
                return f"{int(seconds / size)} {unit}"
        return f"{seconds.normalize():f} s"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _quantity_schema(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {
            "type": "string",
            "pattern": r"^[0-9]+(\.[0-9]+)?\s*(ms|s|min|h)$",
            "examples": ["90 s", "45 min"],
        }


Quantity = TypeVar("Quantity", ByteSize, Duration)
Given = TypeVar("Given", Duration, ByteSize | None)


def _more_than_zero(value: Given) -> Given:
    if value is not None and value <= 0:
        raise PydanticCustomError("quantity", "must be more than zero")
    return value


Some = Annotated[Given, AfterValidator(_more_than_zero)]
"""A quantity of which none makes no sense."""


def _quantity_schema(kind: type[Quantity]) -> CoreSchema:
    def validate(value: object) -> Quantity:
        if isinstance(value, kind):
            return value
        try:
            if isinstance(value, bool) or not isinstance(value, (str, int, float)):
                raise ValueError(f"must be a number with a unit ({kind.UNITS})")
            return kind.parse(value if isinstance(value, str) else f"{value}")
        except ValueError as error:
            raise PydanticCustomError("quantity", "{message}", {"message": str(error)}) from error

    return core_schema.no_info_plain_validator_function(
        validate, serialization=core_schema.plain_serializer_function_ser_schema(str, when_used="json")
    )


def _split(text: str, example: str, units: str) -> tuple[str, str]:
    found = _WRITTEN.match(text.strip())
    if found is None:
        raise ValueError(f"must be {example}: a number, then one of {units}")
    return found[1], found[2]


def _byte_unit_advice(number: str, unit: str) -> str:
    letter = unit[0].upper()
    if unit.upper() in ("K", "M", "G", "T"):
        binary = Decimal(number) * _BYTE_UNITS[f"{letter}iB"]
        decimal = Decimal(number) * _BYTE_UNITS[f"{letter}B"]
        return (
            f"has two readings: {number} {letter}iB ({binary.normalize():f} bytes) "
            f"or {number} {letter}B ({decimal.normalize():f} bytes); write one of them"
        )
    if unit.upper() in ("KI", "MI", "GI", "TI"):
        return f"has no unit that sparkop knows: write {number} {letter}iB"
    if unit.endswith("b") and unit.lower() not in ("b", *(known.lower() for known in _BYTE_UNITS)):
        return f"has no unit that sparkop knows (accepted: {ByteSize.UNITS})"
    for known in _BYTE_UNITS:
        if known.lower() == unit.lower():
            hint = " (a small b means bits elsewhere)" if unit.endswith("b") else ""
            return f"has the unit {unit}: write {number} {known}{hint}"
    return f"has the unit {unit}; accepted: {ByteSize.UNITS}"


def _time_unit_advice(number: str, unit: str) -> str:
    if unit in ("m", "M"):
        return f"has two readings: minutes or milliseconds; write {number} min or {number} ms"
    known = _TIME_WORDS.get(unit.lower(), unit.lower())
    if known in _TIME_UNITS:
        return f"has the unit {unit}: write {number} {known}"
    if unit == "d":
        return f"has the unit d: write {Decimal(number) * 24:f} h"
    return f"has the unit {unit}; accepted: {Duration.UNITS}"
