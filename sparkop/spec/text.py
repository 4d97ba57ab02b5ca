"""Kinds of text and numbers that several sections use."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _path(value: str) -> str:
    if "$" in value:
        raise PydanticCustomError(
            "path",
            "{message}",
            {"message": "variables are not expanded in paths: write ~ for the home folder"},
        )
    if _CONTROL.search(value):
        raise PydanticCustomError(
            "path", "{message}", {"message": "a path has no line breaks or control characters"}
        )
    if value.startswith("~") and value != "~" and not value.startswith("~/"):
        raise PydanticCustomError(
            "path", "{message}", {"message": "~user is not expanded: write ~/... or the whole path"}
        )
    if not value.startswith(("/", "~")):
        raise PydanticCustomError(
            "path", "{message}", {"message": "a path on a node begins with / or ~/ (its home folder)"}
        )
    return value


FilePath = Annotated[str, Field(min_length=1), AfterValidator(_path)]
"""An absolute path on a node. ``~`` is the home folder there; no other expansion."""

Glob = Annotated[str, Field(min_length=1)]
"""A pattern of file names, ``*`` also matches slashes, as in the hub client."""

_COMMIT = re.compile(r"[0-9a-f]{40}")


def is_commit(revision: str) -> bool:
    """A full commit: what it names can't change."""
    return _COMMIT.fullmatch(revision) is not None


Port = Annotated[int, Field(ge=1, le=65535)]
"""A TCP port."""
