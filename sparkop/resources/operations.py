"""Operations: one effect on one node each. Resources plan them (pure) and perform them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from typing import Any

from sparkop.records import dataclass

DO = "; do: "
"""Between what is wrong and what to do, on one line."""


class Action(StrEnum):
    """The verbs of a plan."""

    CREATE = "create"
    UPDATE = "update"
    REMOVE = "remove"
    START = "start"
    DOWNLOAD = "download"
    COPY = "copy"
    PULL = "pull"
    BUILD = "build"
    WAIT = "wait"
    RECORD = "record"


@dataclass(frozen=True)
class Cause:
    """Why: ``field`` is ``observed`` but should be ``desired``. Never a secret."""

    field: str
    observed: str
    desired: str

    @property
    def told(self) -> str:
        """``field: observed -> desired``, wherever a cause is shown or remembered."""
        return f"{self.field}: {self.observed} -> {self.desired}"

    def told_of(self, resource: str) -> str:
        """The same where the resource stands before it: a field of that name is not said again."""
        again = self.field in (kind_of(resource), resource.rpartition("/")[2])
        return f"{self.observed} -> {self.desired}" if again else self.told


def kind_of(resource: str) -> str:
    """``rank`` of ``rank/1``."""
    return resource.partition("/")[0]


class Origin(StrEnum):
    """Where a difference comes from."""

    NEW = "new"
    """It was never there."""
    SPEC = "spec"
    """The spec was changed since."""
    FILES = "files"
    """The files of the build context were changed since."""
    SPARKOP = "sparkop"
    """The spec is the same: this sparkop makes it of it otherwise than the one before."""
    DRIFT = "drift"
    """The spec is the same: the world has changed."""


@dataclass(frozen=True)
class Cost:
    """What an operation takes."""

    bytes: int = 0
    seconds: float | None = 0.0
    """None: nobody has measured it yet, or it is ``late``."""
    stops_serving: bool = False
    late: bool = False
    """It goes on already, for longer than the last time took."""


@dataclass(frozen=True)
class Operation:
    """One effect on one node."""

    action: Action
    node: str
    resource: str
    """Kind and, after a slash, which one: ``image``, ``weights``, ``rank/1``."""
    cause: Cause
    cost: Cost = Cost()
    needs: tuple[str, ...] = ()
    """Keys of operations that must have succeeded before."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """What the performer needs beside the desired state. JSON, never a secret."""
    origin: Origin | None = None
    """None where it can't be told: only what carries labels remembers the spec that it was made from."""

    @property
    def key(self) -> str:
        """Unique in a plan."""
        return f"{self.action}:{self.resource}@{self.node}"

    @property
    def source(self) -> str:
        """The other node that it takes something from, and writes on for that; empty: none."""
        return str(self.parameters.get("from") or self.parameters.get("shared") or "")


@dataclass(frozen=True)
class Unknown:
    """What could not be read on a node, and why. Nothing that depends on it is planned."""

    node: str
    reason: str
    resource: str | None = None
    remedy: str | None = None

    @property
    def told(self) -> str:
        """Both, on one line."""
        return with_remedy(self.reason, self.remedy)


def folded(unknown: Sequence[Unknown]) -> tuple[Unknown, ...]:
    """What one cause hides on a node as one: a silent Docker looks like four faults otherwise."""
    same: dict[tuple[str, str], list[Unknown]] = {}
    for each in unknown:
        same.setdefault((each.node, each.reason), []).append(each)
    return tuple(map(_as_one, same.values()))


def _as_one(same: Sequence[Unknown]) -> Unknown:
    first = same[0]
    others = dict.fromkeys(each.resource or "node" for each in same if each.resource != first.resource)
    remedy = next((each.remedy for each in same if each.remedy), None)
    return replace(first, reason=hiding(first.reason, tuple(others)), remedy=remedy)


def hiding(reason: str, kinds: Sequence[str]) -> str:
    """The reason, and which other kinds are not known because of it."""
    return f"{reason} (so not known either: {', '.join(kinds)})" if kinds else reason


def with_remedy(reason: str, remedy: str | None) -> str:
    """One text of both. The remedy ends it: what is copied to the line's end can be typed as it is."""
    return f"{reason}{DO}{remedy}" if remedy else reason


@dataclass(frozen=True)
class Blocker:
    """A difference that sparkop can't mend: a human must act."""

    node: str
    resource: str
    cause: Cause
    remedy: str
