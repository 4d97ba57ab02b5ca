"""Single values of YAML: what they read as, and those that are refused because versions differ."""

from __future__ import annotations

import math
import re

from sparkop.spec.tree import Scalar

_INT = re.compile(r"[-+]?[0-9]+\Z")
_OTHER_INT = re.compile(r"0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_INFINITE = re.compile(r"[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")
_WORDS_1_1 = re.compile(r"(y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF)\Z")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+\Z")
_BINARY = re.compile(r"[-+]?0b[01_]+\Z")
_UNDERSCORES = re.compile(r"[-+]?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?\Z")
_SEXAGESIMAL = re.compile(r"[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?\Z")
_TRUE = {"true", "True", "TRUE"}
_FALSE = {"false", "False", "FALSE"}
_NULL = {"", "~", "null", "Null", "NULL"}


def resolve(raw: str) -> bool | int | float | str | None:
    """The value of a plain scalar by the core schema of YAML 1.2."""
    if raw in _NULL:
        return None
    if raw in _TRUE or raw in _FALSE:
        return raw in _TRUE
    if _INT.match(raw) and len(raw) <= 400:
        return int(raw)
    if _OTHER_INT.match(raw) and len(raw) <= 400:
        return int(raw, 0)
    if _FLOAT.match(raw):
        return float(raw)
    return raw


def both_ways(raw: str, other: str | None) -> str:
    """What to write when it is not known whether text is meant."""
    quoted = f'"{raw}" in quotes if text is meant'
    return f"write {other}, or {quoted}" if other else f"write {quoted}"


def trap_of(raw: str) -> tuple[str, str | None] | None:
    """Why a plain scalar is refused whatever the field is, and how to write it as no text.

    None when it is fine.
    """
    if _WORDS_1_1.match(raw):
        word = "true" if raw.lower() in ("y", "yes", "on") else "false"
        return f"{raw} is a truth value in YAML 1.1 and text in YAML 1.2", word
    if _LEADING_ZERO.match(raw):
        digits = raw.replace("_", "").lstrip("+-0") or "0"
        octal = f"octal {int(digits, 8)}" if not re.search("[89]", digits) else "text"
        return f"{raw} begins with 0: {octal} in YAML 1.1, {digits} in YAML 1.2", digits
    if _UNDERSCORES.match(raw):
        return (
            f"{raw} is a number in YAML 1.1 and text in YAML 1.2",
            raw.replace("_", ""),
        )
    if _BINARY.match(raw):
        number = int(raw.replace("_", "") + "0", 2) // 2
        return f"{raw} is a number in YAML 1.1 and text in YAML 1.2", str(number)
    if _SEXAGESIMAL.match(raw):
        return f"{raw} is a number in base 60 in YAML 1.1 and text in YAML 1.2", None
    if _INFINITE.match(raw) or (_FLOAT.match(raw) and math.isinf(float(raw))):
        return f"{raw} reads as {'no number' if 'n' in raw.lower()[1:2] else 'infinity'}", None
    return None


def shown(node: Scalar) -> str:
    """A scalar as a message quotes it, cut when long."""
    text = node.raw if len(node.raw) <= 60 else node.raw[:57] + "..."
    return text.replace("\n", " ")
