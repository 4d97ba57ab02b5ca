"""sparkop's dataclasses do what the standard library's do; only their definition costs less."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from functools import cached_property
from typing import Any

import pytest

from sparkop.records import dataclass
from tests.fresh import python

BOTH = pytest.mark.parametrize("decorator", [dataclasses.dataclass, dataclass], ids=["standard", "ours"])
"""Each expectation is checked against the standard library's too: it is the specification."""


def point(decorator: Any) -> Any:
    class Point:
        x: int
        y: list[int] = dataclasses.field(default_factory=list)
        seen: float = dataclasses.field(default=0.0, compare=False, repr=False)

        @cached_property
        def far(self) -> bool:
            return self.x > 9

    Point.__annotations__ = {"x": int, "y": list[int], "seen": float}
    return decorator(frozen=True)(Point)


@BOTH
def test_equality_is_of_the_fields_that_are_compared(decorator: Any) -> None:
    make = point(decorator)
    assert make(1) == make(1, [], 5.0)
    assert make(1) != make(2)
    assert make(1) != (1, [])
    looked = make(1)
    assert not looked.far
    assert looked == make(1), "what is cached is no field"

    class Other(make):  # type: ignore[misc]
        pass

    assert Other(1) != make(1)


@BOTH
def test_equal_ones_have_equal_hashes(decorator: Any) -> None:
    make = point(decorator)
    assert hash(make(1, ())) == hash(make(1, (), 7.0))
    assert len({make(1, ()), make(1, ()), make(2, ())}) == 2
    with pytest.raises(TypeError):
        hash(make(1, []))


@BOTH
def test_frozen_means_frozen(decorator: Any) -> None:
    made = point(decorator)(1)

    def forbidden(action: Callable[[], object]) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            action()

    forbidden(lambda: setattr(made, "x", 2))
    forbidden(lambda: setattr(made, "new", 2))
    forbidden(lambda: delattr(made, "x"))
    assert made.x == 1


@BOTH
def test_it_is_shown_copied_replaced_and_listed(decorator: Any) -> None:
    made = point(decorator)(1, [2])
    assert repr(made).endswith("Point(x=1, y=[2])")
    assert copy.deepcopy(made) == made
    assert dataclasses.replace(made, x=3) == point_like(made, 3)
    assert dataclasses.asdict(made) == {"x": 1, "y": [2], "seen": 0.0}
    assert [field.name for field in dataclasses.fields(made)] == ["x", "y", "seen"]


def point_like(made: Any, x: int) -> Any:
    return type(made)(x, made.y)


@BOTH
def test_what_a_class_defines_itself_stays(decorator: Any) -> None:
    class Named:
        name: str

        def __eq__(self, other: object) -> bool:
            return True

        def __repr__(self) -> str:
            return "me"

    Named.__annotations__ = {"name": str}
    make = decorator(frozen=True)(Named)
    assert make("a") == make("b")
    assert repr(make("a")) == "me"
    assert hash(make("a")) == hash(make("a"))


@BOTH
def test_one_without_fields_and_one_that_is_compared_by_identity(decorator: Any) -> None:
    nothing = decorator(frozen=True)(type("Nothing", (), {}))
    assert nothing() == nothing()
    assert hash(nothing()) == hash(nothing())
    alone = decorator(frozen=True, eq=False)(type("Alone", (), {"__annotations__": {"x": int}}))
    assert alone(1) != alone(1)


@BOTH
def test_a_base_gives_its_fields(decorator: Any) -> None:
    base = decorator(frozen=True)(type("Base", (), {"__annotations__": {"x": int}}))
    child = decorator(frozen=True)(type("Child", (base,), {"__annotations__": {"y": int}}))
    assert child(1, 2) == child(1, 2) != child(1, 3)
    assert repr(child(1, 2)) == "Child(x=1, y=2)"
    assert base(1) != child(1, 2)


@dataclass(frozen=True)
class Kept:
    """For pickle: it finds classes by their name."""

    x: int


def test_it_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Kept(4))) == Kept(4)


@BOTH
def test_what_is_given_to_it_and_what_is_not(decorator: Any) -> None:
    class Given:
        one: int
        two: str = "two"
        many: list[int] = dataclasses.field(default_factory=list)
        last: int = dataclasses.field(default=4, kw_only=True)

        def __post_init__(self) -> None:
            if self.one < 0:
                raise ValueError("less than nothing")

    Given.__annotations__ = {"one": int, "two": str, "many": list[int], "last": int}
    make = decorator(frozen=True)(Given)
    assert dataclasses.astuple(make(1)) == (1, "two", [], 4)
    assert dataclasses.astuple(make(1, many=[2], last=3)) == (1, "two", [2], 3)
    assert make(1).many is not make(1).many
    for wrong in (lambda: make(), lambda: make(1, "two", [], 4), lambda: make(1, other=2)):
        with pytest.raises(TypeError, match="__init__"):
            wrong()
    with pytest.raises(ValueError, match="less than nothing"):
        make(-1)


@BOTH
def test_an_init_of_its_own_stays_and_a_plain_heir_has_its_base_s(decorator: Any) -> None:
    class Own:
        x: int

        def __init__(self) -> None:
            self.__dict__["x"] = 7

    Own.__annotations__ = {"x": int}
    assert decorator(frozen=True)(Own)().x == 7
    base = decorator(frozen=True)(type("Base", (), {"__annotations__": {"x": int}}))
    heir = type("Heir", (base,), {})
    assert (heir(1).x, base(2).x, heir(3).x) == (1, 2, 3)  # type: ignore[attr-defined]


def test_a_method_is_compiled_when_the_first_object_is_made() -> None:
    """Not six when the class is: a third of a cold diff was that."""
    program = (
        "import dataclasses; made = []; create = dataclasses._create_fn\n"
        "dataclasses._create_fn = lambda name, *a, **k: (made.append(name), create(name, *a, **k))[1]\n"
        "import sparkop.records as records; init = records._init\n"
        "records._init = lambda of: (made.append(of.__name__), init(of))[1]\n"
        "A = records.dataclass(frozen=True)(type('A', (), {'__annotations__': {'x': int}})); print(made)\n"
        "print(A(1), A(2), made)"
    )
    assert python(program) == ["[]", "A(x=1) A(x=2) ['A']"]
