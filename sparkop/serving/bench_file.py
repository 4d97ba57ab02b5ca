"""The file of a bench: written whole after each step, read again to carry on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from sparkop.errors import UsageError
from sparkop.serving.bench import VERSION, Document
from sparkop.serving.summary import rows


def new_document(cluster: str, model: str, configuration: str, label: str, ts: str) -> Document:
    """A document without figures. ``configuration``: hash of what the engine is asked to do."""
    return {
        "version": VERSION,
        "label": label,
        "cluster": cluster,
        "model": model,
        "configuration": configuration,
        "ts": ts,
        "finished": None,
        "prefill": {},
        "decode": [],
        "ctx": [],
    }


def read_document(path: Path) -> Document:
    """A document of ours or of the recipe's script. Raises UsageError for anything else."""
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} can't be read as a measurement", cause=str(error)) from error
    try:
        document = {"decode": [], "ctx": [], **document}
        document["prefill"].items()
        rows(document)  # everything that is shown is read here
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} is no measurement of sparkop bench", cause=repr(error)) from error
    return dict(document)


def carry_on(path: Path, fresh: Document) -> Document:
    """The document that ``path`` has, else ``fresh``.

    Raises UsageError when the file is of another cluster, model or configuration: figures of two must not
    be mixed.
    """
    if not path.exists():
        return fresh
    found = read_document(path)
    for name in ("version", "cluster", "model", "configuration"):
        if found.get(name) != fresh[name]:
            raise UsageError(
                f"{path} has figures of another {name}",
                cause=f"{name}: {found.get(name)} there, {fresh[name]} here",
                remedy="name another file with --out, or start this one again with --fresh",
            )
    return found


def save(path: Path, document: Document) -> None:
    """Write it whole: draft, flush to the disk, rename. Raises UsageError when that can't be."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("w", encoding="utf-8") as stream:
            json.dump(document, stream, indent=1)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise UsageError(f"{path} can't be written", cause=str(error)) from error
