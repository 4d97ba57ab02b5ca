# ruff: noqa: ARG002 (nothing here takes time or is followed, so some parameters of the protocol go unused)
"""The Docker engine of a node in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, Protocol

from sparkop.errors import BlockedError
from sparkop.hosts.base import ContainerSpec, Fence, Json
from sparkop.hosts.silent_docker import silent_engine
from sparkop.hosts.simulated_node import SimulatedContainer, SimulatedImage, SimulatedNode, sha256
from sparkop.hosts.streams import Stream
from sparkop.node import engine, wire


class _Way(Protocol):
    """The controller's way to the node (SimulatedHost)."""

    node: SimulatedNode

    def reach(self) -> None: ...

    def write(
        self, action: str, target: str, fence: Fence, step: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]: ...


class SimulatedContainers:
    """The Docker engine of a simulated node."""

    def __init__(self, host: _Way) -> None:
        self._host = host
        self._node = host.node

    def run(self, spec: ContainerSpec, fence: Fence) -> str:
        result = self._host.write("container.run", spec.name, fence, lambda: self._run(spec))
        return str(result["id"])

    def _run(self, spec: ContainerSpec) -> dict[str, Any]:
        self._engine()
        found = self._node.containers.get(spec.name)
        if found is not None:
            if any(found.spec.labels.get(key) != value for key, value in spec.labels.items()):
                self._fail(f"another container is called {spec.name}")
            if found.state == "created":
                self._node.start(found)
            return {"id": found.id}
        image = self._node.images.get(spec.image)
        if image is None:
            self._fail(f"No such image: {spec.image}")
        self._node.created += 1
        identity = sha256(f"{self._node.name} {self._node.created}".encode())
        container = SimulatedContainer(spec, identity, image.id, image_labels=image.labels)
        self._node.containers[spec.name] = container
        self._node.start(container)
        return {"id": container.id}

    def remove(self, name: str, fence: Fence, *, grace: float) -> None:
        self._host.write("container.remove", name, fence, lambda: self._remove(name))

    def _remove(self, name: str) -> dict[str, Any]:
        self._engine()
        container = self._node.containers.pop(name, None)
        if container is not None:
            self._node.tell("destroy", container)
        return {"changed": container is not None}

    def kill(self, name: str, fence: Fence) -> None:
        self._host.write("container.kill", name, fence, lambda: self._kill(name))

    def _kill(self, name: str) -> dict[str, Any]:
        self._engine()
        container = self._node.containers.get(name)
        if container is None or not container.running:
            return {"changed": False}
        container.state, container.exit_code = "exited", 137
        container.finished_at = self._node.world.clock()
        self._node.tell("die", container, exitCode="137")
        return {"changed": True}

    def pull(self, reference: str, fence: Fence) -> Iterator[Json]:
        yield {"status": f"Pulling from {reference}"}

        def step() -> dict[str, Any]:
            self._engine()
            image = self._node.world.registry.get(reference)
            if image is None:
                self._fail(f"manifest for {reference} not found")
            self._node.images[reference] = image
            return {"changed": True}

        self._host.write("image.pull", reference, fence, step)
        yield {"status": f"Status: Downloaded newer image for {reference}"}

    def build(
        self,
        context: bytes,
        tag: str,
        *,
        arguments: Mapping[str, str],
        labels: Mapping[str, str],
        fence: Fence,
    ) -> Iterator[Json]:
        """Every context is taken to build, on the image that the argument BASE names."""
        base = arguments["BASE"]
        yield {"stream": f"Step 1/1 : FROM {base}"}
        here = {*self._node.images, *map(wire.standin, self._node.images)}
        if base not in here and base not in self._node.world.registry:
            yield {"error": f"manifest for {base} not found"}
            return

        def step() -> dict[str, Any]:
            self._engine()
            content = sha256(context + json.dumps([dict(arguments), dict(labels)], sort_keys=True).encode())
            self._name(tag, SimulatedImage(f"sha256:{content}", labels=dict(labels)))
            return {"changed": True}

        self._host.write("image.build", tag, fence, step)
        yield {"stream": f"Successfully tagged {tag}"}

    def _name(self, tag: str, image: SimulatedImage) -> None:
        """The image that had the tag, and no other name, is found by its id alone."""
        images = self._node.images
        before = images.pop(tag, None)
        if before is not None and before not in images.values():
            images[before.id] = before
        images.pop(image.id, None)
        images[tag] = image

    def logs(self, name: str, *, tail: int, follow: bool = False) -> Stream[bytes]:
        return Stream(lambda _: self._logs(name, tail))

    def _logs(self, name: str, tail: int) -> Iterator[bytes]:
        self._host.reach()
        self._engine()
        container = self._node.containers.get(name)
        if container is None:
            self._fail(f"No such container: {name}")
        yield from container.log[-tail:] if tail else []

    def events(self, filters: Mapping[str, Sequence[str]]) -> Stream[Json]:
        return Stream(lambda _: self._events(filters))

    def _events(self, filters: Mapping[str, Sequence[str]]) -> Iterator[Json]:
        self._host.reach()
        self._engine()
        for event in list(self._node.events):
            attributes = event["Actor"]["Attributes"]
            labels = filters.get("label", ())
            actions = filters.get("event", ())
            if all(engine.carries(attributes, label) for label in labels) and (
                not actions or event["Action"] in actions
            ):
                yield event

    def _engine(self) -> None:
        if not self._node.docker_up:
            raise silent_engine("ConnectionRefusedError: Connection refused", node=self._node.name)

    def _fail(self, message: str) -> NoReturn:
        raise BlockedError(f"The node could not do it: {message}", node=self._node.name)
