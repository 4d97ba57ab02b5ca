"""Arguments as lists of words: building them, and finding flags in them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

SHORTEST = 4
"""Characters that a beginning must have more than to be taken for a flag."""
FLAG_END = re.compile(r"[=\s]")
"""A flag and its value in one word is a mistake that must not hide the flag."""
KEY_FLAGS = ("--api-key", "--admin-api-key", "--hf-token")
"""Flags whose value is a secret."""


_SECRET_NAME = re.compile(
    r"(?:^|_)(?:[A-Z]*KEY|[A-Z]*TOKEN|SECRETS?|PASS|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)(?:_|$)",
    re.IGNORECASE,
)
_FILE_NAME = re.compile(r"_(?:FILE|PATH|DIR)$", re.IGNORECASE)
_NO_SECRET = re.compile(r"|-?[0-9.]{1,9}|true|false|yes|no|on|off|none", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"://[^/\s@]*:[^/\s@]+@")
_BY_LOOK = re.compile(r"\b(?:hf_\w{16,}|sk-[\w-]{16,}|gh[opsu]_\w{16,})")
_HIDDEN = re.compile(r"sha256:[0-9a-f]{8}")


def names_secret(name: str, value: str) -> bool:
    """Whether a variable's name says that its value is a secret. Names of files are none, nor are numbers and
    switches (``MAX_TOKEN_COUNT=8``)."""
    if _SECRET_NAME.search(name) is None or _FILE_NAME.search(name):
        return False
    return _NO_SECRET.fullmatch(value) is None


def holds_secret(value: str) -> bool:
    """Whether a value is a secret by its looks: an address with a password, a token of a known kind."""
    return _IN_ADDRESS.search(value) is not None or _BY_LOOK.search(value) is not None


def hidden(name: str, value: str) -> str:
    """``sha256:`` and eight digits: tells two values of a variable apart, and shows neither."""
    return "sha256:" + hashlib.sha256(f"{name}={value}".encode("utf-8", "surrogatepass")).hexdigest()[:8]


def is_hidden(value: object) -> bool:
    """Whether a text is one of ``hidden``."""
    return isinstance(value, str) and _HIDDEN.fullmatch(value) is not None


def flag(name: str, *values: object) -> list[str]:
    """``name`` and its values; nothing when a value is None."""
    return [] if any(value is None for value in values) else [name, *map(str, values)]


def switch(name: str, on: bool | None) -> list[str]:
    """``name``, its negation, or nothing when undecided."""
    if on is None:
        return []
    return [name if on else "--no-" + name.removeprefix("--")]


def compact(value: Mapping[str, Any]) -> str:
    """One-line JSON without spaces, in the order given: what the recipes put on the command line."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` without those that are None."""
    return {key: value for key, value in values.items() if value is not None}


def flags_in(arguments: Iterable[str], aliases: Mapping[str, str]) -> list[str]:
    """The flags among ``arguments``, in one spelling: ``--a_b=1`` is ``--a-b``, ``--no-x`` is ``--x``,
    ``--config.key`` is ``--config``, an alias is what it stands for, ``-n2`` is ``-n``."""
    found = []
    for word in arguments:
        if not word.startswith("-") or len(word) < 2 or word[1].isdigit() or word[1] == ".":
            continue
        name = FLAG_END.split(word, maxsplit=1)[0].split(".", 1)[0]
        if name.startswith("--"):
            name = name.replace("_", "-")
        elif name not in aliases and name[:2] in aliases:
            name = name[:2]  # a short flag and its value in one word: -O3
        if name.startswith("--no-"):
            name = "--" + name[len("--no-") :]
        found.append(aliases.get(name, name))
    return found


def repeated(own: Sequence[str], extra: Sequence[str], aliases: Mapping[str, str]) -> list[tuple[str, str]]:
    """Flags of ``extra`` that are given already: pairs of the flag as written there and the one it repeats.

    Both engines' argument parsers take a beginning of a flag for the flag, so that counts too.
    """
    before = flags_in(own, aliases)
    pairs = []
    for name in flags_in(extra, aliases):
        same = [given for given in before if given == name or (len(name) > 2 and given.startswith(name))]
        if same:
            pairs.append((name, name if name in same else same[0]))
        before.append(name)
    return pairs


def given_of(names: Iterable[str], arguments: Iterable[str], aliases: Mapping[str, str]) -> list[str]:
    """Which flags of ``names`` are among the arguments, beginnings included, each in its full spelling."""
    found = flags_in(arguments, aliases)
    return [name for name in names if any(f == name or (len(f) > 3 and name.startswith(f)) for f in found)]


def secrets_in(arguments: Iterable[str]) -> list[str]:
    """Flags among ``arguments`` that carry a secret, beginnings of them included. Never their values."""
    return [
        name
        for name in flags_in(arguments, {})
        if any(secret == name or (len(name) > 6 and secret.startswith(name)) for secret in KEY_FLAGS)
    ]


def values_of(name: str, arguments: Sequence[str], aliases: Mapping[str, str]) -> list[str]:
    """The values of the last appearance of the flag ``name``; empty when it is not there or has none.

    Both engines take a beginning of a flag for the flag (and end where it could be another one's too).
    """
    values: list[str] = []
    inside = False
    for word in arguments:
        found = flags_in([word], aliases)
        if not found:
            values += [word] if inside else []
            continue
        inside = found[0] == name or (len(found[0]) > SHORTEST and name.startswith(found[0]))
        if inside:
            values = word.split("=", 1)[1:]
    return values
