"""Walking the models: which fields a path may have, and what a field takes."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from sparkop.records import dataclass
from sparkop.spec.quantities import ByteSize, Duration
from sparkop.spec.tree import MappingNode, Node, Path, Scalar, child

Type = Any
"""A type annotation."""


@dataclass(frozen=True)
class Field:
    """A field of the spec at a path. ``owner`` is None for items of lists and entries of free mappings."""

    path: Path
    annotation: Type
    owner: type[BaseModel] | None = None
    info: FieldInfo | None = None

    @property
    def key(self) -> str:
        return str(self.path[-1]) if self.path else ""

    @property
    def description(self) -> str:
        if self.info is not None and self.info.description:
            return self.info.description
        models = models_of(self.annotation)
        return first_line(models[0]) if models else ""

    def about(self, name: str) -> str | None:
        """``unit``, ``flag``, ``variable``, ``recipe``, ``defaultText``, ``example`` or ``valueText``."""
        extra = self.info.json_schema_extra if self.info is not None else None
        value = extra.get(name) if isinstance(extra, dict) else None
        return None if value is None else str(value)

    @property
    def value(self) -> str:
        """What it takes, in a few words."""
        return self.about("valueText") or type_text(self.annotation)

    @property
    def required(self) -> bool:
        return self.info is not None and self.info.is_required()


def first_line(model: type[BaseModel]) -> str:
    """The first line of a model's documentation."""
    return (model.__doc__ or "").strip().split("\n")[0]


@cache
def root_model() -> type[BaseModel]:
    """ClusterSpec; imported late, because the models import what stands beside this module."""
    from sparkop.spec.models import ClusterSpec

    return ClusterSpec


def alternatives(annotation: Type) -> tuple[Type, ...]:
    """The members of unions, without Annotated and None."""
    origin = _origin(annotation)
    if origin is Annotated:
        return alternatives(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return tuple(each for member in get_args(annotation) for each in alternatives(member))
    return () if annotation in (None, type(None)) else (annotation,)


def _origin(annotation: Type) -> Any:
    return get_origin(annotation)


def is_model(annotation: Type) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def models_of(annotation: Type, node: Node | None = None) -> tuple[type[BaseModel], ...]:
    """Models that a mapping here may be; narrowed by ``kind`` when the mapping says its own."""
    models = tuple(each for each in alternatives(annotation) if is_model(each))
    kind = child(node, "kind") if isinstance(node, MappingNode) else None
    if isinstance(kind, Scalar) and len(models) > 1:
        fitting = tuple(model for model in models if kind.value in kinds_of(model))
        return fitting or models
    return models


def fields_of(model: type[BaseModel], path: Path = ()) -> Iterator[Field]:
    """The fields of a model by their YAML keys, in the order of the model."""
    for name, info in model.model_fields.items():
        yield Field((*path, info.alias or name), info.annotation, model, info)


def field_at(path: Sequence[str | int], root: Node | None = None) -> Field | None:
    """The field that ``path`` names; None when the models have none. ``root`` decides between engines."""
    return next(iter(fields_at(path, root)), None)


def fields_at(
    path: Sequence[str | int], root: Node | None = None, *, anything: bool = False
) -> tuple[Field, ...]:
    """The fields that ``path`` may name: more than one where engines differ and ``root`` does not tell.

    With ``anything``, list indexes may be left out, as in ``explain nodes.ssh``.
    """
    found: list[Field] = [Field((), root_model())]
    node = root
    for step in path:
        found = [each for field in found for each in _below(field, step, node, anything)]
        node = child(node, step) if node is not None else None
    return tuple(found)


def keys_at(path: Sequence[str | int], root: Node | None = None) -> tuple[Field, ...]:
    """The fields that a mapping at ``path`` may have, without doubles."""
    field = field_at(path, root)
    if field is None:
        return ()
    node: Node | None = root
    for step in path:
        node = child(node, step) if node is not None else None
    seen: dict[str, Field] = {}
    for model in models_of(field.annotation, node):
        for each in fields_of(model, tuple(path)):
            seen.setdefault(each.key, each)
    return tuple(seen.values())


def every_field(model: type[BaseModel] | None = None, path: Path = ()) -> Iterator[Field]:
    """All fields below, depth first. Items of lists are at the path of the list."""
    for field in fields_of(model or root_model(), path):
        yield field
        for inner in inner_models(field.annotation):
            yield from every_field(inner, field.path)


def inner_models(annotation: Type) -> tuple[type[BaseModel], ...]:
    """Models of the field itself, of its items or of its entries."""
    found: list[type[BaseModel]] = []
    for each in alternatives(annotation):
        if is_model(each):
            found.append(each)
        elif _origin(each) in (tuple, list, dict):
            found += [model for part in get_args(each) if part is not ... for model in inner_models(part)]
    return tuple(dict.fromkeys(found))


def takes_only_text(annotation: Type) -> bool:
    """Whether a value here is text and nothing else, so that 123 unquoted is a mistake."""
    members = alternatives(annotation)
    return bool(members) and all(
        each is str or (_origin(each) is Literal and all(isinstance(value, str) for value in get_args(each)))
        for each in members
    )


def takes_list(field: Field) -> bool:
    return any(_origin(each) in (tuple, list) for each in alternatives(field.annotation))


def takes_free_keys(field: Field) -> bool:
    """Whether it is a mapping whose keys are the user's own, such as environment variables."""
    return any(_origin(each) is dict for each in alternatives(field.annotation))


def takes_quantity(annotation: Type) -> bool:
    return any(each in (ByteSize, Duration) for each in alternatives(annotation))


def choices(annotation: Type) -> tuple[str, ...]:
    """The literals that are accepted, as they are written in YAML; empty when it is no choice."""
    members = [each for each in alternatives(annotation) if _origin(each) is Literal]
    return tuple(_yaml(value) for member in members for value in get_args(member))


def type_text(annotation: Type) -> str:
    """What a field takes, in a few words."""
    words: list[str] = []
    for each in alternatives(annotation):
        origin = _origin(each)
        if origin is Literal:
            words.append(" | ".join(_yaml(value) for value in get_args(each)))
        elif origin in (tuple, list):
            words.append(f"list of {type_text(get_args(each)[0])}")
        elif origin is dict:
            words.append(f"mapping of names to {type_text(get_args(each)[1])}")
        elif is_model(each):
            words.append("mapping")
        else:
            words.append(_WORDS.get(each, getattr(each, "__name__", str(each))))
    return " or ".join(dict.fromkeys(words))


_WORDS: dict[Type, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true | false",
    ByteSize: "size such as 1 GiB",
    Duration: "time such as 90 s",
}


def _yaml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def kinds_of(model: type[BaseModel]) -> tuple[Any, ...]:
    """What ``kind`` may be in a mapping of this model; empty when it has none."""
    info = model.model_fields.get("kind")
    return get_args(info.annotation) if info is not None and _origin(info.annotation) is Literal else ()


def _below(field: Field, step: str | int, node: Node | None, anything: bool) -> list[Field]:
    found: list[Field] = []
    path = (*field.path, step)
    for model in models_of(field.annotation, node):
        found += [each for each in fields_of(model, field.path) if each.key == step]
    for each in alternatives(field.annotation):
        origin, parts = _origin(each), get_args(each)
        if origin in (tuple, list):
            item = Field(path, parts[0])
            if isinstance(step, int):
                found.append(item)
            elif anything:
                found += _below(Field(field.path, parts[0]), step, node, anything)
        elif origin is dict and isinstance(step, str):
            found.append(Field(path, parts[1]))
    return found
