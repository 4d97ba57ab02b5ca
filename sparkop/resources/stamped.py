"""The normalised form of a desired container: its hash, and which field of it changed. Pure.

Two containers with the same hash behave the same. Order that means nothing (environment, labels, mounts)
is sorted away; a value at its default is left out, so that a field which a newer sparkop adds changes no
hash. Nothing learnt after a pull is part of it. See docs/decisions/0002-what-is-hashed.md.

The hash covers every value. What is shown (the label's text, and so causes, events, the history) does not:
a user may put a secret into the environment, so there the user's values are ``sha256:<8>``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import fields
from functools import lru_cache
from typing import Any

from sparkop.engines.words import hidden, is_hidden, values_of
from sparkop.hosts.base import ContainerOptions, ContainerSpec
from sparkop.resources.labels import WEIGHTS
from sparkop.spec.hashing import VERSION, desired_hash, version_of

_DEFAULTS = ContainerOptions()
SHORT = 60
"""Characters of a value that a cause shows."""


def normalised(container: ContainerSpec, version: int = VERSION) -> dict[str, Any]:
    """What decides how the container behaves, as JSON, in the form of a version of the hash. Of its labels
    only the weights' are part of it. Raises ValueError for a version that this sparkop does not know."""
    return _FORMS[version](container) if version in _FORMS else _no_form(version)


def _form_1(container: ContainerSpec) -> dict[str, Any]:
    options = container.options or _DEFAULTS
    changed = {
        f.name: _plain(getattr(options, f.name))
        for f in fields(ContainerOptions)
        if getattr(options, f.name) != getattr(_DEFAULTS, f.name)
    }
    found: dict[str, Any] = {
        "name": container.name,
        "image": container.image,
        "arguments": list(container.arguments),
        "environment": dict(sorted((container.environment or {}).items())),
        "mounts": sorted([m.source, m.target, "ro" if m.read_only else "rw"] for m in container.mounts),
        "options": changed,
    }
    if container.entrypoint is not None:
        found["entrypoint"] = list(container.entrypoint)
    if WEIGHTS in container.labels:
        found["weights"] = container.labels[WEIGHTS]
    return found


_FORMS = {1: _form_1}


def _no_form(version: int) -> dict[str, Any]:
    raise ValueError(f"unknown version of the desired-state hash: {version}")


def text_of(container: ContainerSpec, private: Set[str] = frozenset()) -> str:
    """The normalised form as one line of JSON, for the label. The values of the variables ``private``, those
    that the user has set, are hidden."""
    form = normalised(container)
    form["environment"] = {
        name: hidden(name, value) if name in private else value for name, value in form["environment"].items()
    }
    return json.dumps(form, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def hash_of(container: ContainerSpec) -> str:
    """``v1:`` and a SHA-256."""
    return desired_hash(normalised(container))


def same(container: ContainerSpec, stamped: str) -> bool:
    """Whether a stamped hash, of this or an older sparkop, is that of the container."""
    version = version_of(stamped)
    return version is not None and desired_hash(normalised(container, version), version) == stamped


def changed_field(observed: str, desired: str) -> tuple[str, str, str] | None:
    """The first difference of two normalised texts: field, observed, desired; None when it can't be told."""
    try:
        before, after = json.loads(observed), json.loads(desired)
    except ValueError:
        return None
    if not isinstance(before, dict) or not isinstance(after, dict):
        return None
    before = _as_hidden(before, after)
    for key in ("image", "arguments", "environment", "options", "mounts", "entrypoint", "weights", "name"):
        if before.get(key) != after.get(key):
            return _first(key, before.get(key), after.get(key))
    return None


def environment_of(stamped: str) -> dict[str, str]:
    """The environment of a normalised text, without the values that it hides; empty when it can't be read."""
    try:
        found = json.loads(stamped)["environment"]
    except (ValueError, KeyError, TypeError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str) and not is_hidden(value)}


