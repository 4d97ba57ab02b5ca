"""One suite for every kind of host: what the reconciler is tested with behaves as the real ones do."""

from __future__ import annotations

import io
import itertools
import json
import tarfile
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sparkop.errors import BlockedError, LeaseHeldError
from sparkop.hosts.base import ContainerOptions, ContainerSpec, Fence, Host
from sparkop.hosts.connect import Target, connect_all
from sparkop.hosts.document import Document, parse_document
from sparkop.hosts.obstacle import obstacle
from sparkop.hosts.simulated import SimulatedHost
from sparkop.hosts.simulated_node import SimulatedContainer, SimulatedImage, SimulatedNode, World
from sparkop.hosts.streams import Stream
from sparkop.lab.lab import Lab
from sparkop.resources.guard import program
from tests.labkit import busybox, until

IMAGE = "registry.lab:5000/test/busybox"
_numbers = itertools.count(1)


@dataclass
class Node:
    """One node as two controllers see it."""

    host: Host
    other: Host
    fence: Fence
    api: int = 0

    def take(self) -> Fence:
        """Acquire the lease."""
        self.host.act("lease.acquire", {"expected": None}, self.fence)
        return self.fence

    def rival(self, token: int = 0) -> Fence:
        """Another holder."""
        return replace(self.fence, holder="rival", token=token or self.fence.token + 1)

    def look(self, **request: Any) -> Document:
        return parse_document(self.host.probe({"state": self.fence.directory, **request}))


def _fence(directory: str) -> Fence:
    return Fence(f"contract{next(_numbers)}", "me", 1, directory)


def _put(node: Node, path: str, content: bytes, **more: Any) -> dict[str, Any]:
    arguments = {"path": path, "content": b64encode(content).decode(), **more}
    return node.host.act("file.write", arguments, node.fence)


def _serve(method: str, path: str, headers: Any, body: bytes | None) -> tuple[int, list[bytes]]:
    if method == "GET":
        return 200, [f"{path} {headers.get('Authorization')}".encode()]
    return 200, [b"first " + (body or b"") + b"\n", b"second\r\n", b"last\n"]


def _echo(_node: SimulatedNode, container: SimulatedContainer) -> None:
    container.log.append(b"hello from the container")


def _simulated(_request: pytest.FixtureRequest) -> Node:
    node = World(clock=time.time, on_start=_echo).add("node")
    node.images[IMAGE] = SimulatedImage("sha256:0", labels={})
    node.services[8000] = _serve
    return Node(SimulatedHost(node), SimulatedHost(node), _fence("~/.sparkop/contract"), 8000)


def _host(target: Target) -> Host:
    return connect_all([target], writable=True)[target.name]


def _local(request: pytest.FixtureRequest) -> Node:
    folder: Path = request.getfixturevalue("short_folder")
    api = request.getfixturevalue("api")
    there = Target("node", "local", local=True)
    hosts = (_host(there), _host(there))
    return Node(*hosts, _fence(str(folder / "state")), api)


def _ssh(request: pytest.FixtureRequest) -> Node:
    there = request.getfixturevalue("shared_sshd").target()
    folder: Path = request.getfixturevalue("short_folder")
    api = request.getfixturevalue("api")
    hosts = (_host(there), _host(there))
    return Node(*hosts, _fence(str(folder / "state")), api)


def _lab(request: pytest.FixtureRequest) -> Node:
    lab: Lab = request.getfixturevalue("inside_lab")
    assert busybox(lab, "spark-1") == IMAGE
    there = Target("node", "spark-1.lab")
    hosts = (_host(there), _host(there))
    return Node(*hosts, _fence(f"~/.sparkop/contract{next(_numbers)}"))


@pytest.fixture(params=[_simulated, _local, _ssh], ids=["simulated", "local", "ssh"])
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    """A node without Docker."""
    yield from _closing(request.param, request)


@pytest.fixture(params=[_simulated, pytest.param(_lab, marks=pytest.mark.lab)], ids=["simulated", "lab"])
def engine(request: pytest.FixtureRequest) -> Iterator[Node]:
    """A node with Docker and the image ``IMAGE``."""
    yield from _closing(request.param, request)


