"""The values of a recipe's variables, each read by its form into what the spec has."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from sparkop.spec.recipe_variables import Form

_RAW_WORD = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+""", re.DOTALL)
"""A word of arguments, its quotes still in."""
_JSON = re.compile(r"(?:--?[\w.-]+=)?(?P<json>[{\[].*)", re.DOTALL)
_NUMBERS = re.compile(r"[\[\]\s,]+")


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] in "\"'":
        raise ValueError(
            "begins with a quote, which recipe B takes as a part of the value: take the quotes out"
        )
    return value


def _integer(value: str) -> int:
    if not re.fullmatch(r"[0-9]+", _unquoted(value).strip()):
        comment = "; recipe B takes a trailing comment as a part of the value" if "#" in value else ""
        raise ValueError(f"is no whole number{comment}")
    return int(value)


def _number(value: str) -> float | int:
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", _unquoted(value).strip()):
        raise ValueError("is no number")
    return float(value)


def _numbers(value: str) -> list[int]:
    return [_integer(part) for part in _NUMBERS.split(_unquoted(value)) if part]


def _switch(value: str) -> bool:
    if _unquoted(value).strip() not in ("0", "1"):
        raise ValueError("is neither 0 nor 1")
    return value.strip() == "1"


def _download(value: str) -> str:
    modes = {"rsync": "copy", "direct": "direct"}
    if value.strip() not in modes:
        raise ValueError("is neither rsync nor direct")
    return modes[value.strip()]


def _shell_words(value: str) -> list[str]:
    """As a shell splits them, but JSON that stands there without quotes around it keeps its own."""
    try:
        plain = shlex.split(value)
    except ValueError:
        raise ValueError("has a quote that does not end") from None
    return [_whole_json(raw, word) for raw, word in zip(_RAW_WORD.findall(value), plain, strict=True)]


def _plain_words(value: str) -> list[str]:
    return [_whole_json(word, word) for word in value.split()]


def _whole_json(raw: str, word: str) -> str:
    """``word`` as it was meant. Raises ValueError for JSON that lost its quotes, or was split at a blank."""
    meant, written = _JSON.match(word), _JSON.match(raw)
    if meant is None or _is_json(meant["json"]):
        return word
    if written is not None and _is_json(written["json"]):
        return raw
    if meant["json"].startswith("[") and (raw == word or written is None):
        return word  # brackets that are no JSON, as somebody wrote them
    raise ValueError("has JSON that is split or loses its quotes: put it in single quotes, within the value")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


_READERS: Mapping[Form, Callable[[str], Any]] = {
    Form.TEXT: _unquoted,
    Form.PATH: _unquoted,
    Form.INTEGER: _integer,
    Form.NUMBER: _number,
    Form.BYTES: lambda value: f"{_integer(value)} B",
    Form.GIB: lambda value: f"{_number(value):g} GiB",
    Form.MINUTES: lambda value: f"{_number(value):g} min",
    Form.SWITCH: _switch,
    Form.WORDS: _plain_words,
    Form.SHELL_WORDS: _shell_words,
    Form.COMMAS: lambda value: [part.strip() for part in _unquoted(value).split(",") if part.strip()],
    Form.NUMBERS: _numbers,
    Form.ONE_NAME: lambda value: [_unquoted(value)],
    Form.DOWNLOAD: _download,
}


def read_value(form: Form, value: str) -> Any:
    """A value of this form, as the spec has it. Raises ValueError, whose words follow the name."""
    return _READERS[form](value)
