"""Sizes of tensors by the headers of a checkpoint, on the node."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from sparkop.hosts.local import LocalHost
from sparkop.node import headers


def shard(path: Path, tensors: dict[str, tuple[str, int]], *, data: bool = True) -> None:
    """A safetensors file; its data are a hole, so that gigabytes cost nothing."""
    at, header = 0, {}
    for name, (dtype, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": [size], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + (at if data else 0))


def index(folder: Path, *names: str) -> None:
    weight_map = {f"tensor.{number}": name for number, name in enumerate(names)}
    (folder / headers.INDEX).write_text(json.dumps({"weight_map": weight_map}))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    shard(
        tmp_path / "model-00001-of-00002.safetensors",
        {f"layers.{n}.mlp.experts.{e}.w1": ("U8", 1000) for n in (0, 1) for e in (0, 1, 2)},
    )
    shard(tmp_path / "model-00002-of-00002.safetensors", {"embed.weight": ("BF16", 5 << 30)})
    shard(tmp_path / "consolidated.safetensors", {"everything": ("BF16", 9 << 30)})
    shard(tmp_path / "exl3" / "qn" / "L05.part.safetensors", {"w": ("U8", 7)})
    shard(tmp_path / ".cache" / "half.safetensors", {"w": ("U8", 7)}, data=False)
    index(tmp_path, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 2}')
    return tmp_path


def groups(found: dict[str, Any]) -> dict[str, list[Any]]:
    return {group[0]: group[1:] for group in found["groups"]}


def test_tensors_are_summed_by_name_and_type(checkpoint: Path) -> None:
    """A file that the index does not list is no part of the model; folders of banks are."""
    found = headers.read(str(checkpoint))
    assert groups(found) == {
        "layers.#.mlp.experts.#.w#": ["U8", 6, 6000],
        "embed.weight": ["BF16", 1, 5 << 30],
        "exl#/qn/w": ["U8", 1, 7],
    }
    assert found["files"] == 3
    assert found["config"] == {"num_hidden_layers": 2}


def test_without_an_index_every_file_counts(checkpoint: Path) -> None:
    (checkpoint / headers.INDEX).unlink()
    assert "everything" in groups(headers.read(str(checkpoint)))


def test_a_missing_shard_is_an_error_not_a_smaller_model(checkpoint: Path) -> None:
    """Half of a model would fit anywhere."""
    (checkpoint / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="model-00002"):
        headers.read(str(checkpoint))


@pytest.mark.parametrize("content", [b"", b"\1\2", b"\xff" * 20, struct.pack("<Q", 4) + b"nope"])
def test_damaged_file_is_an_error(checkpoint: Path, content: bytes) -> None:
    (checkpoint / "model-00001-of-00002.safetensors").write_bytes(content)
    with pytest.raises(ValueError):  # noqa: PT011 - JSON's own words are a ValueError too
        headers.read(str(checkpoint))


def test_the_probe_reads_them_when_asked(checkpoint: Path) -> None:
    """By the program as it is sent to a node; a folder that is not there is an error of its section."""
    host = LocalHost("here")
    found = host.probe({"sections": ["memory", "headers"], "headers": str(checkpoint)})
    assert groups(found["headers"])["embed.weight"] == ["BF16", 1, 5 << 30]
    assert found["memory"]["total"] > 0
    plain = host.probe({"sections": None})
    assert "headers" not in plain
    empty = host.probe({"sections": ["headers"], "headers": str(checkpoint / "none")})
    assert empty["headers"] == {"config": None, "files": 0, "groups": []}