def _closing(make: Callable[[pytest.FixtureRequest], Node], request: pytest.FixtureRequest) -> Iterator[Node]:
    made = make(request)
    yield made
    made.host.close()
    made.other.close()


class TestProbe:
    """What is observed."""

    def test_sections_are_read_and_typed(self, node: Node) -> None:
        document = node.look(disk=["~"], ports=[node.api])
        assert document.machine is not None
        assert document.machine.machine_id
        assert document.machine.home.startswith("/")
        assert document.memory is not None
        assert 0 < document.memory.available <= document.memory.total
        assert document.fabric is not None
        assert document.disk is not None
        assert document.disk["~"].free > 0
        assert document.ports is not None
        assert document.ports[str(node.api)].listening

    def test_only_the_sections_asked_for(self, node: Node) -> None:
        answer = node.host.probe({"sections": ["memory"]})
        assert set(answer) == {"version", "nonce", "memory", "errors"}

    def test_state_is_empty_before_and_told_after(self, node: Node) -> None:
        assert node.look().state == {}
        node.take()
        state = node.look().state
        assert state is not None
        assert state["lease.json"]["holder"] == "me"

    def test_files_are_hashed_and_absent_ones_are_null(self, node: Node) -> None:
        node.take()
        _put(node, "a.txt", b"abc", mode=0o640)
        files = node.look(files=["a.txt", "b.txt"]).files
        assert files is not None
        assert files["b.txt"] is None
        assert files["a.txt"] is not None
        assert files["a.txt"].mode == 0o640
        assert files["a.txt"].sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

    def test_read_file(self, node: Node) -> None:
        node.take()
        _put(node, f"{node.fence.directory}/secret", b"\x00binary\n", mode=0o600)
        assert node.host.read_file(f"{node.fence.directory}/secret") == b"\x00binary\n"
        assert node.host.read_file(f"{node.fence.directory}/none") is None


