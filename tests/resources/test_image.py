"""Progress of a pull, and what a registry's refusal means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sparkop.errors import BlockedError
from sparkop.resources.image import resource as image
from sparkop.resources.image.resource import pull_progress


def pulled(monkeypatch: pytest.MonkeyPatch, *items: Any) -> list[tuple[str, int, int, float]]:
    """All progress of a pull; every item is told."""
    monkeypatch.setattr(image, "TOLD_EVERY", 0.0)
    stream: Iterator[Any] = iter(items)
    return list(pull_progress(stream, node="spark-1", reference="x/y@sha256:00"))


def layer(name: str, status: str, current: int = 0, total: int = 0) -> dict[str, Any]:
    detail = {"current": current, "total": total} if total else {}
    return {"id": name, "status": status, "progressDetail": detail}


def test_bytes_are_summed_over_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """And never go back when a layer is done and its detail is empty."""
    told = pulled(
        monkeypatch,
        {"status": "Pulling from x/y"},
        layer("a", "Downloading", 10, 100),
        layer("b", "Downloading", 50, 50),
        layer("a", "Downloading", 60, 100),
        layer("a", "Download complete"),
        layer("a", "Extracting", 5, 300),
        layer("a", "Pull complete"),
    )
    assert [(done, total) for _, done, total, _ in told] == [
        (0, 0), (10, 100), (60, 150), (110, 150), (150, 150), (150, 150), (150, 150),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ("write /var/lib/docker/tmp: no space left on device", "full"),
        ("unauthorized: authentication required", "login"),
        ("manifest for x/y@sha256:00 not found: manifest unknown", "no such image"),
        ("dial tcp: lookup registry.example: no such host", "not reachable"),
    ],
)
def test_a_refusal_is_told_with_its_cause(monkeypatch: pytest.MonkeyPatch, said: str, means: str) -> None:
    """In the middle of a stream that began well."""
    with pytest.raises(BlockedError) as caught:
        pulled(
            monkeypatch, layer("a", "Downloading", 1, 2), {"error": said, "errorDetail": {"message": said}}
        )
    assert means in (caught.value.cause or "")
    assert caught.value.detail == said
    assert caught.value.remedy


def test_strange_items_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine of another version must not end a pull of hours."""
    assert pulled(monkeypatch, None, [], {"status": "Downloading", "progressDetail": None}) != []


def test_an_engine_that_refuses_before_a_pull_begins_is_explained_too() -> None:
    """ "The node could not do it" alone leaves a person without a next step."""

    class Containers:
        def pull(self, _reference: str, _fence: object) -> object:
            raise BlockedError('The node could not do it: Docker: Get "https://registry.example/v2/": lookup')

    class Node:
        containers = Containers()

    class Context:
        def host(self, _node: str) -> Node:
            return Node()

        def fence(self, _node: str) -> None: ...

    with pytest.raises(BlockedError) as caught:
        image._pull(Context(), "spark-1", "base:1")  # type: ignore[arg-type]
    assert caught.value.node == "spark-1"
    assert caught.value.cause == "the registry is not reachable from the node"
    assert caught.value.remedy == "there: docker pull base:1"
    assert "registry.example" in (caught.value.detail or "")
