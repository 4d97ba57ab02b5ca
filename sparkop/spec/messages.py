"""pydantic's errors in the words of a spec: place, what is wrong, what is accepted, what was meant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparkop.spec.advice import as_number, elsewhere, habit, how_to_quote, missing_blank, other_word
from sparkop.spec.fields import (
    Field,
    choices,
    field_at,
    keys_at,
    kinds_of,
    models_of,
    takes_only_text,
)
from sparkop.spec.problems import Problem
from sparkop.spec.scalars import shown
from sparkop.spec.show import yaml_scalar
from sparkop.spec.suggest import nearest, nearest_name
from sparkop.spec.traps import reads_as
from sparkop.spec.tree import (
    Found,
    MappingNode,
    Node,
    Path,
    Scalar,
    SequenceNode,
    child,
    follow,
    show_path,
)

_MANY_KEYS = 16
_OWN_WORDS = {"quantity", "ssh", "path", "address", "value_error", "assertion_error"}
_BOUNDS = {
    "greater_than": ("gt", "must be more than {}"),
    "greater_than_equal": ("ge", "must be at least {}"),
    "less_than": ("lt", "must be less than {}"),
    "less_than_equal": ("le", "must be at most {}"),
}


def explain_errors(errors: Sequence[Any], root: Node) -> list[Problem]:
    """One problem an error. A key that is missing because its name has a typo is told once."""
    renamed: set[Path] = set()
    problems: list[Problem] = []
    for error in errors:
        if error["type"] == "extra_forbidden":
            path = tree_path(root, error["loc"])
            name = nearest_name(str(path[-1]), [field.key for field in keys_at(path[:-1], root)])
            if name is not None:
                renamed.add((*path[:-1], name))
    missing = _missing_keys(errors, renamed, root)
    for parent, keys in missing.items():
        problems += _all_missing(parent, keys, root)
    for error in errors:
        path = tree_path(root, error["loc"])
        if error["loc"][-1:] == ("[key]",):
            problems.append(_bad_key(error, path, root))
            continue
        if error["type"] == "missing":
            continue
        if error["type"] == "too_short" and _counts_only_valid(error, path, root):
            continue
        problems.append(_explain(error, path, root))
    return problems


def _missing_keys(errors: Sequence[Any], renamed: set[Path], root: Node) -> dict[Path, list[str]]:
    """By mapping: what it needs and has not, and what was not just misspelt."""
    missing: dict[Path, list[str]] = {}
    for error in errors:
        path = tree_path(root, error["loc"])
        if error["type"] == "missing" and path not in renamed:
            missing.setdefault(path[:-1], []).append(str(path[-1]))
    return missing


def _bad_key(error: Mapping[str, Any], path: Path, root: Node) -> Problem:
    """A key of a free mapping (an environment variable's name, a thinking level)."""
    found = follow(root, path)
    accepted = str((error.get("ctx") or {}).get("expected", "")).replace("'", "").replace(" or ", ", ")
    message = f"takes no key {path[-1]}"
    return Problem(
        found.key,
        message,
        path[:-1],
        accepted=accepted or "letters, digits and underscores, no digit first",
        suggestion=nearest(str(path[-1]), accepted.split(", ")),
        defined=found.defined,
    )


def _counts_only_valid(error: Mapping[str, Any], path: Path, root: Node) -> bool:
    """pydantic finds a list too short when its items have errors of their own, which are told anyway."""
    node = follow(root, path).node
    return isinstance(node, SequenceNode) and len(node.items) >= error["ctx"]["min_length"]


def tree_path(root: Node, location: Sequence[str | int]) -> Path:
    """pydantic's location without the names of union members; its last step may be a missing key."""
    path: list[str | int] = []
    node: Node | None = root
    for index, step in enumerate(location):
        below = child(node, step) if node is not None else None
        last = index == len(location) - 1
        if below is not None:
            node = below
            path.append(step)
        elif last and isinstance(node, MappingNode) and step in [f.key for f in keys_at(path, root)]:
            path.append(step)
    return tuple(path)


def _explain(error: Mapping[str, Any], path: Path, root: Node) -> Problem:
    kind = error["type"]
    context = error.get("ctx") or {}
    if kind == "extra_forbidden":
        return _unknown_key(path, root)
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        return _kind(path, root)
    if kind == "refused":
        return _refused((*path, *context["path"]), context["message"], root)
    found = follow(root, path)
    field = field_at(path, root)
    node = found.node
    if isinstance(node, Scalar) and node.value is None and kind != "quantity":
        message = (
            "has no value: nothing follows the colon" if node.raw == "" else "is null, which is no value here"
        )
        return _problem(found, path, message, accepted=_accepted(field))
    if kind in _OWN_WORDS:
        words = str(context.get("message") or error["msg"]).removeprefix("Value error, ")
        if kind == "quantity" and isinstance(node, Scalar):
            words = f"{shown(node)} {words}" if node.raw.strip() else "is empty: it needs a number and a unit"
        elif kind == "ssh" and isinstance(node, Scalar):
            words = f"'{shown(node)}' {words}"
        return _problem(found, path, words)
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return _problem(found, path, words.format(_number(context.get(name))) + _given(node))
    if kind in (
        "string_type",
        "int_type",
        "float_type",
        "bool_type",
        "int_from_float",
        "literal_error",
        "enum",
    ):
        return _wrong_scalar(field, found, path)
    if kind in ("model_type", "model_attributes_type", "dict_type", "tuple_type", "list_type"):
        return _wrong_shape(field, found, path)
    if kind in ("string_too_short", "too_short"):
        smallest = context.get("min_length", 1)
        what = (
            "is empty"
            if smallest == 1
            else f"needs at least {smallest} " + ("characters" if kind == "string_too_short" else "items")
        )
        return _problem(found, path, what, accepted=_accepted(field))
    if kind == "string_pattern_mismatch":
        return _problem(
            found,
            path,
            f"'{shown(node)}' is not accepted" if isinstance(node, Scalar) else "is not accepted",
            accepted=_accepted(field, pattern=context.get("pattern")),
        )
    return _problem(found, path, _plain_words(error["msg"]), accepted=_accepted(field))


def _all_missing(path: Path, keys: Sequence[str], root: Node) -> Iterator[Problem]:
    """What was never written, in one problem; what a later layer took away, where it did so."""
    node = follow(root, path).node
    removed = node.removed if isinstance(node, MappingNode) else {}
    for key in keys:
        if key in removed:
            subject = "" if path else "the spec "
            yield Problem(removed[key], f"{subject}needs the key {key}, which is taken away here", path)
    if never := [key for key in keys if key not in removed]:
        yield _missing(path, never, root)


def _missing(path: Path, keys: Sequence[str], root: Node) -> Problem:
    """What the mapping at ``path`` lacks."""
    parent = follow(root, path)
    subject = "" if path else "the spec "
    if len(keys) > 1:
        asked = f"sparkop explain {_without_indexes(path)}" if path else "sparkop init writes a whole spec"
        message = f"{subject}needs the keys {', '.join(keys)}"
        return Problem(parent.key, message, path, suggestion=asked, defined=parent.defined)
    path = (*path, keys[0])
    field = field_at(path, root)
    message = f"{subject}needs the key {path[-1]}"
    described = field.description if field is not None else None
    example = _example(field) if field is not None else None
    return Problem(
        parent.key,
        message,
        path[:-1],
        accepted=described,
        suggestion=f"add {path[-1]}: {example}" if example else f"sparkop explain {_without_indexes(path)}",
        defined=parent.defined,
    )


def _without_indexes(path: Path) -> str:
    return ".".join(step for step in path if isinstance(step, str))


def _unknown_key(path: Path, root: Node) -> Problem:
    found = follow(root, path)
    key = str(path[-1])
    keys = [field.key for field in keys_at(path[:-1], root)]
    suggestion = other_word(key, keys) or nearest(key, keys) or elsewhere(key, path) or missing_blank(key)
    where = f"{show_path(path[:-1])} has" if path[:-1] else "a spec has"
    return Problem(
        found.key,
        f"{where} no key {key}",
        accepted=_list_of_keys(keys, path[:-1], suggestion),
        suggestion=suggestion,
        defined=found.defined,
    )


def _list_of_keys(keys: Sequence[str], path: Path, suggestion: str | None) -> str | None:
    """The keys, or where to read them when they are many."""
    if len(keys) <= _MANY_KEYS:
        return ", ".join(keys) or None
    return None if suggestion else f"{len(keys)} keys: sparkop explain {show_path(path)}"


def _kind(path: Path, root: Node) -> Problem:
    found = follow(root, (*path, "kind"))
    field = field_at(path)
    models = models_of(field.annotation) if field is not None else ()
    kinds = [kind for model in models for kind in kinds_of(model)]
    accepted = ", ".join(kinds)
    if len(found.path) == len(path):
        return Problem(found.key, "needs the key kind", path, accepted=accepted, defined=found.defined)
    given = shown(found.node) if isinstance(found.node, Scalar) else "this"
    return _problem(
        found,
        (*path, "kind"),
        f"{given} is not one of them",
        accepted=accepted,
        suggestion=nearest(given, kinds),
    )


def _refused(path: Path, message: str, root: Node) -> Problem:
    """A model's own rule; pointed to the deepest part of the path that was written."""
    found = follow(root, path)
    place = found.place if isinstance(found.node, Scalar) else found.key
    removed = found.node.removed if isinstance(found.node, MappingNode) else {}
    taken = ", ".join(f"{key} is taken away at {where}" for key, where in removed.items())
    return Problem(place, message, found.path or (), suggestion=taken or None, defined=found.defined)


def _wrong_scalar(field: Field | None, found: Found, path: Path) -> Problem:
    node = found.node
    if field is None or not isinstance(node, Scalar):
        return _wrong_shape(field, found, path)
    options = choices(field.annotation)
    if takes_only_text(field.annotation) and not isinstance(node.value, str):
        return reads_as(node, path, found)
    if options:
        given = shown(node)
        return _problem(
            found,
            path,
            f"{given} is not one of them" if given else "is empty",
            accepted=", ".join(options),
            suggestion=nearest(given, options),
            hint=field.about("hint"),
        )
    wanted = field.value
    suggestion = None
    if "whole number" in wanted and isinstance(node.value, float):
        suggestion = f"write {int(node.value)}" if node.value.is_integer() else None
        return _problem(
            found, path, f"{node.raw} is a fraction to YAML; a whole number is wanted", suggestion=suggestion
        )
    if (
        isinstance(node.value, str)
        and not node.plain
        and re.fullmatch(r"[-+]?[0-9.]+|true|false", node.value)
    ):
        suggestion = f"without quotes: {node.value}"
    elif "true | false" in wanted and node.raw in ("0", "1"):
        suggestion = f"write {'true' if node.raw == '1' else 'false'}"
    elif isinstance(node.value, str):
        suggestion = as_number(node.value) if "number" in wanted else None
    return _problem(found, path, f"must be {_article(wanted)}, not {_what(node)}", suggestion=suggestion)


def _article(words: str) -> str:
    return words if words.startswith(("true", "text")) else f"a {words}"


def _wrong_shape(field: Field | None, found: Found, path: Path) -> Problem:
    node = found.node
    wanted = field.value if field is not None else "something else"
    if field is not None and takes_only_text(field.annotation) and not isinstance(node, Scalar):
        return _problem(
            found, path, f"is read as {_what(node)}; text is wanted", suggestion=how_to_quote(node)
        )
    suggestion = None
    if isinstance(node, Scalar) and wanted.startswith("list"):
        words = [yaml_scalar(word) for word in re.split(r"[,\s]+", shown(node)) if word]
        suggestion = f"write it as a list: [{', '.join(words)}]"
    elif isinstance(node, SequenceNode) and wanted.startswith("mapping"):
        suggestion = "no hyphens here: write `key: value` lines"
    elif field is not None and isinstance(node, MappingNode) and wanted.startswith("list"):
        suggestion = "each item begins with a hyphen and a blank"
    keys = [each.key for each in keys_at(path)] if wanted == "mapping" else []
    return _problem(
        found,
        path,
        f"must be {_article(wanted)}, not {_what(node)}",
        accepted=_list_of_keys(keys, path, None) if keys else None,
        suggestion=suggestion,
    )


def _what(node: Node) -> str:
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, SequenceNode):
        return "a list"
    assert isinstance(node, Scalar)
    if node.value is None:
        return "nothing"
    if isinstance(node.value, str):
        return f"the text '{shown(node)}'"
    return shown(node)


def _given(node: Node) -> str:
    return f", not {shown(node)}" if isinstance(node, Scalar) else ""


def _accepted(field: Field | None, pattern: object = None) -> str | None:
    if field is None:
        return f"text that matches {pattern}" if pattern else None
    text = field.description or (f"text that matches {pattern}" if pattern else field.value)
    example = field.about("example")
    return f"{text} For example: {example}" if example else text


def _example(field: Field) -> str | None:
    example = field.about("example")
    if example:
        return example
    options = choices(field.annotation)
    return options[0] if options else None


def _number(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _plain_words(message: str) -> str:
    return message[:1].lower() + message[1:]


def _problem(
    found: Found,
    path: Path,
    message: str,
    *,
    accepted: str | None = None,
    suggestion: str | None = None,
    hint: str | None = None,
) -> Problem:
    suggestion = suggestion or (None if hint else habit(found.node, message))
    return Problem(
        found.place,
        message,
        path,
        accepted=accepted,
        suggestion=suggestion,
        hint=hint,
        defined=found.defined,
    )
