"""Configuration and headers of a repository by ranged reads of the lab's hub, over loopback."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkop.engines.budget.checkpoint import summarise
from sparkop.errors import BlockedError
from sparkop.lab import hub, layout
from sparkop.resources.weights.hub_headers import read_hub
from tests.lab.test_hub import _two_free_ports, _wait_for

NAME = "org/name"


def file(tensors: dict[str, int]) -> bytes:
    at, header = 0, {}
    for name, size in tensors.items():
        header[name] = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + os.urandom(at)


FILES: dict[str, Path | bytes] = {
    "config.json": b'{"num_hidden_layers": 2}',
    "model.safetensors.index.json": json.dumps({"weight_map": {"a": "model-1.safetensors"}}).encode(),
    "model-1.safetensors": file({"layers.0.w": 4 << 20, "layers.1.w": 4 << 20}),
    "old.safetensors": file({"old": 2 << 20}),
    "exl3/qn/L00.part.safetensors": file({"trellis": 1 << 20}),
}


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv(layout.STATE_VARIABLE, str(tmp_path / "labs"))
    monkeypatch.setenv(layout.LAB_VARIABLE, "hub")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "controller"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    command = hub.prepare(layout.LabPaths.of())
    hub.add_repository(FILES, NAME)
    port = _two_free_ports()
    server = subprocess.Popen([*command[:-2], "127.0.0.1", str(port)])
    try:
        _wait_for(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def test_headers_without_the_weights(endpoint: str) -> None:
    """Only what the index lists, and banks in folders; the data are never asked for."""
    config, headers = read_hub(NAME, "main", endpoint)
    assert config == {"num_hidden_layers": 2}
    assert {group.name: group.size for group in summarise(headers)} == {
        "layers.#.w": 8 << 20,
        "exl#/qn/trellis": 1 << 20,
    }
    shards = [each for each in hub.requests() if each.path.endswith(".safetensors")]
    assert shards
    assert all(each.range for each in shards if each.method == "GET")
    assert not [each for each in shards if each.path.endswith("old.safetensors") and each.method == "GET"]


def test_a_repository_without_a_configuration_is_refused(endpoint: str) -> None:
    hub.add_repository({name: data for name, data in FILES.items() if name != "config.json"}, "org/bare")
    with pytest.raises(BlockedError, match=r"no config\.json"):
        read_hub("org/bare", "main", endpoint)


def test_a_hub_that_is_not_there_is_told_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(BlockedError, match=r"can't be (reached|asked)"):
        read_hub("org/elsewhere", "d" * 40, "http://127.0.0.1:9")
