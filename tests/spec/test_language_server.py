"""The committed schema in the real yaml-language-server, from npm: completion, hover, errors in an editor."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

import pytest

from tests import npm
from tests.spec.samples import MINIMAL

SERVER = "yaml-language-server@1.19.2"
"""The last version for Node.js 18 and 20 too."""
SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "schema" / "clusterspec.schema.json"
SECONDS = 30.0


class LanguageServer:
    """JSON-RPC over stdin and stdout, as editors speak it."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.messages: Queue[dict[str, Any]] = Queue()
        self.kept: list[dict[str, Any]] = []
        self.number = 0
        Thread(target=self._read, daemon=True).start()
        self.ask("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
        self.tell("initialized", {})
        yaml = {"completion": True, "hover": True, "validate": True, "schemaStore": {"enable": False}}
        self.tell("workspace/didChangeConfiguration", {"settings": {"yaml": yaml}})

    def tell(self, method: str, params: Any) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def ask(self, method: str, params: Any) -> Any:
        self.number += 1
        self._send({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        return self.wait(lambda message: message.get("id") == self.number and "method" not in message)[
            "result"
        ]

    def wait(self, wanted: Any) -> dict[str, Any]:
        """The first message that fits; questions of the server are answered with nothing on the way."""
        for message in list(self.kept):
            if wanted(message):
                self.kept.remove(message)
                return message
        while True:
            try:
                message = self.messages.get(timeout=SECONDS)
            except Empty:
                raise AssertionError(f"yaml-language-server was silent for {SECONDS:.0f} s") from None
            if "method" in message and "id" in message:
                self._send({"jsonrpc": "2.0", "id": message["id"], "result": None})
            if wanted(message):
                return message
            self.kept.append(message)

    def open(self, name: str, text: str) -> str:
        """Open a document that names the schema as the reference page advises, on a line of its own."""
        text = f"# yaml-language-server: $schema={SCHEMA.as_uri()}\n{text}"
        uri = f"file:///specs/{name}"
        document = {"uri": uri, "languageId": "yaml", "version": 1, "text": text}
        self.tell("textDocument/didOpen", {"textDocument": document})
        return uri

    def close(self) -> None:
        self.process.kill()
        self.process.wait()

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def _read(self) -> None:
        assert self.process.stdout is not None
        length = 0
        for line in self.process.stdout:
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
            elif not line.strip():
                self.messages.put(json.loads(self.process.stdout.read(length)))


@pytest.fixture(scope="module")
def server() -> Iterator[LanguageServer]:
    installed = npm.package(SERVER, "--ignore-scripts", "--omit=dev")
    program = installed / "yaml-language-server" / "bin" / "yaml-language-server"
    running = LanguageServer(["node", str(program), "--stdio"])
    yield running
    running.close()


def _at(text: str, marker: str) -> tuple[str, dict[str, int]]:
    """The text without the marker, and where it stands below the line that names the schema."""
    before, after = text.split(marker)
    lines = before.split("\n")
    return before + after, {"line": len(lines), "character": len(lines[-1])}


def _labels(server: LanguageServer, name: str, text: str) -> dict[str, Any]:
    text, position = _at(text, "|")
    uri = server.open(name, text)
    answer = server.ask("textDocument/completion", {"textDocument": {"uri": uri}, "position": position})
    items = answer["items"] if isinstance(answer, dict) else answer
    return {item["label"]: item for item in items}


def test_keys_are_completed_with_their_meaning(server: LanguageServer) -> None:
    found = _labels(server, "keys.yaml", MINIMAL + "memory:\n  |\n")
    assert {"kvCache", "gpuFraction", "minimumTotal", "guard"} <= set(found)
    assert "KV cache of one rank" in json.dumps(found["kvCache"])


def test_keys_of_the_chosen_engine_are_completed(server: LanguageServer) -> None:
    found = _labels(server, "engine.yaml", MINIMAL.replace("kind: vllm", "kind: sglang\n  |"))
    assert "chunkedPrefillSize" in found
    assert "mamba" in found


def test_values_are_completed(server: LanguageServer) -> None:
    found = _labels(server, "values.yaml", MINIMAL.replace("  path:", "  distribution: |\n  path:"))
    assert {"copy", "direct", "shared"} <= set(found)


def test_hover_tells_unit_flag_and_recipe_variable(server: LanguageServer) -> None:
    text, position = _at(MINIMAL + "memory:\n  kv|Cache: 1 GiB\n", "|")
    uri = server.open("hover.yaml", text)
    answer = server.ask("textDocument/hover", {"textDocument": {"uri": uri}, "position": position})
    shown = json.dumps(answer["contents"])
    for words in ("KV cache of one rank", "Unit: bytes", "kv-cache-memory-bytes", "KV", "BYTES"):
        assert words in shown


def test_mistakes_are_underlined_and_good_specs_are_not(server: LanguageServer) -> None:
    good = server.open("good.yaml", MINIMAL)
    bad = server.open("bad.yaml", MINIMAL + "memory:\n  kvCash: 1 GiB\n  gpuFraction: 88\n")
    assert _diagnostics(server, good) == []
    assert sorted(found["range"]["start"]["line"] for found in _diagnostics(server, bad)) == [18, 19]


def _diagnostics(server: LanguageServer, uri: str) -> list[dict[str, Any]]:
    message = server.wait(
        lambda message: (
            message.get("method") == "textDocument/publishDiagnostics" and message["params"]["uri"] == uri
        )
    )
    found: list[dict[str, Any]] = message["params"]["diagnostics"]
    return found
