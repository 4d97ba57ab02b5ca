"""Folders of a node that sparkop writes into, and removes: none of the system's, and none within another."""

from __future__ import annotations

from posixpath import normpath
from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from sparkop.spec.text import FilePath

_SYSTEM = frozenset(
    ["bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "usr"]
)
"""At the top: with all below."""
_SHARED = frozenset(["home", "lost+found", "media", "mnt", "opt", "root", "run", "snap", "srv", "tmp", "var"])
"""At the top: what lies below may be anyone's."""
_DOCKER = ("/var/lib/containerd", "/var/lib/docker")
_HOME = "/home/user"
"""Where ``~`` is taken to be."""


def _whole(path: str) -> str:
    """Without ``..`` and doubled slashes."""
    return "/" + normpath(_HOME + path[1:] if path.startswith("~") else path).lstrip("/")


def _objection(path: str) -> str | None:
    whole = _whole(path)
    parts = whole.split("/")[1:]
    if parts[0] in ("", *_SYSTEM) or any(is_within(whole, each) for each in _DOCKER):
        return "is the system's"
    if whole == "/root" or (parts[0] == "home" and len(parts) == 2):
        return "is a home folder itself"
    if ".ssh" in parts:
        return "is SSH's"
    if parts[-1] == ".sparkop":
        return "holds the state folders of all clusters"
    if (len(parts) == 1 and parts[0] in _SHARED) or (parts[0] == "var" and len(parts) == 2):
        return "is shared by all programs"
    return None


def _own(path: str) -> str:
    why = _objection(path)
    if why is None:
        return path
    told = f"{path} {why}, and sparkop writes and removes there: name a path of its own"
    raise PydanticCustomError("path", "{message}", {"message": told})


OwnPath = Annotated[FilePath, AfterValidator(_own)]
"""A path on a node that sparkop writes, and may remove."""


def _sub_folder(name: str) -> str:
    if name.startswith(("/", "~")) or ".." in name.split("/"):
        raise PydanticCustomError(
            "path", "{message}", {"message": f"{name} is no name of a folder below the node's cache folder"}
        )
    return name


SubFolder = Annotated[str, AfterValidator(_sub_folder)]
"""A folder below another; ``.`` is that one."""


def is_within(path: str, folder: str) -> bool:
    """Whether a path is the folder or lies below it, by their text."""
    inner, outer = _whole(path), _whole(folder)
    return inner == outer or inner.startswith(outer + "/")
