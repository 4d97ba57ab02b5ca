"""The stamp on a container: what changes it, what must not, and what it tells of a change."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkop.hosts.base import ContainerOptions, ContainerSpec, Mount
from sparkop.resources.stamped import (
    SHORT,
    changed_field,
    environment_of,
    hash_of,
    normalised,
    ports_of,
    same,
    text_of,
)
from sparkop.spec.hashing import KNOWN_VERSIONS, desired_hash

BASE = ContainerSpec(
    name="x-r0",
    image="registry.example/engine@sha256:" + "ab" * 32,
    labels={},
    arguments=("/model", "--max-model-len", "32768", "--enable-prefix-caching"),
    environment={"NCCL_IB_HCA": "a,b", "NCCL_IB_GID_INDEX": "3", "OMP_NUM_THREADS": "16"},
    mounts=(Mount("/home/spark/models", "/model", True), Mount("/home/spark/cache", "/cache")),
    options=ContainerOptions(ipc="host", gpus=True, ulimits={"memlock": -1, "nofile": 5}),
)


def changed(**fields: object) -> ContainerSpec:
    return replace(BASE, **fields)  # type: ignore[arg-type]


def told(container: ContainerSpec) -> tuple[str, str, str] | None:
    return changed_field(text_of(BASE), text_of(container))


def test_labels_and_order_that_means_nothing_are_no_change() -> None:
    """An epoch in a label, or a mapping in another order, must not restart a group."""
    other = changed(
        labels={"sparkop.epoch": "9"},
        environment=dict(reversed(list((BASE.environment or {}).items()))),
        mounts=tuple(reversed(BASE.mounts)),
        options=replace(BASE.options or ContainerOptions(), ulimits={"nofile": 5, "memlock": -1}),
    )
    assert hash_of(other) == hash_of(BASE)
    assert same(other, hash_of(BASE))


def test_a_field_at_its_default_is_no_part_of_the_hash() -> None:
    """A newer sparkop adds fields to ContainerOptions; what an older one started must still match."""
    assert "cpuset" not in normalised(BASE)["options"]
    assert normalised(changed(options=None))["options"] == {}


def test_the_order_of_arguments_means_something() -> None:
    """The last of two wins in both engines."""
    other = changed(arguments=("/model", "--enable-prefix-caching", "--max-model-len", "32768"))
    assert hash_of(other) != hash_of(BASE)
    assert told(other) == ("arguments", "another order", "the order of the spec")


def test_what_changed_is_named() -> None:
    """A diff that says only `hash` helps nobody."""
    arguments = list(BASE.arguments)
    arguments[2] = "16384"
    assert told(changed(arguments=tuple(arguments))) == ("--max-model-len", "32768", "16384")
    assert told(changed(arguments=(*BASE.arguments, "--headless"))) == ("--headless", "none", "set")
    assert told(changed(arguments=BASE.arguments[:-1])) == ("--enable-prefix-caching", "set", "none")
    environment = {**(BASE.environment or {}), "OMP_NUM_THREADS": "8"}
    assert told(changed(environment=environment)) == ("environment.OMP_NUM_THREADS", "16", "8")
    image = BASE.image.replace("ab" * 32, "cd" * 32)
    assert told(changed(image=image)) == ("image", "sha256:abababababab", "sha256:cdcdcdcdcdcd")
    options = replace(BASE.options or ContainerOptions(), shm_bytes=64)
    assert told(changed(options=options)) == ("options.shm_bytes", "none", "64")


def test_what_cannot_be_read_tells_nothing() -> None:
    """A label of an older or newer sparkop, or none."""
    for text in ("", "no json", "[]"):
        assert changed_field(text, text_of(BASE)) is None


def test_the_environment_is_read_back_without_what_is_hidden() -> None:
    text = text_of(changed(environment={"NCCL_IB_HCA": "a,b", "MINE": "x"}), frozenset({"MINE"}))
    assert environment_of(text) == {"NCCL_IB_HCA": "a,b"}
    for damaged in ("no json", "[]", "{}", '{"environment": []}', '{"environment": null}'):
        assert environment_of(damaged) == {}


def test_every_form_that_can_be_stamped_can_be_made() -> None:
    """A version without its form would restart what carries it; an unknown one is told, not guessed."""
    for version in KNOWN_VERSIONS:
        assert same(BASE, desired_hash(normalised(BASE, version), version))
    with pytest.raises(ValueError, match="unknown version"):
        normalised(BASE, 999)
    assert not same(BASE, hash_of(BASE).replace("v1:", "v999:"))


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_any_environment_survives_the_label(environment: dict[str, str]) -> None:
    """Quotes, line breaks and other scripts: the label is JSON in one line."""
    text = text_of(changed(environment=environment))
    assert "\n" not in text
    assert json.loads(text)["environment"] == environment


def test_a_mount_that_differs_is_named_by_its_target() -> None:
    """A list of all mounts, cut off before the difference, told nothing."""
    moved = replace(BASE, mounts=(BASE.mounts[0], Mount("/mnt/other", "/cache")))
    assert changed_field(text_of(BASE), text_of(moved)) == (
        "mounts./cache",
        "/home/spark/cache rw",
        "/mnt/other rw",
    )
    fewer = replace(BASE, mounts=(BASE.mounts[0],))
    assert changed_field(text_of(BASE), text_of(fewer)) == ("mounts./cache", "/home/spark/cache rw", "none")


@pytest.mark.parametrize("place", ["mounts", "arguments", "image", "options"])
def test_long_values_that_differ_at_their_end_are_told_apart(place: str) -> None:
    """Both sides cut to the same text told nothing."""
    long = "/srv/" + "folder/" * 20
    made = {
        "mounts": lambda end: changed(mounts=(Mount(long + end, "/cache"),)),
        "arguments": lambda end: changed(arguments=("--model", long + end)),
        "image": lambda end: changed(image="registry.example/" + long + "engine:" + end),
        "options": lambda end: changed(options=ContainerOptions(network=long + end)),
    }[place]
    found = changed_field(text_of(made("one")), text_of(made("two")))
    assert found is not None
    assert found[1] != found[2]
    assert "one" in found[1]
    assert "two" in found[2]
    assert max(map(len, found[1:])) <= SHORT


@pytest.mark.parametrize(
    ("words", "ports"),
    [
        (("serve", "--port", "8000", "--master-port=29501", "--max-model-len", "8050"), {8000, 29501}),
        (("--port", "8000", "--dist-init-addr", "192.168.100.10:20000"), {8000, 20000}),
        (("--model", "/m"), set()),
    ],
)
def test_the_ports_that_a_rank_listens_on_are_told_by_its_label(
    words: tuple[str, ...], ports: set[int]
) -> None:
    """Other ports of the spec are not its own: whoever holds them stays when the rank is gone."""
    assert ports_of(text_of(changed(arguments=words))) == ports


def test_a_label_that_makes_no_sense_tells_no_ports() -> None:
    """Then nobody is said to hold one."""
    assert ports_of("{") is None
    assert ports_of("{}") is None
