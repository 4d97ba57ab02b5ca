"""``sparkop explain``: what the models say of a field, as text and as the reference page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from sparkop.errors import UsageError
from sparkop.spec.fields import (
    Field,
    every_field,
    fields_at,
    fields_of,
    inner_models,
    kinds_of,
    models_of,
    root_model,
)
from sparkop.spec.problems import printable
from sparkop.spec.quantities import ByteSize, Duration
from sparkop.spec.suggest import nearest
from sparkop.spec.tree import show_path


def explain(word: str | None, *, width: int = 96) -> str:
    """The text for a path, a key of any section, a recipe's variable or an engine's flag.

    Raises UsageError for what is none of these.
    """
    if not (word or "").strip("."):
        return "\n".join(_model(Field((), root_model()), root_model(), width)) + "\n"
    texts = ["\n".join(_field(field, width)) for field in find(word or "")]
    return "\n\n".join(dict.fromkeys(texts)) + "\n"


def find(word: str) -> tuple[Field, ...]:
    """The fields that ``word`` may mean. A path is meant first."""
    steps = [step for step in re.split(r"[.\[\]]+", word) if step]
    path = tuple(int(step) if step.isdigit() else step for step in steps)
    found = _at(path)
    if found:
        return found
    named = tuple(
        field
        for field in _unique(every_field())
        if field.key == word
        or word in re.split(r"[:;,\s]+", field.about("recipe") or "")
        or {word, f"--{word}"} & set(re.split(r"[,\s]+", field.about("flag") or ""))
        or word in re.split(r"[,\s]+", field.about("variable") or "")
    )
    if named:
        return named
    raise UsageError(f"the spec has no {printable(word)}", remedy=_advice(path))


def _at(path: Sequence[str | int]) -> tuple[Field, ...]:
    """Fields at a path; ``engine.vllm.context`` takes the engine by its kind."""
    kind: str | None = None
    kept: list[str | int] = []
    for step in path:
        parents = fields_at(kept, anything=True)
        models = [model for parent in parents for model in models_of(parent.annotation)]
        if len(models) > 1 and any(step in kinds_of(model) for model in models):
            kind = str(step)
        else:
            kept.append(step)
    found = fields_at(kept, anything=True)
    if kind is None:
        return found
    if kept == list(path[: len(kept)]) and len(kept) < len(path) and path[-1] == kind:
        return tuple(
            Field(field.path, model, None, field.info)
            for field in found
            for model in models_of(field.annotation)
            if kind in kinds_of(model)
        )
    return tuple(
        field
        for field in found
        if field.owner is None or kind in kinds_of(field.owner) or not kinds_of(field.owner)
    )


def _advice(path: Sequence[str | int]) -> str:
    for length in range(len(path) - 1, -1, -1):
        parents = fields_at(path[:length], anything=True)
        keys = [
            field.key
            for parent in parents
            for model in inner_models(parent.annotation)
            for field in fields_of(model)
        ]
        if keys:
            wrong = str(path[length])
            suggestion = nearest(wrong, keys)
            where = show_path(path[:length]) or "the spec"
            full = ", ".join(dict.fromkeys(keys))
            return f"{suggestion} " * (suggestion is not None) + f"{where} has {full}"
    return "sparkop explain shows the sections"


def _unique(fields: Iterator[Field]) -> Iterator[Field]:
    seen = set()
    for field in fields:
        if (field.path, field.description) not in seen:
            seen.add((field.path, field.description))
            yield field


def _field(field: Field, width: int) -> Iterator[str]:
    models = inner_models(field.annotation)
    kind = f" (kind: {', '.join(kinds_of(field.owner))})" if field.owner and kinds_of(field.owner) else ""
    yield f"{show_path(field.path)}{kind}: {_type_and_default(field)}"
    yield from _wrapped(field.description, width)
    yield from (f"  {fact}" for fact in facts(field))
    for model in models:
        yield ""
        yield from _model(field, model, width)


def _model(field: Field, model: type[BaseModel], width: int) -> Iterator[str]:
    kinds = kinds_of(model)
    title = f"kind: {kinds[0]}. " if kinds and field.path else ""
    yield from _wrapped(title + plain_text(model.__doc__), width)
    yield "Keys:" if not title else f"Keys with kind {kinds[0]}:"
    for each in fields_of(model, field.path):
        yield f"  {each.key}: {_type_and_default(each)}"
        yield from _wrapped(each.description, width, "      ")


def plain_text(documentation: str | None) -> str:
    """A docstring as one paragraph, without its markup."""
    return " ".join((documentation or "").split()).replace("``", "`")


def _type_and_default(field: Field) -> str:
    text = field.value
    default = default_text(field)
    return f"{text}; {default}" if default else text


def default_text(field: Field) -> str:
    """``required``, ``default 1 GiB`` or nothing for a mapping of defaults."""
    if field.info is None:
        return ""
    if field.required:
        return "required"
    told = field.about("defaultText")
    if told:
        return f"default: {told}"
    value = field.info.get_default(call_default_factory=True, validated_data={})
    if value is None or value is PydanticUndefined:
        return "default: not set"
    if isinstance(value, BaseModel):
        return "default: see its keys"
    return f"default {_plain(value)}"


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(_plain(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{}" if not value else "{" + ", ".join(f"{k}: {_plain(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (ByteSize, Duration)):
        return str(value)
    return f"{value}"


def facts(field: Field) -> Iterator[str]:
    """Unit, bounds, flag, variable, recipe and example, one sentence each."""
    if field.about("unit"):
        yield f"Unit: {field.about('unit')}."
    bounds = _bounds(field)
    if bounds:
        yield f"Accepted: {bounds}."
    if field.about("flag"):
        yield f"Becomes the flag {field.about('flag')}."
    if field.about("variable"):
        yield f"Becomes the environment variable {field.about('variable')}."
    if field.about("recipe"):
        yield f"Replaces the recipe's variable ({field.about('recipe')})."
    if field.about("example"):
        yield f"Example: {field.key}: {field.about('example')}"


def _bounds(field: Field) -> str:
    words = {"ge": "at least {}", "gt": "more than {}", "le": "at most {}", "lt": "less than {}"}
    found = []
    for each in field.info.metadata if field.info is not None else ():
        for name, text in words.items():
            value = getattr(each, name, None)
            if value is not None:
                found.append(text.format(f"{value:g}" if isinstance(value, float) else value))
    return ", ".join(found)


def _wrapped(text: str, width: int, indent: str = "  ") -> Iterator[str]:
    import textwrap

    if text:
        yield from textwrap.wrap(
            text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )
