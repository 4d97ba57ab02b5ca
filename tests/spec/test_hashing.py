"""The desired-state hash: recorded values, what it ignores and what it does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import pytest

from sparkop.hosts.base import ContainerOptions, ContainerSpec, Mount
from sparkop.spec.hashing import KNOWN_VERSIONS, canonical_json, desired_hash, matches
from sparkop.spec.memory import MemoryGuardSpec
from sparkop.spec.quantities import ByteSize, Duration


class _Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class _Part:
    name: str
    size: ByteSize
    extra: str | None = None


@dataclass(frozen=True)
class _Whole:
    parts: tuple[_Part, ...]
    tags: frozenset[str] = frozenset()
    words: dict[str, str] = field(default_factory=dict)


_CONTAINER = ContainerSpec(
    name="sparks-r0",
    image="ghcr.io/owner/engine@sha256:" + "0" * 64,
    labels={},
    arguments=("/model", "--port", "8000"),
    environment={"NCCL_DEBUG": "WARN", "A": "ü"},
    mounts=(Mount("/home/you/models/model", "/model", read_only=True),),
    options=ContainerOptions(ipc="host", gpus=True, shm_bytes=32 << 30, ulimits={"memlock": -1}),
)


def test_recorded_hashes() -> None:
    """These values are on running containers. A change here restarts every cluster: it needs a version 2."""
    recorded = {
        "empty": ({}, "v1:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"),
        "container": (_CONTAINER, "v1:12141cb677e345ea7f324c9014ddf085d6052a917e8c562b5ad58a869af417d4"),
        "guard": (MemoryGuardSpec(), "v1:a49cceff6385694a33d9e34d73449f5ecca2cf4b404e7e559aa566869412a46b"),
        "numbers": (
            [1, 1.0, 0.1, 10**20, True, None, "x"],
            "v1:83f44e3325880d6703eeb668d18688acfa639b9ae83e0865770be9659ed3a0b6",
        ),
    }
    assert {name: desired_hash(value) for name, (value, _) in recorded.items()} == {
        name: expected for name, (_, expected) in recorded.items()
    }


def test_canonical_form() -> None:
    value = _Whole(
        (_Part("b", ByteSize(1024)), _Part("a", ByteSize(1), "x")), frozenset({"z", "y"}), {"k": "v"}
    )
    assert canonical_json(value) == (
        b'{"parts":[{"name":"b","size":1024},{"extra":"x","name":"a","size":1}],'
        b'"tags":["y","z"],"words":{"k":"v"}}'
    )
    assert canonical_json({"c": _Colour.RED, "t": Duration(90.0), "f": Duration(0.25)}) == (
        b'{"c":"red","f":0.25,"t":90}'
    )
    assert canonical_json("ü\n") == '"ü\\n"'.encode()


def test_a_new_optional_field_changes_no_hash() -> None:
    """A newer sparkop with one more field, unset, must not restart an older one's group."""
    assert desired_hash({"a": 1}) == desired_hash({"a": 1, "b": None})
    assert desired_hash({"x": 1, "y": 2}) == desired_hash({"y": 2, "x": 1})


def test_what_does_change_it() -> None:
    values = [{"a": 1}, {"a": 2}, {"a": "1"}, {"a": True}, {"b": 1}, {"a": [1, 2]}, {"a": [2, 1]}, {"a": ""}]
    assert len({desired_hash(value) for value in values}) == len(values)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1: "a"}, b"x"])
def test_what_is_no_data_is_refused(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        canonical_json({"value": value})


def test_stamps_of_other_versions() -> None:
    """The stamp names the version to compare by; one of a newer sparkop is not taken for equal."""
    stamp = desired_hash({"a": 1})
    assert matches({"a": 1}, stamp)
    assert not matches({"a": 2}, stamp)
    assert not matches({"a": 1}, None)
    assert not matches({"a": 1}, stamp.replace("v1:", "v99:"))
    assert not matches({"a": 1}, stamp.removeprefix("v1:"))
    with pytest.raises(ValueError, match="unknown version"):
        desired_hash({}, max(KNOWN_VERSIONS) + 1)
