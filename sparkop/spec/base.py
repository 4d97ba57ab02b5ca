"""What every model of the spec shares: camelCase keys, no unknown keys, frozen values, documented fields.

Every field says what it means in ``description`` and, with :func:`about`, its unit, the engine flag or
environment variable that it becomes, and the recipe variable that it replaces. ``sparkop explain``, the
JSON Schema and docs/reference/spec.md are made from these, so there is no second place to write them.

Modules of models have no ``from __future__ import annotations``: pydantic would compile each annotation from
its text, at every start.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError


class SpecModel(BaseModel):
    """A mapping of the spec. Keys are camelCase in YAML and snake_case in Python."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, validate_default=True
    )


def about(
    *,
    unit: str | None = None,
    flag: str | None = None,
    variable: str | None = None,
    recipe: str | None = None,
    default: str | None = None,
    example: str | None = None,
    value: str | None = None,
    hint: str | None = None,
) -> dict[str, Any]:
    """What ``json_schema_extra`` of a field holds.

    ``flag`` and ``variable``: what the field becomes in the engine's container. ``recipe``: the variables of
    the recipes that it replaces, as ``A: ONE, TWO; B: THREE``. ``default``: in words, where the value in the
    model is None and another is used. ``example``: a value as it is written in YAML. ``value``: what is
    accepted, where the type alone says too little. ``hint``: shown after a value that is refused.
    """
    told = {
        "unit": unit,
        "flag": flag,
        "variable": variable,
        "recipe": recipe,
        "defaultText": default,
        "example": example,
        "valueText": value,
        "hint": hint,
    }
    return {key: text for key, text in told.items() if text is not None}


def refusal(message: str, *path: str | int) -> PydanticCustomError:
    """An error for a model's own validator to raise, shown at ``path`` (YAML keys) below that model."""
    return PydanticCustomError("refused", "{message}", {"message": message, "path": list(path)})