class TestWriting:
    """Acts: idempotent, whole, and their words."""

    def test_a_file_is_written_once(self, node: Node) -> None:
        node.take()
        assert _put(node, "deep/er/a.txt", b"one") == {"changed": True}
        assert _put(node, "deep/er/a.txt", b"one") == {"changed": False}
        assert _put(node, "deep/er/a.txt", b"two") == {"changed": True}
        assert _put(node, "deep/er/a.txt", b"two", mode=0o600) == {"changed": True}
        assert node.host.act("file.remove", {"path": "deep/er/a.txt"}, node.fence) == {"changed": True}
        assert node.host.act("file.remove", {"path": "deep/er/a.txt"}, node.fence) == {"changed": False}

    @pytest.mark.parametrize(
        ("action", "arguments", "name"),
        [
            ("file.write", {"path": "x.json", "content": ""}, "x.json"),
            ("file.write", {"path": "x.json", "content": "", "aside": True}, "x.json"),
            ("key.ensure", {"path": "api_key", "config": {"path": "e", "template": "{key}"}}, "api_key"),
            ("intent.write", {"document": {"stopped": True}}, "intent.json"),
            ("history.append", {"entry": {"id": "e"}}, "history.json"),
        ],
    )
    def test_a_folder_in_place_of_a_file_is_named_and_stays(
        self, node: Node, action: str, arguments: dict[str, Any], name: str
    ) -> None:
        node.take()
        place = f"{node.fence.directory}/{name}"
        node.host.act("directory.ensure", {"path": place}, node.fence)
        with pytest.raises(BlockedError, match=f"/{name} is a folder, it should be a file") as told:
            node.host.act(action, arguments, node.fence)
        assert told.value.node == node.host.name
        assert f"/{name}.aside" in (told.value.remedy or "")
        asked = node.look(files=[name]).errors
        assert obstacle(asked[f"files:{name}"]) is not None
        if name.endswith(".json"):
            assert obstacle(asked[f"state:{name}"]) is not None

    def test_a_file_on_the_way_to_a_path_is_named(self, node: Node) -> None:
        node.take()
        _put(node, "plans", b"a file")
        for path in ("plans/P.json", "plans/deep/er/P.json"):
            with pytest.raises(BlockedError, match=r"/plans is a file, it should be a folder") as told:
                _put(node, path, b"{}")
            assert "/plans.aside" in (told.value.remedy or "")

    def test_the_key_is_made_once_and_never_answered(self, node: Node) -> None:
        node.take()
        config = {"path": "engine.yaml", "template": "api-key: {key}\nother: {}\n"}
        first = node.host.act("key.ensure", {"path": "api_key", "config": config}, node.fence)
        key = (node.host.read_file(f"{node.fence.directory}/api_key") or b"").decode().strip()
        assert len(key) == 64
        assert key not in json.dumps(first)
        assert first == {"changed": True}
        handed = node.host.read_file(f"{node.fence.directory}/engine.yaml")
        assert handed == f"api-key: {key}\nother: {{}}\n".encode()
        again = node.host.act("key.ensure", {"path": "api_key", "config": config}, node.fence)
        assert again == {"changed": False}
        files = node.look(files=["api_key", "engine.yaml"]).files
        assert files is not None
        assert {f.mode for f in files.values() if f} == {0o600}

    def test_an_engine_file_that_was_lost_is_made_of_the_same_key(self, node: Node) -> None:
        node.take()
        config = {"path": "engine.yaml", "template": "{key}"}
        node.host.act("key.ensure", {"path": "api_key", "config": config}, node.fence)
        before = node.host.read_file(f"{node.fence.directory}/engine.yaml")
        node.host.act("file.remove", {"path": "engine.yaml"}, node.fence)
        node.host.act("key.ensure", {"path": "api_key", "config": config}, node.fence)
        assert node.host.read_file(f"{node.fence.directory}/engine.yaml") == before

    def test_intent_and_history(self, node: Node) -> None:
        node.take()
        node.host.act("intent.write", {"document": {"stopped": True}}, node.fence)
        for number in range(4):
            entry = {"id": f"e{number}"}
            assert node.host.act("history.append", {"entry": entry, "limit": 3}, node.fence)["changed"]
        repeated = node.host.act("history.append", {"entry": {"id": "e3"}, "limit": 3}, node.fence)
        assert repeated == {"changed": False}
        state = node.look().state
        assert state is not None
        assert state["intent.json"] == {"stopped": True}
        assert [e["id"] for e in state["history.json"]["entries"]] == ["e1", "e2", "e3"]
        node.host.act("intent.write", {"document": None}, node.fence)
        assert "intent.json" not in (node.look().state or {})

    def test_an_entry_of_the_history_is_replaced_and_taken_back(self, node: Node) -> None:
        node.take()

        def entries() -> list[Any]:
            state = node.look().state
            assert state is not None
            return list(state["history.json"]["entries"])

        first, other, second = {"id": "a", "n": 1}, {"id": "b"}, {"id": "a", "n": 2}
        for entry in (first, other):
            node.host.act("history.append", {"entry": entry, "replace": True}, node.fence)
        assert entries() == [first, other]
        for changed in (True, False):
            done = node.host.act("history.append", {"entry": second, "replace": True}, node.fence)
            assert done == {"changed": changed}
        assert entries() == [other, second]
        for changed in (True, False):
            assert node.host.act("history.drop", {"id": "a"}, node.fence) == {"changed": changed}
        assert entries() == [other]

    def test_of_a_history_that_is_absent_or_damaged_nothing_is_taken_back(self, node: Node) -> None:
        node.take()
        path = f"{node.fence.directory}/history.json"
        assert node.host.act("history.drop", {"id": "a"}, node.fence) == {"changed": False}
        assert node.host.read_file(path) is None
        _put(node, path, b"{")
        assert node.host.act("history.drop", {"id": "a"}, node.fence) == {"changed": False}
        assert node.host.read_file(path) == b"{"

    def test_only_the_state_folder_can_be_removed(self, node: Node) -> None:
        node.take()
        _put(node, "ledger/weights.json", b"{}")
        with pytest.raises(Exception, match="not below the state folder"):
            node.host.act("directory.remove", {"path": "/usr"}, node.fence)
        assert node.host.act("directory.remove", {"path": "ledger"}, node.fence) == {"changed": True}
        assert node.look(files=["ledger/weights.json"]).files == {"ledger/weights.json": None}

    def test_an_unknown_action_is_refused(self, node: Node) -> None:
        node.take()
        with pytest.raises(Exception, match=r"no action file\.eat"):
            node.host.act("file.eat", {}, node.fence)


