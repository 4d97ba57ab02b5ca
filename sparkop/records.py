"""Frozen dataclasses that are quick to define.

``dataclasses.dataclass`` compiles six methods from text for every frozen class: a third of the instructions
of a cold ``sparkop diff`` went there (Python 3.11). Here only ``__init__`` is; the others are the same
functions for all classes. What a class does is the same, and so is what a type checker sees.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, **options):
        """As ``dataclasses.dataclass``; what is frozen can be set once, which ``__init__`` does."""

        def made(cls):
            if not frozen:
                return dataclasses.dataclass(cls, eq=eq, **options)
            for name, method in _METHODS.items():
                if name in ("__eq__", "__hash__") and not eq:
                    continue
                if cls.__dict__.get(name) is None:  # Python forbids the hash where equality is a class's own
                    setattr(cls, name, method)
            made = dataclasses.dataclass(cls, repr=False, eq=False, **options)
            made.__compared__ = _values([field.name for field in dataclasses.fields(made) if field.compare])
            return made

        return made if cls is None else made(cls)


def _values(names: list[str]) -> Any:
    """Gives the values of these fields."""
    return attrgetter(*names) if names else lambda _: ()


def _set_once(self: Any, name: str, value: Any) -> None:
    if name in self.__dict__ or name not in self.__dataclass_fields__:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    self.__dict__[name] = value


def _keep(self: Any, name: str) -> None:  # noqa: ARG001 (as Python calls it)
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    values = self.__class__.__compared__
    return values(self) == values(other)


def _hash(self: Any) -> int:
    return hash(self.__class__.__compared__(self))


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in shown)})"


_METHODS = {
    "__setattr__": _set_once,
    "__delattr__": _keep,
    "__eq__": _equal,
    "__hash__": _hash,
    "__repr__": _repr,
}
