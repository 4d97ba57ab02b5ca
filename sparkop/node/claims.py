"""Which files of a node other clusters of sparkop's use, by what their state folders say: a checkpoint in a
folder that two clusters share is not one's alone to remove.

A file counts that a cluster has verified (its ledger, node/transfer/ledger.py), or that its last transfer was
about. State folders are looked for beside one's own, and where they are by default, as far as this user may
look.
"""

from __future__ import annotations

import json
import os
from typing import Any

from . import wire

HOME = "~/.sparkop"


def of_others(state: str) -> dict[str, set[str]]:
    """By the name of the cluster: real paths, and the links of a hub cache by which it knows them. Raises
    OSError for a file that can't be read."""
    own = os.path.realpath(os.path.expanduser(state))
    homes = {os.path.dirname(own), os.path.realpath(os.path.expanduser(HOME))}
    found: dict[str, set[str]] = {}
    for folder in sorted(os.path.join(home, name) for home in homes for name in wire.listed(home)):
        if os.path.realpath(folder) != own and os.access(folder, os.R_OK | os.X_OK):
            paths = claimed(folder)
            if paths:
                found.setdefault(name_of(folder), set()).update(paths)
    return found


def claimed(state: str) -> set[str]:
    """Real paths of the files that a cluster's ledger or its running transfer names, and their links in a hub
    cache."""
    ledger = document(os.path.join(state, "ledger", "weights.json")).get("files")
    job = document(os.path.join(state, "transfer", "job.json"))
    paths = {str(path) for path in ledger} if isinstance(ledger, dict) else set()
    directory, hub, files = job.get("directory"), job.get("hub"), job.get("files")
    if isinstance(directory, str) and isinstance(files, list):
        root = os.path.realpath(os.path.expanduser(directory))
        for file in (each for each in files if isinstance(each, dict)):
            names = [str(file.get("path"))]
            if isinstance(hub, dict):
                blob = str(file.get("sha256") or file.get("git"))
                names = [
                    os.path.join("snapshots", str(hub.get("commit")), *names),
                    os.path.join("blobs", blob),
                ]
            named = {os.path.join(root, name) for name in names}
            paths |= named | set(map(os.path.realpath, named))
    return paths


def name_of(state: str) -> str:
    """The cluster of a state folder; the folder's own name where no file tells it."""
    found = document(os.path.join(state, "cluster.json")).get("cluster")
    return found if isinstance(found, str) else os.path.basename(state)


def document(path: str) -> dict[str, Any]:
    """A JSON mapping; empty when there is none, or it makes no sense."""
    try:
        found = json.loads(wire.read_text(path))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
