"""Arguments as lists of words: building them, and finding flags in them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

KEY_FLAGS = ("--api-key", "--admin-api-key", "--hf-token")
"""Flags whose value is a secret."""


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
    ``--config.key`` is ``--config``, an alias is what it stands for."""
    found = []
    for word in arguments:
        if not word.startswith("-") or len(word) < 2 or word[1].isdigit() or word[1] == ".":
            continue
        name = word.split("=", 1)[0]
        if name.startswith("--"):
            name = name.split(".", 1)[0].replace("_", "-")
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


def secrets_in(arguments: Iterable[str]) -> list[str]:
    """Flags among ``arguments`` that carry a secret, beginnings of them included. Never their values."""
    return [
        name
        for name in flags_in(arguments, {})
        if any(secret == name or (len(name) > 6 and secret.startswith(name)) for secret in KEY_FLAGS)
    ]


def values_of(name: str, arguments: Sequence[str], aliases: Mapping[str, str]) -> list[str]:
    """The values of the last appearance of the flag ``name``; empty when it is not there or has none."""
    values: list[str] = []
    inside = False
    for word in arguments:
        found = flags_in([word], aliases)
        if not found:
            values += [word] if inside else []
            continue
        inside = found == [name]
        if inside:
            values = word.split("=", 1)[1:]
    return values
