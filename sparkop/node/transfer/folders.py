"""Folders for weights that a transfer has made, so that ``destroy`` can take them away when they are empty
(node/leaving.py). By their inodes: one that somebody has made anew is not ours."""

from __future__ import annotations

import json
import os

from .ledger import read_json, write_whole

RECORD = os.path.join("transfer", "folders.json")


def make(state: str, folder: str) -> None:
    """The folder and those above it, where they are absent. Raises OSError."""
    absent = []
    above = folder
    while not os.path.lexists(above):
        absent.append(above)
        above = os.path.dirname(above)
    try:
        os.makedirs(folder, exist_ok=True)
    finally:
        made = {path: os.stat(path).st_ino for path in absent if os.path.isdir(path)}
        if made:
            path = os.path.join(state, RECORD)
            write_whole(path, json.dumps({**read_json(path), **made}).encode())