class TestFence:
    """Exactly one writes."""

    def test_no_lease_no_write(self, node: Node) -> None:
        with pytest.raises(LeaseHeldError):
            _put(node, "a.txt", b"x")
        assert node.look(files=["a.txt"]).files == {"a.txt": None}

    def test_taking_it_twice_is_success(self, node: Node) -> None:
        node.take()
        node.host.act("lease.renew", {}, node.fence)
        again = node.host.act("lease.acquire", {"expected": None}, node.fence)
        assert again["lease"]["heartbeat"] == 1

    def test_a_held_lease_is_refused_and_a_standing_one_changes_hands(self, node: Node) -> None:
        node.take()
        rival = node.rival()
        with pytest.raises(LeaseHeldError, match="writes"):
            node.other.act("lease.acquire", {"expected": None}, rival)
        seen = node.host.act("lease.check", {}, node.fence)["lease"]
        node.host.act("lease.renew", {}, node.fence)
        with pytest.raises(LeaseHeldError):  # the heart beats
            node.other.act("lease.acquire", {"expected": seen}, rival)
        seen = node.host.act("lease.check", {}, node.fence)["lease"]
        node.other.act("lease.acquire", {"expected": seen}, rival)
        with pytest.raises(LeaseHeldError):  # the sleeper wakes up
            _put(node, "a.txt", b"x")
        with pytest.raises(LeaseHeldError):
            node.host.act("lease.renew", {}, node.fence)
        with pytest.raises(LeaseHeldError):  # and may not come back with its old token
            node.host.act("lease.acquire", {"force": True}, node.fence)

    def test_a_released_lease_keeps_its_token(self, node: Node) -> None:
        node.take()
        node.host.act("lease.release", {}, node.fence)
        node.host.act("lease.release", {}, node.fence)
        with pytest.raises(LeaseHeldError):
            _put(node, "a.txt", b"x")
        with pytest.raises(LeaseHeldError):
            node.other.act("lease.acquire", {}, node.rival(token=1))
        assert node.other.act("lease.acquire", {}, node.rival(token=2))["lease"]["epoch"] == 2

    def test_breaking_it_is_explicit(self, node: Node) -> None:
        node.take()
        taken = node.other.act("lease.acquire", {"force": True}, node.rival())
        assert taken["lease"]["holder"] == "rival"

    def test_another_clusters_folder_is_refused(self, node: Node) -> None:
        node.take()
        foreign = replace(node.fence, cluster="foreign", token=9)
        with pytest.raises(LeaseHeldError):
            node.other.act("lease.acquire", {"force": True}, foreign)

    def test_the_holder_hears_who_asks(self, node: Node) -> None:
        node.take()
        node.other.act("lease.ask", {"info": {"command": "apply"}}, node.rival())
        renewed = node.host.act("lease.renew", {}, node.fence)["lease"]
        assert renewed["wanted"] == {"holder": "rival", "info": {"command": "apply"}}


class TestHttp:
    """Services on the node's loopback."""

    def test_get_with_headers(self, node: Node) -> None:
        answer = node.host.http("GET", node.api, "/v1/models", headers={"Authorization": "Bearer x"})
        assert answer.status == 200
        assert answer.read() == b"/v1/models Bearer x"

    def test_lines(self, node: Node) -> None:
        answer = node.host.http("POST", node.api, "/", body=b"hi")
        lines = answer.lines()
        assert [next(lines), next(lines)] == [b"first hi", b"second"]
        answer.close()

    def test_nothing_listens(self, node: Node) -> None:
        with pytest.raises(ConnectionError):
            node.host.http("GET", 9, "/")


