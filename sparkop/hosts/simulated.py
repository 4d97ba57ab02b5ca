# ruff: noqa: ARG002 (nothing here takes time or is followed, so some parameters of the protocol go unused)
"""A node in memory that behaves as the real ones do (tests/hosts/test_contract.py), for thousands of orders
of events: its clock is injected, and any write can be made to fail before it, after it, or by a lost reply.
"""

from __future__ import annotations

import io
import json
import posixpath
import secrets
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from sparkop.errors import BlockedError, LeaseHeldError, UnreachableError
from sparkop.hosts.base import LOOPBACK, Fence, HttpResponse, Json
from sparkop.hosts.programs import new_nonce, probed_document, raise_act_error
from sparkop.hosts.simulated_docker import SimulatedContainers
from sparkop.hosts.simulated_document import document
from sparkop.hosts.simulated_node import Answer, SimulatedNode, SimulatedUnit
from sparkop.hosts.simulated_transfer import transfer
from sparkop.hosts.streams import Stream
from sparkop.node import container_act, file_act, ground, lease, wire


class SimulatedHost:
    """One controller's way to a simulated node. Several hosts of one node are several controllers."""

    def __init__(self, node: SimulatedNode) -> None:
        self.node = node
        self.world = node.world
        self.containers = SimulatedContainers(self)

    @property
    def name(self) -> str:
        return self.node.name

    def close(self) -> None:
        """Nothing to close."""

    # Reading

    def probe(self, request: Mapping[str, Json], *, timeout: float = 30.0) -> dict[str, Json]:
        with self.world.lock:
            self.reach()
            nonce = new_nonce()
            other = new_nonce() if self.node.answer is Answer.OLD else nonce
            output = io.BytesIO()
            wire.write_answer(output, other, document(self.node, request, other))
        said = output.getvalue()
        half = said[: len(said) // 2] if self.node.answer is Answer.HALF else said
        return probed_document(half, nonce, node=self.name)

    def read_file(self, path: str) -> bytes | None:
        with self.world.lock:
            self.reach()
            found = self.node.files.get(self.node.path(path))
        return found[0] if found else None

    def http(
        self,
        method: str,
        port: int,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout: float = 30.0,
        address: str = LOOPBACK,
    ) -> HttpResponse:
        self.reach()
        service = self.node.services.get(port)
        if service is None:
            raise ConnectionRefusedError(f"nothing listens there on {self.name}")
        status, lines = service(method, path, headers or {}, body)
        return SimulatedResponse(status, lines)

    def log_lines(self, container: str, *, tail: int, follow: bool = False) -> Stream[str]:
        lines = self.containers.logs(container, tail=tail, follow=follow)
        return lines.map(lambda line: line.decode("utf-8", "replace"))

    # Writing

    def act(
        self, action: str, arguments: Mapping[str, Json], fence: Fence, *, timeout: float = 60.0
    ) -> dict[str, Json]:
        self.reach()
        arguments = json.loads(json.dumps(dict(arguments)))
        if action in lease.STEPS:
            return self.write(action, "lease.json", fence, lambda: self._lease(action, arguments, fence))
        steps: dict[str, Callable[[Mapping[str, Any], str], dict[str, Any]]] = {
            "file.write": self._file_write,
            "file.remove": self._file_remove,
            "directory.ensure": self._directory_ensure,
            "directory.remove": self._directory_remove,
            "directory.prune": self._directory_prune,
            "key.ensure": self._key_ensure,
            "intent.write": self._intent_write,
            "history.append": self._history_append,
            "history.drop": self._history_drop,
            "container.logs.keep": self._logs_keep,
            "container.logs.follow": self._logs_follow,
            "image.remove": self._image_remove,
            "weights.remove": self._weights_remove,
            "unit.start": self._unit_start,
            "unit.remove": self._unit_remove,
            "program.run": self._program_run,
        }
        if action not in steps:
            raise_act_error(
                {"error": {"kind": "arguments", "message": f"no action {action}"}}, node=self.name
            )
        if action == "program.run" and arguments["argv"][0] != "start":
            return self._program_run(arguments, fence.directory)  # no effect of its own
        named = (arguments.get(key) for key in ("path", "reference", "name", "directory"))
        target = str(next(filter(None, named), action))
        return self.write(action, target, fence, lambda: steps[action](arguments, fence.directory))

    def reach(self) -> None:
        """Raises UnreachableError when the node is silent."""
        if self.node.answer is Answer.SILENT:
            raise UnreachableError("The node does not answer.", node=self.name, cause="no answer within 10 s")

    def write(
        self, action: str, target: str, fence: Fence, step: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """One effect under the fence, in the world's order of writes."""

        def fenced() -> dict[str, Any]:
            if action not in lease.STEPS:
                self._lease("lease.check", {}, fence)
            return step()

        self.reach()
        if self.node.read_only:
            path = self.node.path(lease.LOCK, fence.directory)
            refusal = f"OSError: [Errno 30] Read-only file system: {path!r}"
            raise_act_error({"error": {"kind": "os", "message": refusal}}, node=self.name)
        return self.world.effect(self.node, action, target, fence, fenced)

    def _lease(self, action: str, arguments: Mapping[str, Any], fence: Fence) -> dict[str, Any]:
        path = self.node.path(posixpath.join(fence.directory, lease.NAME))
        try:
            before = self.node.document_of(path)
            if before is not None and not isinstance(before, dict):
                raise ValueError("no lease")
        except ValueError:
            if not arguments.get("force"):
                raise LeaseHeldError(
                    "Another sparkop writes to this cluster.", node=self.name, cause="lease.json is damaged"
                ) from None
            before = None
        try:
            after = lease.STEPS[action](before, asdict(fence), dict(arguments))
        except lease.LeaseError as error:
            raise_act_error({"error": {"kind": "lease", "message": str(error)}}, node=self.name)
        if after is not None and after != before:
            self._put(path, json.dumps(after, sort_keys=True).encode() + b"\n", 0o600)
        return {"lease": after or {}}

    def _put(self, path: str, content: bytes, mode: int) -> bool:
        misplaced = self.node.misplaced(path)
        if misplaced:
            raise_act_error({"error": {"kind": "os", "message": misplaced}}, node=self.name)
        if self.node.files.get(path) == (content, mode):
            return False
        self.node.files[path] = (content, mode)
        return True

    def _file_write(self, arguments: Mapping[str, Any], state: str) -> dict[str, Any]:
        content = b64decode(arguments["content"])
        path = self.node.path(arguments["path"], state)
        if arguments.get("aside"):
            self._aside(path, content)
        return {"changed": self._put(path, content, arguments.get("mode", 0o644))}

    def _aside(self, path: str, unless: bytes | None = None) -> bool:
        found = self.node.files.get(path)
        if found is None or found[0] == unless:
            return False
        self.node.files[f"{path}.damaged-{self.world.clock():.0f}"] = self.node.files.pop(path)
        return True

    def _file_remove(self, arguments: Mapping[str, Any], state: str) -> dict[str, Any]:
        path = self.node.path(arguments["path"], state)
        if arguments.get("aside"):
            return {"changed": self._aside(path)}
        removed = self.node.files.pop(path, None)
        return {"changed": removed is not None}

    def _directory_ensure(self, arguments: Mapping[str, Any], state: str) -> dict[str, Any]:
        path = self.node.path(arguments["path"], state)
        known = self.node.folders.get(path)
        mode = arguments.get("mode", known or 0o755)
        self.node.folders[path] = mode
        return {"changed": known != mode}

    def _directory_remove(self, arguments: Mapping[str, Any], state: str) -> dict[str, Any]:
        path, top = self.node.path(arguments["path"], state), self.node.path(state)
        if posixpath.commonpath([path, top]) != top:
            message = f"{path} is not below the state folder"
            raise_act_error({"error": {"kind": "arguments", "message": message}}, node=self.name)
        apart = arguments.get("apart")
        if apart and posixpath.commonpath([self.node.path(apart), path]) == path:
            message = f"{apart} lies within {path}: nothing is removed there"
            raise_act_error({"error": {"kind": "arguments", "message": message}}, node=self.name)
        below = [p for p in (*self.node.files, *self.node.folders) if p == path or p.startswith(path + "/")]
        first = {each: posixpath.relpath(each, path).split("/")[0] for each in below if each != path}
        ours = [self.node.path(each, state) for each in arguments.get("ours") or ()]
        left = ground.foreign(sorted(set(first.values())), ours, top) if path == top else []
        kept = {*(arguments.get("keep") or ()), *left}
        for known in (each for each in below if first.get(each) not in kept):
            self.node.files.pop(known, None)
            self.node.folders.pop(known, None)
        return {"changed": bool(below), **({"left": left} if left else {})}

    def _key_ensure(self, arguments: Mapping[str, Any], state: str) -> dict[str, Any]:
        path = self.node.path(arguments["path"], state)
        key = self.node.files.get(path, (b"", 0))[0].decode().strip()
        made = not key
        key = key or self._key_known(arguments, state) or secrets.token_hex(32)
        self._put(path, key.encode() + b"\n", 0o600)
        handed, config = False, arguments.get("config")
        if config:
            content = config["template"].replace("{key}", key).encode()
            handed = self._put(self.node.path(config["path"], state), content, 0o600)
        return {"changed": made or handed}

    def _key_known(self, arguments: Mapping[str, Any], state: str) -> str | None:
        config, running = arguments["config"], arguments.get("running") or {}
        container = self.node.containers.get(running.get("container", ""))
        mounted = container.mounted.get(running["path"]) if container and container.running else None
        handed = self.node.files.get(self.node.path(config["path"], state), (None, 0))[0]
        template = config["template"].encode()
        return file_act.key_in(mounted, template) or file_act.key_in(handed, template)

    def _intent_write(self, arguments: Mapping[str, Any], state: str) -> dict[str, Any]:
        path = self.node.path("intent.json", state)
        if arguments["document"] is None:
            return {"changed": self.node.files.pop(path, None) is not None}
        content = json.dumps(arguments["document"], sort_keys=True).encode() + b"\n"
        return {"changed": self._put(path, content, 0o644)}

    def _history_append(self, arguments: Mapping[str, Any], state: str) -> dict[str, Any]:
        path = self.node.path("history.json", state)
        entry, damaged = arguments["entry"], False
        found = self.node.files.get(path, (b'{"entries": []}', 0))[0]
        entries = file_act.entries_in(found)
        if entries is None:
            damaged, now = self._aside(path), self.world.clock()
            entries = [{"id": f"damaged-{now:.0f}", "event": "damaged", "at": now, "kept": "aside"}]
        after = file_act.with_entry(entries, entry, bool(arguments.get("replace")))
        if after == entries and not damaged:
            return {"changed": False}
        kept = file_act.newest(after, arguments.get("limit", 200))
        return {"changed": self._put(path, file_act.history_of(kept), 0o600)}

    def _history_drop(self, arguments: Mapping[str, Any], state: str) -> dict[str, Any]:
        path = self.node.path("history.json", state)
        entries = file_act.entries_in(self.node.files.get(path, (b"", 0))[0]) or []
        after = [each for each in entries if not file_act.known_as(each, arguments["id"])]
        return {"changed": after != entries and self._put(path, file_act.history_of(after), 0o600)}

    def _directory_prune(self, arguments: Mapping[str, Any], state: str) -> dict[str, Any]:
        folder = self.node.path(arguments["path"], state) + "/"
        numbers = sorted(
            {int(path[len(folder) :].partition("/")[0].rpartition("-")[2]) for path in self.node.files
             if path.startswith(folder)},
            reverse=True,
        )  # fmt: skip
        old = tuple(f"-{number}/" for number in numbers[arguments["keep"] :])
        gone = [p for p in self.node.files if p.startswith(folder) and any(each in p for each in old)]
        for path in gone:
            del self.node.files[path]
        return {"changed": bool(gone)}

    def _logs_keep(self, arguments: Mapping[str, Any], state: str) -> dict[str, Any]:
        container = self.node.containers.get(arguments["name"])
        if container is None:
            return {"bytes": 0}
        text = b"".join(line + b"\n" for line in container.log[-arguments.get("tail", 10000) :])
        text = container_act.masked(text, dict(arguments))
        self._put(self.node.path(arguments["path"], state), text, 0o600)
        return {"bytes": len(text)}

    def _unit_start(self, arguments: Mapping[str, Any], _: str) -> dict[str, Any]:
        found = self.node.units.get(arguments["name"])
        if found is not None and found.state != "exited":
            return {"changed": False}
        made = SimulatedUnit(arguments["labels"], arguments["argv"], started_at=self.world.clock())
        self.node.units[arguments["name"]] = made
        return {"changed": True}

    def _unit_remove(self, arguments: Mapping[str, Any], _: str) -> dict[str, Any]:
        return {"changed": self.node.units.pop(arguments["name"], None) is not None}

    def _program_run(self, arguments: Mapping[str, Any], state: str) -> dict[str, Any]:
        """The transfer program, of which nodes in memory know images only."""
        answer, status = transfer(self.node, arguments["argv"][0], json.loads(arguments["input"]))
        if status:
            self._put(self.node.path("image.json", state), json.dumps(status).encode(), 0o644)
        return {"exit": 0, "output": json.dumps(answer), "said": ""}

    def _logs_follow(self, arguments: Mapping[str, Any], state: str) -> dict[str, Any]:
        container = self.node.containers.get(arguments["name"])
        if container is None:
            raise BlockedError(f"there is no container {arguments['name']}", node=self.name)
        record = {"version": 1, "container": container.id, "file": arguments["file"]}
        content = json.dumps(record).encode() + b"\n"
        changed = self._put(self.node.path("logs.json", state), content, 0o644) or self.node.follower_killed
        self.node.follower_killed = False
        return {"changed": changed}

    def _weights_remove(self, arguments: Mapping[str, Any], _: str) -> dict[str, Any]:
        going = self.node.leaving(arguments)
        for path in going:
            del self.node.checkpoint[path]
        return {"changed": bool(going)}

    def _image_remove(self, arguments: Mapping[str, Any], _: str) -> dict[str, Any]:
        reference = arguments["reference"]
        image = self.node.images.get(reference)
        used = image is not None and any(c.image_id == image.id for c in self.node.containers.values())
        if image is None or (used and arguments.get("spare")):
            return {"changed": False}
        del self.node.images[reference]
        return {"changed": True}


class SimulatedResponse:
    """The answer of a simulated service."""

    def __init__(self, status: int, lines: Iterable[bytes]) -> None:
        self.status = status
        self._lines = iter(lines)

    def read(self) -> bytes:
        return b"".join(self._lines)

    def lines(self) -> Iterator[bytes]:
        for line in self._lines:
            yield line.rstrip(b"\r\n")

    def close(self) -> None:
        self._lines = iter(())
