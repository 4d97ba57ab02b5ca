"""Folders of a node that sparkop writes into, and removes: none of the system's, and none within another."""

from __future__ import annotations

import re
from posixpath import normpath, relpath
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
_OF_VAR = frozenset(
    ["backups", "cache", "crash", "lib", "local", "lock", "log", "mail", "opt", "run", "snap", "spool", "tmp"]
)
"""What distributions put into /var."""
_OF_LOCAL = frozenset(["bin", "etc", "games", "include", "lib", "libexec", "man", "sbin", "share", "src"])
"""The same of /usr/local."""
_OF_HOME = re.compile(r"/\.(cache|config|local|local/(bin|lib|share|state))")
"""Folders in a home that all programs share."""
_FILES = re.compile(r"/\.(bash\w*|zsh\w*|zprofile|profile|login|netrc|gitconfig|npmrc|pypirc|vimrc|inputrc)")
"""Files in a home that other programs read."""
_DOCKER = ("/var/lib/containerd", "/var/lib/docker")
_HOME = "/home/user"
"""Where ``~`` is taken to be."""
_IN_HOME = re.compile("/root(?=/)|/home/[^/]+(?=/)")
STATES = "~/.sparkop"
"""Where the state folders of clusters lie when the spec names no other place."""


def _whole(path: str) -> str:
    """Without ``..`` and doubled slashes."""
    return "/" + normpath(_HOME + path[1:] if path.startswith("~") else path).lstrip("/")


def _objection(path: str) -> str | None:
    whole = _whole(path)
    parts = whole.split("/")[1:]
    if _is_systems(parts) or any(is_within(whole, each) for each in _DOCKER):
        return "is the system's"
    if whole == "/root" or (parts[0] == "home" and len(parts) == 2):
        return "is a home folder itself"
    if ".ssh" in parts:
        return "is SSH's"
    if parts[-1] == ".sparkop":
        return "holds the state folders of all clusters"
    in_home = _IN_HOME.sub("", whole)
    if _FILES.fullmatch(in_home):
        return "is another program's file"
    in_var = len(parts) == 2 and parts[0] == "var" and parts[1] in _OF_VAR
    if (len(parts) == 1 and parts[0] in _SHARED) or in_var or _OF_HOME.fullmatch(in_home):
        return "is shared by all programs"
    return None


def _is_systems(parts: list[str]) -> bool:
    """Of /usr/local what a user has put there, also into its ``share``, is not."""
    own = parts[2:] if parts[:2] == ["usr", "local"] else []
    theirs = own[:1] == ["share"] and len(own) > 1 and own[1] != "man"
    return parts[0] in ("", *_SYSTEM) and not theirs and (not own or own[0] in _OF_LOCAL)


def among_states(path: str) -> str | None:
    """The state folder within `STATES` that a path names, or in which it lies; None elsewhere."""
    below = relpath(_whole(path), _whole(STATES)).split("/")
    return None if below[0] in ("..", ".") else f"{STATES}/{below[0]}"


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
