"""The file of a bench: written whole after each step, read again to carry on."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from sparkop.errors import UsageError
from sparkop.serving.bench import VERSION, Document


class _Part(BaseModel):
    """What a file must have so that every reader of it finds numbers where it looks for them."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _Request(_Part):
    ttft: float | None = None
    gaps_ms: list[float] | None = None


class _PrefillRun(_Request):
    tok_s: float | None = None
    acceptance: float | None = None
    pool_peak: float | None = None


class _Prefill(_Part):
    median: float
    runs: list[_PrefillRun]


class _Decode(_Part):
    C: int
    kind: str
    per_stream_median: float | None = None
    aggregate: float | None = None
    reqs: list[_Request]
    acceptance: float | None = None
    pool_peak: float | None = None


class _Context(_Request):
    target_tokens: int
    prefill_tok_s: float | None = None
    decode_tok_s: float | None = None
    recalled: int | None = None
    asked: int | None = None
    acceptance: float | None = None
    pool_peak: float | None = None


class _File(_Part):
    prefill: dict[str, _Prefill]
    decode: list[_Decode]
    ctx: list[_Context]


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
        document = {"finished": None, "decode": [], "ctx": [], **document}
        _File.model_validate(document)
        for size in document["prefill"]:
            int(size)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise _rubbish(path, f"{where}: {first['msg']}") from error
    except (TypeError, ValueError) as error:
        raise _rubbish(path, str(error)) from error
    return dict(document)


def _rubbish(path: Path, cause: str) -> UsageError:
    return UsageError(f"{path} is no measurement of sparkop bench", cause=cause)


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


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the file for one bench. Raises UsageError when another one writes it: they would mix their figures
    and disturb each other's measurement."""
    lock = path.with_name(f".{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = lock.open("a")
    except OSError as error:
        raise UsageError(f"{path} can't be written", cause=str(error)) from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"another sparkop bench writes {path}", remedy="wait for it, or name another file with --out"
            ) from None
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


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
