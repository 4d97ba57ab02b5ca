"""Frozen dataclasses that are quick to define.

``dataclasses.dataclass`` compiles six methods from text for every frozen class: a third of the instructions
of a cold ``sparkop diff`` went there (Python 3.11). Here only ``__init__`` is, and not before the first
object is made: most classes that a command imports never get one. The others are the same functions for all
classes. What a class does is the same, and so is what a type checker sees.
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
        """As ``dataclasses.dataclass``, but each field is one of ``__init__`` and of the object."""

        def made(cls):
            if not frozen:
                return dataclasses.dataclass(cls, eq=eq, **options)
            for name, method in _METHODS.items():
                if name in ("__eq__", "__hash__") and not eq:
                    continue
                if cls.__dict__.get(name) is None:  # Python forbids the hash where equality is a class's own
                    setattr(cls, name, method)
            own = "__init__" in cls.__dict__
            made = dataclasses.dataclass(cls, init=False, repr=False, eq=False, **options)
            if not own:
                made.__init__ = _init_at_first_use(made)
            made.__compared__ = _values([field.name for field in dataclasses.fields(made) if field.compare])
            return made

        return made if cls is None else made(cls)


def _values(names: list[str]) -> Any:
    """Gives the values of these fields."""
    return attrgetter(*names) if names else lambda _: ()


def _init_at_first_use(made: Any) -> Any:
    """The class's ``__init__``, which puts the compiled one in its own place."""

    def __init__(self: Any, *arguments: Any, **named: Any) -> None:  # noqa: N807 (as Python calls it)
        made.__init__ = compiled = _init(made)
        compiled(self, *arguments, **named)

    return __init__


def _init(made: Any) -> Any:
    """``def __init__(self, a, b=default_b, *, c): self.__dict__.update(a=a, b=b, c=c)``, compiled."""
    known: dict[str, Any] = {"MISSING": dataclasses.MISSING}
    ordered, named, values = ["self"], ["*"], []
    for field in dataclasses.fields(made):
        name, parameter, value = field.name, field.name, field.name
        if field.default_factory is not dataclasses.MISSING:
            known[f"make_{name}"] = field.default_factory
            parameter, value = f"{name}=MISSING", f"make_{name}() if {name} is MISSING else {name}"
        elif field.default is not dataclasses.MISSING:
            known[f"default_{name}"] = field.default
            parameter = f"{name}=default_{name}"
        (named if field.kw_only else ordered).append(parameter)
        values.append(f"{name}={value}")
    parameters = ", ".join(ordered + named if len(named) > 1 else ordered)
    after = "; self.__post_init__()" if hasattr(made, "__post_init__") else ""
    exec(f"def __init__({parameters}): self.__dict__.update({', '.join(values)}){after}", known)  # noqa: S102
    known["__init__"].__qualname__ = f"{made.__qualname__}.__init__"  # as a TypeError names it
    return known["__init__"]


def _set(self: Any, name: str, _value: Any) -> None:  # noqa: ARG001 (as Python calls it)
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


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
    "__setattr__": _set,
    "__delattr__": _keep,
    "__eq__": _equal,
    "__hash__": _hash,
    "__repr__": _repr,
}