PORT_FLAGS = ("--port", "--master-port", "--dist-init-addr")
"""Flags of both engines that name a port of the spec; the last with an address before it."""


@lru_cache(maxsize=64)  # every look asks for the same few
def ports_of(stamped: str) -> frozenset[int] | None:
    """The ports that a container of a normalised text listens on; None when it can't be read."""
    try:
        words = [str(word) for word in json.loads(stamped)["arguments"]]
    except (ValueError, KeyError, TypeError):
        return None
    ends = (value.rpartition(":")[2] for flag in PORT_FLAGS for value in values_of(flag, words, {}))
    return frozenset(int(end) for end in ends if end.isdigit())


def _as_hidden(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """``before`` with the values hidden that ``after`` hides: a label of an older sparkop shows them."""
    old, new = before.get("environment"), after.get("environment")
    if not isinstance(old, dict) or not isinstance(new, dict):
        return before
    known = {
        name: hidden(name, str(value)) if is_hidden(new.get(name, "")) and not is_hidden(value) else value
        for name, value in old.items()
    }
    return {**before, "environment": known}


def _by_target(mounts: Any) -> dict[str, str]:
    """Where a container has a folder -> which it is, and whether it may write there."""
    known = (mount for mount in mounts or () if isinstance(mount, list) and len(mount) == 3)
    return {str(target): f"{source} {mode}" for source, target, mode in known}


def _first(key: str, before: Any, after: Any) -> tuple[str, str, str]:
    if key == "mounts":
        before, after = _by_target(before), _by_target(after)
    if isinstance(before, dict) and isinstance(after, dict):
        name = next(n for n in sorted({*before, *after}) if before.get(n) != after.get(n))
        if key == "environment" and name not in after:  # who had set it is not known any more
            return f"{key}.{name}", "set", "none"
        return f"{key}.{name}", *_apart(before.get(name), after.get(name))
    if key == "arguments" and isinstance(before, list) and isinstance(after, list):
        return _first_argument(before, after)
    if key == "image":
        short = short_image(str(before)), short_image(str(after))
        return key, *(short if short[0] != short[1] else _apart(before, after))
    return key, *_apart(before, after)


def short_image(reference: str) -> str:
    """``sha256:5668e35e5668`` of a reference by digest; other references as they are."""
    digest = reference.rpartition("@")[2]
    return digest[: len("sha256:") + 12] if digest.startswith("sha256:") else _short(reference)


def _first_argument(before: list[Any], after: list[Any]) -> tuple[str, str, str]:
    """The first argument that differs, named by the flag it belongs to."""
    old, new = _by_flag(before), _by_flag(after)
    for flag in [*new, *(f for f in old if f not in new)]:
        if old.get(flag) != new.get(flag):
            return flag, *_apart(old.get(flag), new.get(flag))
    return "arguments", "another order", "the order of the spec"


def _by_flag(arguments: list[Any]) -> dict[str, str]:
    """``--flag`` -> its values joined; what stands before the first flag is ``arguments``."""
    found: dict[str, list[str]] = {}
    flag = "arguments"
    for word in map(str, arguments):
        if word.startswith("--"):
            flag = word
            found.setdefault(flag, [])
        else:
            found.setdefault(flag, []).append(word)
    return {flag: " ".join(words) or "set" for flag, words in found.items()}


def _apart(before: Any, after: Any) -> tuple[str, str]:
    """Both in short, so that what differs is seen: a long beginning that they share is left out."""
    texts = _text(before), _text(after)
    if _short(texts[0]) != _short(texts[1]):
        return _short(texts[0]), _short(texts[1])
    differ = next((n for n, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    old, new = (_short("…" + text[max(0, differ - SHORT // 3) :]) for text in texts)
    return old, new


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _short(value: Any) -> str:
    text = _text(value)
    return text if len(text) <= SHORT else text[: SHORT - 1] + "…"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(sorted(value.items()))
    return list(value) if isinstance(value, tuple) else value