def _spec(name: str, *command: str, **labels: str) -> ContainerSpec:
    marks = {"sparkop.cluster": "contract", **labels}
    return ContainerSpec(
        name, IMAGE, marks, command or ("sh", "-c", "echo hello from the container; sleep 600")
    )


def context_of(**files: str) -> bytes:
    """A build context."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for path, text in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return data.getvalue()


class TestContainers:
    """The Docker engine, as the plan uses it."""

    @pytest.fixture
    def name(self, engine: Node) -> Iterator[str]:
        called = f"contract-{next(_numbers)}"
        yield called
        with_lease = replace(engine.fence, holder="cleaner", token=99)
        engine.host.act("lease.acquire", {"force": True}, with_lease)
        engine.host.containers.remove(called, with_lease, grace=0)

    def test_run_is_idempotent_and_observed(self, engine: Node, name: str) -> None:
        engine.take()
        first = engine.host.containers.run(_spec(name), engine.fence)
        assert engine.host.containers.run(_spec(name), engine.fence) == first
        document = engine.look(labels=["sparkop.cluster=contract"], images=[IMAGE, "none:1"])
        found = document.container(name)
        assert found is not None
        assert (found.id, found.state, found.exit_code, found.image) == (first, "running", None, IMAGE)
        assert found.labels["sparkop.cluster"] == "contract"
        assert found.started_at
        assert found.finished_at is None
        assert document.docker is not None
        assert document.docker.images["none:1"] is None
        image = document.docker.images[IMAGE]
        assert image is not None
        assert image.id == found.image_id

    def test_it_is_found_by_name_or_label_only(self, engine: Node, name: str) -> None:
        engine.take()
        engine.host.containers.run(_spec(name, mark=name), engine.fence)
        for request in ({"containers": [name]}, {"labels": [f"mark={name}"]}, {"labels": ["mark"]}):
            assert engine.look(**request).container(name), request
        for request in ({}, {"containers": ["other"]}, {"labels": ["mark=other"]}):
            assert not engine.look(**request).container(name), request

    def test_a_stranger_of_that_name_is_not_taken_for_ours(self, engine: Node, name: str) -> None:
        engine.take()
        engine.host.containers.run(_spec(name, hash="1"), engine.fence)
        with pytest.raises(BlockedError, match="another container"):
            engine.host.containers.run(_spec(name, hash="2"), engine.fence)

    def test_kill_then_remove_each_twice(self, engine: Node, name: str) -> None:
        engine.take()
        containers = engine.host.containers
        containers.run(_spec(name), engine.fence)
        for _ in range(2):
            containers.kill(name, engine.fence)
        found = engine.look(containers=[name]).container(name)
        assert found is not None
        assert (found.state, found.exit_code, found.oom_killed) == ("exited", 137, False)
        assert found.finished_at
        for _ in range(2):
            containers.remove(name, engine.fence, grace=1)
        assert engine.look(containers=[name]).container(name) is None
        containers.kill(name, engine.fence)

    def test_running_it_again_after_it_died_starts_nothing(self, engine: Node, name: str) -> None:
        engine.take()
        first = engine.host.containers.run(_spec(name), engine.fence)
        engine.host.containers.kill(name, engine.fence)
        assert engine.host.containers.run(_spec(name), engine.fence) == first
        found = engine.look(containers=[name]).container(name)
        assert found is not None
        assert found.state == "exited"

    def test_no_image_no_container(self, engine: Node, name: str) -> None:
        engine.take()
        with pytest.raises(BlockedError, match="none:1"):
            engine.host.containers.run(replace(_spec(name), image="none:1"), engine.fence)
        assert engine.look(containers=[name]).container(name) is None

    def test_a_stale_writer_changes_nothing(self, engine: Node, name: str) -> None:
        engine.take()
        engine.host.containers.run(_spec(name), engine.fence)
        engine.other.act("lease.acquire", {"force": True}, engine.rival())
        containers = engine.host.containers
        with pytest.raises(LeaseHeldError):
            containers.kill(name, engine.fence)
        with pytest.raises(LeaseHeldError):
            containers.remove(name, engine.fence, grace=0)
        with pytest.raises(LeaseHeldError):
            containers.run(_spec(f"{name}x"), engine.fence)
        with pytest.raises(LeaseHeldError):
            list(containers.pull(IMAGE, engine.fence))
        found = engine.look(containers=[name, f"{name}x"]).container(name)
        assert found is not None
        assert found.running

    def test_an_image_is_built_from_a_base_with_labels(self, engine: Node, name: str) -> None:
        engine.take()
        tag, arguments = f"sparkop-test/{name}:1", {"BASE": IMAGE}
        files = context_of(Dockerfile="ARG BASE\nFROM ${BASE}\nCOPY note /note\n", note=name)
        build = engine.host.containers.build
        told = list(build(files, tag, arguments=arguments, labels={"a": "b c"}, fence=engine.fence))
        assert any("FROM" in str(item.get("stream")) for item in told)
        assert not any("error" in item for item in told)
        docker = engine.look(images=[tag, IMAGE]).docker
        assert docker is not None
        image, base = docker.images[tag], docker.images[IMAGE]
        assert image is not None
        assert base is not None
        assert image.labels["a"] == "b c"
        assert image.id != base.id
        assert engine.host.act("image.remove", {"reference": tag}, engine.fence)["changed"]

    def test_a_replaced_image_is_found_by_its_label_when_nobody_uses_it(
        self, engine: Node, name: str
    ) -> None:
        engine.take()
        tag = f"sparkop-test/{name}:1"

        def build(note: str) -> str:
            files = context_of(Dockerfile="ARG BASE\nFROM ${BASE}\nCOPY note /note\n", note=note)
            labels = {"of": name}
            list(
                engine.host.containers.build(
                    files, tag, arguments={"BASE": IMAGE}, labels=labels, fence=engine.fence
                )
            )
            docker = engine.look(images=[tag]).docker
            assert docker is not None
            image = docker.images[tag]
            assert image is not None
            return image.id

        def unnamed(of: str = name) -> list[str]:
            docker = engine.look(unnamed=f"of={of}").docker
            assert docker is not None
            return [image.id for image in docker.unnamed if image.id not in docker.in_use]

        def remove(reference: str) -> bool:
            spared = {"reference": reference, "spare": True}
            return bool(engine.host.act("image.remove", spared, engine.fence)["changed"])

        first = build("one")
        engine.host.containers.run(replace(_spec(name), image=tag), engine.fence)
        second = build("two")
        assert second != first
        assert unnamed() == [], "a container uses it"
        docker = engine.look(unnamed=f"of={name}").docker
        assert docker is not None
        assert docker.in_use[first] == name
        assert not remove(first)
        engine.host.containers.remove(name, engine.fence, grace=0)
        assert unnamed() == [first]
        assert unnamed("another") == []
        assert remove(first)
        assert unnamed() == []
        assert remove(tag)

    def test_a_build_that_fails_says_so_and_leaves_no_image(self, engine: Node, name: str) -> None:
        engine.take()
        tag, arguments = f"sparkop-test/{name}:1", {"BASE": "registry.lab:5000/test/none:1"}
        files = context_of(Dockerfile="ARG BASE\nFROM ${BASE}\n")
        build = engine.host.containers.build
        told = list(build(files, tag, arguments=arguments, labels={}, fence=engine.fence))
        assert "none" in told[-1]["error"]
        docker = engine.look(images=[tag]).docker
        assert docker is not None
        assert docker.images[tag] is None

    def test_a_stale_writer_builds_nothing(self, engine: Node, name: str) -> None:
        engine.take()
        engine.other.act("lease.acquire", {"force": True}, engine.rival())
        tag, files = f"sparkop-test/{name}:1", context_of(Dockerfile=f"FROM {IMAGE}\n")
        build = engine.host.containers.build
        with pytest.raises(LeaseHeldError):
            list(build(files, tag, arguments={"BASE": IMAGE}, labels={}, fence=engine.fence))
        docker = engine.look(images=[tag]).docker
        assert docker is not None
        assert docker.images[tag] is None

    def test_a_unit_is_started_once_found_again_and_removed(self, engine: Node, name: str) -> None:
        engine.take()
        folder = engine.fence.directory
        home = engine.look().machine
        assert home is not None
        folder = folder.replace("~", home.home)
        _put(engine, "memguard.pyz", program())
        floors = ["--floor", "2", "--hard-floor", "1", "--soft-floor", "2"]
        argv = [f"{folder}/memguard.pyz", "--cluster", name, *floors, "--state", folder, "--weights", folder]
        wanted = {"name": name, "labels": {"sparkop.cluster": name}, "argv": argv}
        assert engine.look(units=True).units == ()
        assert engine.host.act("unit.start", wanted, engine.fence)["changed"]
        assert not engine.host.act("unit.start", wanted, engine.fence)["changed"]
        [found] = engine.look(units=True).units or ()
        assert (found.name, found.running, found.labels) == (name, True, {"sparkop.cluster": name})
        engine.other.act("lease.acquire", {"force": True}, engine.rival())
        for action in ("unit.remove", "unit.start"):
            with pytest.raises(LeaseHeldError):
                engine.host.act(action, wanted, engine.fence)
        engine.host.act("lease.acquire", {"force": True}, replace(engine.fence, token=3))
        fence = replace(engine.fence, token=3)
        assert engine.host.act("unit.remove", {"name": name, "grace": 2}, fence)["changed"]
        assert not engine.host.act("unit.remove", {"name": name}, fence)["changed"]
        assert engine.look(units=True).units == ()

    def test_logs(self, engine: Node, name: str) -> None:
        engine.take()
        engine.host.containers.run(_spec(name), engine.fence)
        end = time.monotonic() + 10
        while not (lines := list(engine.host.log_lines(name, tail=5))):
            assert time.monotonic() < end
            time.sleep(0.05)
        assert lines == ["hello from the container"]
        kept = engine.host.act("container.logs.keep", {"name": name, "path": "incidents/1/log"}, engine.fence)
        assert kept["bytes"] > 20
        content = engine.host.read_file(f"{engine.fence.directory}/incidents/1/log")
        assert b"hello from the container\n" in (content or b"")

    def test_events_tell_of_a_death(self, engine: Node, name: str) -> None:
        engine.take()
        engine.host.containers.run(_spec(name), engine.fence)
        events = engine.host.containers.events({"label": ["sparkop.cluster=contract"], "event": ["die"]})
        if not isinstance(engine.host, SimulatedHost):
            _follow_then_kill(engine, name, events)
        else:
            engine.host.containers.kill(name, engine.fence)
        event = next(iter(events))
        assert event["Action"] == "die"
        assert event["Actor"]["Attributes"]["name"] == name
        assert event["Actor"]["Attributes"]["exitCode"] == "137"

    def test_streams_that_are_followed_can_be_closed(self, engine: Node, name: str) -> None:
        """A watch of weeks must not leave a thread behind for every stream that it leaves."""
        engine.take()
        engine.host.containers.run(_spec(name), engine.fence)
        events = engine.host.containers.events({"label": ["sparkop.cluster=nobody"]})
        lines = engine.host.log_lines(name, tail=1, follow=True)
        for stream in (events, lines):
            reader = threading.Thread(target=list, args=(stream,), daemon=True)
            reader.start()
            until(lambda: stream.opened or not reader.is_alive())  # noqa: B023 (called before the next turn)
            stream.close()
            reader.join(timeout=5)
            assert not reader.is_alive()
            assert list(stream) == []

    def test_options_reach_the_container(self, engine: Node, name: str) -> None:
        engine.take()
        options = ContainerOptions(restart="unless-stopped", shm_bytes=64 << 20, ulimits={"core": 0})
        engine.host.containers.run(replace(_spec(name), options=options), engine.fence)
        found = engine.look(containers=[name]).container(name)
        assert found is not None
        assert found.restart_policy == "unless-stopped"


def _follow_then_kill(engine: Node, name: str, events: Stream[Any]) -> None:
    """Kill from another thread, once the events are being followed."""

    def kill() -> None:
        until(lambda: events.opened)
        engine.other.containers.kill(name, engine.fence)

    threading.Thread(target=kill, daemon=True).start()
