"""Sizes of a checkpoint's tensors, from the headers of its safetensors files. Stdlib-only; reads only.

Answer: ``{"config": {...} or None, "files": 3, "groups": [[name, dtype, count, bytes], ...]}``. Tensors whose
names differ in numbers only are one group, named with ``#`` for a number; those of a folder below the
checkpoint have it before their names (``exl3/qn/``).
"""

from __future__ import annotations

import json
import os
import re
import struct
from typing import Any

from .wire import regular

LARGEST = 100 << 20
"""Bytes of a header; readers refuse far smaller ones."""
NUMBER = re.compile(r"\d+")
INDEX = "model.safetensors.index.json"


def read(directory: str) -> dict[str, Any]:
    """Raises OSError when the folder or a file can't be read, ValueError for a damaged header."""
    directory = os.path.realpath(directory)
    groups: dict[tuple[str, str], list[int]] = {}
    files = sorted(wanted(directory))
    for name in files:
        folder = os.path.dirname(name)
        prefix = folder + "/" if folder else ""
        for tensor, facts in header(os.path.join(directory, name)).items():
            begin, end = facts["data_offsets"]
            key = (NUMBER.sub("#", prefix + tensor), str(facts["dtype"]))
            entry = groups.setdefault(key, [0, 0])
            entry[0] += 1
            entry[1] += int(end) - int(begin)
    return {
        "config": config(directory),
        "files": len(files),
        "groups": [[name, dtype, *entry] for (name, dtype), entry in sorted(groups.items())],
    }


def wanted(directory: str) -> set[str]:
    """The files of the index, or all of the folder itself; and those of folders below it."""
    found = set()
    for folder, folders, names in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.endswith(".safetensors") and not name.startswith("."):
                found.add(os.path.relpath(os.path.join(folder, name), directory))
    try:
        with regular(os.path.join(directory, INDEX)) as file:
            listed = set(json.load(file)["weight_map"].values())
    except FileNotFoundError:
        return found
    return {name for name in found if os.path.dirname(name)} | listed


def header(path: str) -> dict[str, Any]:
    """Tensors of one file: 8 bytes little-endian length, so many bytes of JSON, then the data."""
    with regular(path) as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else LARGEST + 1
        if length > LARGEST:
            raise ValueError("%s has no safetensors header" % path)
        found = json.loads(file.read(length))
    found.pop("__metadata__", None)
    return dict(found)


def config(directory: str) -> Any:
    try:
        with regular(os.path.join(directory, "config.json")) as file:
            return json.load(file)
    except FileNotFoundError:
        return None
